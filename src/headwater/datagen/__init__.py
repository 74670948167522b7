"""Seeded records for demos, tests and benchmarks."""
