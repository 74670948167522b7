"""Run ``headwater`` as in a JVM without its jar, where JSON is decoded with Spark's functions."""

from __future__ import annotations

from headwater.cli.main import main
from headwater.spark.internals import json_parser

json_parser.probe = lambda spark: False  # noqa: ARG005
main()
