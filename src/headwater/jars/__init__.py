"""The jars that Spark and Kafka need, resolved once and checked on use."""
