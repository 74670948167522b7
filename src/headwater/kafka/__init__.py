"""Kafka: clients and their security options, topics, offsets and lag, records, and a broker on the local machine."""
