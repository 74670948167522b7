"""Test a job batch by batch: ``scenario`` is the pytest fixture, ``Crash`` the faults that a test can inject."""

from headwater.testing.records import Crash

__all__ = ["Crash"]
