"""The jobs that teach streaming, one short file each, made with the public API only."""
