"""A job as a value: a plain function, a source, a sink, an output mode and a trigger."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headwater.core.errors import UsageProblem
from headwater.jobs.endpoints import Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Mode: TypeAlias = Literal["append", "complete", "update"]
MODES: tuple[Mode, ...] = ("append", "complete", "update")

StateRow: TypeAlias = dict[str, Any]
Transform: TypeAlias = "Callable[..., DataFrame]"
StateView: TypeAlias = Callable[[list[StateRow]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Job:
    """A streaming job. ``transform`` takes and returns a DataFrame; its keyword-only arguments are the parameters.

    With ``per_batch``, the function receives each micro-batch as a static DataFrame, so no state is kept between
    batches. ``conf`` holds Spark settings that the job needs. ``state_view`` converts the raw rows of custom state
    (``{"var", "key", "value"}``) into rows that readers of the job understand. ``dead_letters`` is the URI of a topic,
    a folder or a table in which late and malformed records are saved.
    """

    name: str
    transform: Transform
    reads: Source
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

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Apply the function with the current settings, to a streaming or a static DataFrame."""
        return self.transform(frame, **self.settings)

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

    def with_settings(self, texts: Mapping[str, str]) -> Job:
        """Return the job with settings from the command line, each converted to the type of the parameter's default."""
        parameters = self.parameters
        chosen = dict(self.settings)
        for name, text in texts.items():
            if name not in parameters:
                raise UsageProblem(
                    "unknown-setting",
                    f"{self.name} has no parameter {name!r}",
                    evidence={"parameters": ", ".join(f"{key}={value}" for key, value in parameters.items()) or "none"},
                    remedy=f"headwater jobs {self.name}",
                )
            chosen[name] = _as_type_of(parameters[name], name, text)
        return replace(self, settings=chosen)


def _as_type_of(default: Any, name: str, text: str) -> Any:
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
