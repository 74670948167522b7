"""A real Kafka on this machine, without Docker."""
