"""Kafka: clients and their security options, topics, offsets, records, and a broker on this machine."""
