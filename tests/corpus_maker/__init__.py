"""Writes tests/corpus: small checkpoints that real Spark made, each with Spark's own answers about it."""
