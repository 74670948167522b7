"""Avro and Protobuf records: schemas, the schema registry, decoding and encoding. Nothing here needs Spark."""
