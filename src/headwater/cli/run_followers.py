"""What accompanies the jobs of ``headwater run``: metrics, alerts, traces and a consumer group's offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headwater.cli.run_log import TextLog
from headwater.core.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.alerts.rules import AlertConfig
    from headwater.guards.watch import SourceWatch
    from headwater.jobs.job import Job
    from headwater.spark.followers import Follower
    from headwater.spark.ownership import Run


def check_accompaniment(
    jobs: Sequence[Job], *, metrics: str | None, commit_group: str | None, otel: str | None
) -> Accompaniment:
    """Return what accompanies jobs. Raise for a wrong option or ``headwater.toml``, before Spark starts."""
    from headwater.alerts.rules import load_config

    config = load_config()
    if commit_group is not None:
        from headwater.spark.kafka_followers import committing_offsets

        for job in jobs:
            committing_offsets(job, commit_group)
    if otel is not None:
        from headwater.spark.tracing import require_otel

        require_otel(otel)
    return Accompaniment(config, metrics, commit_group, otel)


@dataclass(frozen=True)
class Accompaniment:
    """The options of the command that followers come from, checked before Spark starts."""

    alerts: AlertConfig
    metrics: str | None = None
    commit_group: str | None = None
    otel: str | None = None

    @contextmanager
    def followers_of(self, runs: Sequence[Run], log: TextLog) -> Iterator[list[list[Follower]]]:
        """Serve the metrics while the block runs. Yield the followers of each job."""
        found: list[list[Follower]] = [[] for _ in runs]
        with ExitStack() as resources:
            watches = self._source_watches(runs, resources)
            if self.metrics is not None:
                self._serve_metrics(runs, watches, found, resources, log)
            for run, watch, followers in zip(runs, watches, found, strict=True):
                if self.commit_group is not None:
                    from headwater.spark.kafka_followers import committing_offsets

                    followers.append(committing_offsets(run.job, self.commit_group))
                if self.otel is not None:
                    from headwater.spark.tracing import tracing

                    followers.append(tracing(run.job.name, self.otel))
                if self.alerts.for_stream(run.job.name):
                    from headwater.spark.alert_followers import alerting

                    followers.append(alerting(run.job.name, self.alerts, watch, log.alert))
            yield found

    def _source_watches(self, runs: Sequence[Run], resources: ExitStack) -> list[SourceWatch | None]:
        """Return what checks the sources of each job in the background, if the metrics or a rule need it."""
        from headwater.alerts.rules import NEED_SOURCES
        from headwater.checkpoint.locate import open_files
        from headwater.guards.check import check_sources
        from headwater.guards.watch import SourceWatch
        from headwater.spark.kafka_followers import kafka_connections

        found: list[SourceWatch | None] = []
        for run in runs:
            needed = any(rule.when in NEED_SOURCES for rule in self.alerts.for_stream(run.job.name))
            if self.metrics is None and not needed:
                found.append(None)
                continue
            try:
                files = open_files(run.checkpoint)
            except (HeadwaterError, ImportError, ValueError):  # Python has no client for the store that Spark writes to
                found.append(None)
                continue
            check = partial(check_sources, files, kafka_connections(run.job))
            found.append(resources.enter_context(SourceWatch(check)))
        return found

    def _serve_metrics(
        self,
        runs: Sequence[Run],
        watches: Sequence[SourceWatch | None],
        found: list[list[Follower]],
        resources: ExitStack,
        log: TextLog,
    ) -> None:
        from headwater.checkpoint.locate import open_files
        from headwater.spark.followers import passing_batches
        from headwater.spark.metrics import CombinedMetrics, JobMetrics, MetricsServer

        each = [
            JobMetrics(run.job.name, open_files(run.checkpoint), watch.latest if watch else lambda: None)
            for run, watch in zip(runs, watches, strict=True)
        ]
        server = resources.enter_context(MetricsServer(CombinedMetrics(each), self.metrics or ""))
        log.message(f"metrics: {server.url}")
        for metrics, watch, followers in zip(each, watches, found, strict=True):
            followers.append(passing_batches(metrics.add))
            if watch is not None:
                followers.append(passing_batches(watch.after_batch))
