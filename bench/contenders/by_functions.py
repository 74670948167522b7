"""``headwater`` as it is in a JVM that does not have its jar: JSON is read with Spark's functions."""

from __future__ import annotations

from headwater.cli.main import main
from headwater.spark import json_records

json_records.own_reader = lambda spark: None  # noqa: ARG005
main()
