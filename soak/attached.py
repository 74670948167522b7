"""A job as the query of a program that has one line of Headwater's, ``attach``, and starts its queries itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

VERB = "attached"
# The other sinks are Headwater's own code in ``foreachBatch``, which needs a run of Headwater.
SINKS = ("files", "kafka")


def run_attached(start_session: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run a job with the options of ``headwater run`` to the end of its input, and return an exit status."""
    import headwater
    from headwater.checkpoint.locate import open_files
    from headwater.cli.job_options import parse_pairs, select_job
    from headwater.core.errors import HeadwaterError
    from headwater.jobs.profiles import profile_settings
    from headwater.spark.prepared import prepare_job
    from headwater.spark.session import matching_checkpoint_format

    options = _parse(arguments)
    try:
        job = select_job(
            options.job, source=options.source, sink=options.sink, mode=options.mode, trigger=options.trigger
        )
        settings = {**profile_settings(options.profile), **parse_pairs(options.conf, "--conf")}
        spark = start_session(job.name, conf=settings)
        attachment = headwater.attach(spark)
        try:
            prepared = prepare_job(spark, job)
            with prepared.tables, matching_checkpoint_format(spark, open_files(options.checkpoint)):
                query = prepared.start(options.checkpoint)
                query.awaitTermination()
        finally:
            attachment.detach()
    except HeadwaterError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    for name in ("sink", "checkpoint", "mode", "trigger"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--profile")
    for name in ("source", "conf"):
        parser.add_argument(f"--{name}", action="append", default=[])
    return parser.parse_args(list(arguments))
