"""Drive a job batch by batch from a test: ``scenario`` is the pytest fixture, ``Crash`` the faults to feed it."""

from headwater.testing.records import Crash

__all__ = ["Crash"]
