"""A real Kafka on this machine: settings, process, readiness; and topics and records of any broker."""
