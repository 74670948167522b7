"""A job is a value: a plain function, where it reads, where it writes, its mode and its trigger."""

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
    """``transform`` takes a DataFrame and gives one; its keyword-only arguments are the job's parameters.

    With ``per_batch`` the function gets every micro-batch as a static DataFrame, so nothing is carried over between
    batches. ``conf`` holds Spark settings that the job needs. ``state_view`` turns the raw rows of custom state
    (``{"var", "key", "value"}``) into what the job means by them. ``dead_letters`` is the URI of a topic, a folder or a
    table where records that came too late or could not be decoded are kept.
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
            raise ValueError(f"a job's name becomes a folder: letters, digits, - _ and . only, not {self.name!r}")

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Apply the function with the chosen settings; works on static DataFrames as well."""
        return self.transform(frame, **self.settings)

    @property
    def about(self) -> str:
        """The first sentence of the function's docstring."""
        return (inspect.getdoc(self.transform) or "").split("\n\n")[0].replace("\n", " ")

    @property
    def parameters(self) -> dict[str, Any]:
        """Names and values of what ``--set`` can change: defaults, with the settings chosen so far."""
        signature = inspect.signature(self.transform)
        defaults = {
            name: parameter.default
            for name, parameter in signature.parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        return {**defaults, **self.settings}

    def with_settings(self, texts: Mapping[str, str]) -> Job:
        """Settings as given on a command line; each is read as the type of the parameter's default."""
        known = self.parameters
        chosen = dict(self.settings)
        for name, text in texts.items():
            if name not in known:
                raise UsageProblem(
                    "unknown-setting",
                    f"{self.name} has no parameter {name!r}",
                    evidence={"known": ", ".join(f"{key}={value}" for key, value in known.items()) or "none"},
                    remedy=f"headwater jobs {self.name}",
                )
            chosen[name] = _as_type_of(known[name], name, text)
        return replace(self, settings=chosen)


def _as_type_of(default: Any, name: str, text: str) -> Any:
    if isinstance(default, bool):
        if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        raise UsageProblem("bad-setting", f"{name}={text} is neither true nor false", remedy=f"--set {name}=true")
    if isinstance(default, int | float):
        try:
            return type(default)(text)
        except ValueError:
            raise UsageProblem(
                "bad-setting", f"{name}={text} is not a number", remedy=f"--set {name}={default}"
            ) from None
    return text
