"""Drive a job batch by batch from a test."""
