"""Writes tests/corpus: small checkpoints created by real Spark, each with the results of Spark's own readers."""
