"""A job as a value: a plain function, a source, a sink, an output mode and a trigger."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from headwater.core.errors import JobRefused, UsageProblem
from headwater.core.extras import naming_extras
from headwater.jobs.endpoints import Sink, Source, Static

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.running import RunningJob

Mode: TypeAlias = Literal["append", "complete", "update"]
MODES: tuple[Mode, ...] = ("append", "complete", "update")

UNNAMED = ""

StateRow: TypeAlias = dict[str, Any]
Transform: TypeAlias = "Callable[..., DataFrame]"
Frames: TypeAlias = "Mapping[str, DataFrame]"
StateView: TypeAlias = Callable[[list[StateRow]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Job:
    """A streaming job. ``transform`` takes and returns a DataFrame; its keyword-only arguments are the parameters.

    ``reads`` is the source, or a mapping from the names of the function's DataFrames to their sources. Among these may be
    ``Static`` tables, which do not stream.

    With ``per_batch``, the function receives each micro-batch as a static DataFrame, so no state is kept between
    batches. ``conf`` holds Spark settings that the job needs. ``state_view`` converts the raw rows of custom state
    (``{"var", "key", "value"}``) into rows that readers of the job understand. ``dead_letters`` is the URI of a topic,
    a folder or a table in which late and malformed records are saved.
    """

    name: str
    transform: Transform
    reads: Source | Mapping[str, Source | Static]
    writes: Sink
    mode: Mode = "append"
    trigger: str | None = None
    per_batch: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    state_view: StateView | None = None
    dead_letters: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise ValueError(
                f"{self.name!r} cannot be a job's name: it names a folder, so use letters, digits, '-', '_' and '.' only"
            )
        if isinstance(self.reads, Mapping):
            _check_inputs(self)

    def __call__(self, *frames: DataFrame, **named: DataFrame) -> DataFrame:
        """Apply the function with the current settings to streaming or static DataFrames, as the function takes them."""
        return self.transform(*frames, **named, **self.settings)

    def apply(self, frames: Frames) -> DataFrame:
        """Apply the function to one DataFrame for each of ``inputs``."""
        return self(**frames) if isinstance(self.reads, Mapping) else self(frames[UNNAMED])

    @property
    def inputs(self) -> dict[str, Source | Static]:
        """The sources and static tables by name. The name of a job's only source is empty unless the job names it."""
        return dict(self.reads) if isinstance(self.reads, Mapping) else {UNNAMED: self.reads}

    @property
    def sources(self) -> dict[str, Source]:
        """The streaming sources by name."""
        return {name: one for name, one in self.inputs.items() if not isinstance(one, Static)}

    @property
    def statics(self) -> dict[str, Static]:
        """The static tables by name."""
        return {name: one for name, one in self.inputs.items() if isinstance(one, Static)}

    def with_inputs(self, changed: Mapping[str, Source | Static]) -> Job:
        """Return the job with other sources or tables under some of its names."""
        inputs = {**self.inputs, **changed}
        return replace(self, reads=inputs if isinstance(self.reads, Mapping) else cast("Source", inputs[UNNAMED]))

    def start(
        self,
        spark: SparkSession | None = None,
        checkpoint: str | Path | None = None,
        trigger: str | None = None,
        *,
        accept_change: bool = False,
        keep_every: str | None = None,
        keep_for: str | None = None,
    ) -> RunningJob:
        """Start the job in this process and return a handle, with the checks, lease and record of ``headwater run``.

        Without ``spark``, the job runs on the session of this process, or on a new one with Headwater's settings. An
        existing session is used as it is. ``checkpoint`` is a folder or URL, by default ``.headwater/checkpoints/`` and
        the job's name; ``trigger`` replaces the job's own. ``accept_change`` starts code that gives the state of the
        checkpoint another meaning, which is refused otherwise. ``keep_every`` and ``keep_for``, such as ``"1h"`` and
        ``"7d"``, make restore points while the job runs and drop them after a time.
        """
        with naming_extras():
            from headwater.spark.programs import start_in_program  # noqa: PLC0415  a job is defined without Spark

            return start_in_program(
                self, spark, checkpoint, trigger, accept_change=accept_change, keep=(keep_every, keep_for)
            )

    @property
    def about(self) -> str:
        """The first paragraph of the function's docstring."""
        return (inspect.getdoc(self.transform) or "").split("\n\n")[0].replace("\n", " ")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that ``--set`` can change, with their current values."""
        signature = inspect.signature(self.transform)
        defaults = {
            name: parameter.default
            for name, parameter in signature.parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        return {**defaults, **self.settings}

    def with_settings(self, given: Mapping[str, object]) -> Job:
        """Return the job with other settings. Text, as the command line has it, is converted to the type of the default."""
        parameters = self.parameters
        chosen = dict(self.settings)
        for name, value in given.items():
            if name not in parameters:
                raise UsageProblem(
                    "unknown-setting",
                    f"{self.name} has no parameter {name!r}",
                    evidence={"parameters": ", ".join(f"{key}={known}" for key, known in parameters.items()) or "none"},
                    remedy=f"headwater jobs {self.name}",
                )
            chosen[name] = _as_type_of(parameters[name], name, value)
        return replace(self, settings=chosen)


def _check_inputs(job: Job) -> None:
    """Refuse inputs that the function does not take, or that Spark could not name."""
    taken = {
        name: parameter
        for name, parameter in inspect.signature(job.transform).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    required = [name for name, parameter in taken.items() if parameter.default is parameter.empty]
    shown = {"function takes": ", ".join(taken) or "nothing", "reads": ", ".join(job.inputs) or "nothing"}
    unknown = [name for name in job.inputs if name not in taken]
    missing = [name for name in required if name not in job.inputs]
    if unknown or missing:
        problem = f"does not take {unknown[0]!r}" if unknown else f"needs a source for {missing[0]!r}"
        raise JobRefused(
            "job-inputs",
            f"the function of {job.name} {problem}",
            evidence=shown,
            remedy=f"reads={{{', '.join(f'{name!r}: …' for name in required)}}}",
        )
    unnamable = [name for name in job.inputs if not re.fullmatch(r"[A-Za-z0-9_]+", name)]
    if unnamable:
        raise JobRefused(
            "job-inputs",
            f"{unnamable[0]!r} cannot be the name of a source",
            remedy="use ASCII letters, digits and underscores, as Spark requires",
        )
    if not job.sources:
        raise JobRefused(
            "job-inputs",
            f"{job.name} has no streaming source",
            evidence=shown,
            remedy="give at least one name a source that is not Static",
        )


def _as_type_of(default: Any, name: str, text: object) -> Any:
    if isinstance(default, str) and isinstance(text, int | float | os.PathLike):
        return str(text)
    if not isinstance(text, str):
        # A record has a list in place of a tuple.
        return tuple(text) if isinstance(default, tuple) and isinstance(text, list) else text
    if isinstance(default, bool):
        if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        raise UsageProblem("bad-setting", f"{name}={text} must be true or false", remedy=f"--set {name}=true")
    if isinstance(default, int | float):
        try:
            return type(default)(text)
        except ValueError:
            raise UsageProblem(
                "bad-setting", f"{name}={text} is not a number", remedy=f"--set {name}={default}"
            ) from None
    return text
