"""Example jobs that teach streaming. Each is one short file that uses only the public API."""
