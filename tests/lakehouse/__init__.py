"""Tests of the lakehouse package."""
