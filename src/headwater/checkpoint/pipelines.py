"""Declarative pipelines of Spark (``spark-pipelines``): where the checkpoints of a pipeline's flows are, and their names.

A pipeline has a storage folder, with the checkpoint of each streaming flow in
``_checkpoints/CATALOG/DATABASE/TABLE/FLOW/N``; a flow into a sink has the sink's name instead of the table's three parts.
The highest N is the one in use: a full refresh of the table leaves the others behind and starts with the next number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import is_checkpoint, join
from headwater.checkpoint.locate import open_files
from headwater.core.errors import CheckpointUnreadable, UsageProblem

FLOWS = "_checkpoints"
MOST_PARTS = 5
_FLOW = re.compile(
    rf"(?:(?P<storage>.*)/)?{FLOWS}/(?P<parts>[^/]+(?:/[^/]+){{1,{MOST_PARTS - 1}}})/(?P<version>[0-9]+)/*"
)
_SPEC_ENDINGS = (".yml", ".yaml")
_STORAGE = re.compile(
    r"""^storage:[ \t]+(?:(?P<quote>["'])(?P<quoted>[^"'\n]+)(?P=quote)|(?P<plain>[^"'#\s]\S*))[ \t]*(?:\#.*)?$""",
    re.MULTILINE,
)


@dataclass(frozen=True, order=True)
class Flow:
    """A streaming flow: the name of the table or sink that it writes to, in parts, its own name, and its checkpoint."""

    target: tuple[str, ...]
    name: str
    version: int = 0

    @property
    def table(self) -> str:
        """The full name of the table, such as ``spark_catalog.default.sales``, or the name of a sink."""
        return ".".join(self.target)

    @property
    def path(self) -> str:
        """The path of the checkpoint in the storage folder."""
        return "/".join([FLOWS, *self.target, self.name, str(self.version)])

    @property
    def names(self) -> list[str]:
        """What a user may call the flow, the shortest name first."""
        parts = self.target if self.name == self.target[-1] else (*self.target, self.name)
        return [".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1)]


@dataclass(frozen=True)
class Pipeline:
    """A storage folder and the flows in it, by their shortest unambiguous names."""

    storage: FileTree = field(repr=False, compare=False)
    flows: Mapping[str, Flow]

    @property
    def location(self) -> str:
        return self.storage.location

    def files_of(self, name: str) -> FileTree:
        """Return the checkpoint of a flow. It may be empty, right after a full refresh."""
        return self.storage.subtree(self.flows[name].path)

    def named(self, name: str) -> str:
        """Return the flow that a user names by its name, or by that of its table. Raise ``UsageProblem`` if none or several."""
        found = [own for own, flow in self.flows.items() if own == name or name in flow.names]
        found = found or [own for own, flow in self.flows.items() if name in (flow.table, flow.target[-1])]
        if len(found) == 1:
            return found[0]
        raise UsageProblem(
            "no-flow",
            f"several flows are called {name}" if found else f"there is no flow {name} in {self.location}",
            evidence={"flows": ", ".join(found or self.flows)},
        )


def flow_at(location: str) -> tuple[str, Flow] | None:
    """Return the storage folder and the flow of a checkpoint's location; None if it is not that of a flow."""
    found = _FLOW.fullmatch(location)
    if found is None:
        return None
    *target, name = found["parts"].split("/")
    return found["storage"] or ("." if found["storage"] is None else "/"), Flow(
        tuple(target), name, int(found["version"])
    )


def short_names(flows: Iterable[Flow]) -> dict[str, Flow]:
    """Return flows by the shortest names that no other flow could have."""
    known = list(flows)
    taken = [name for flow in known for name in flow.names]
    chosen = {next((name for name in flow.names if taken.count(name) == 1), flow.path): flow for flow in known}
    return dict(sorted(chosen.items()))


def stream_names(paths: Sequence[str]) -> dict[str, str]:
    """Return what to call the checkpoints at paths below a folder: a flow by its name, ``STORAGE:FLOW`` if it is deeper.

    Checkpoints from before a full refresh are left out. Other checkpoints have their paths as names.
    """
    flows: dict[str, dict[Flow, str]] = {}
    names: dict[str, str] = {}
    for path in paths:
        found = flow_at(path)
        if found is None:
            names[path] = path
        else:
            flows.setdefault("" if found[0] == "." else found[0], {})[found[1]] = path
    for storage, by_flow in flows.items():
        current = {(flow.target, flow.name): flow for flow in sorted(by_flow)}
        for name, flow in short_names(current.values()).items():
            names[by_flow[flow]] = f"{storage}:{name}" if storage else name
    return names


def find_flows(storage: FileTree) -> Iterator[Flow]:
    """Yield the flows in a storage folder, each with the checkpoint that its next run uses."""
    waiting: list[tuple[str, tuple[str, ...]]] = [(FLOWS, ())] if FLOWS in storage.names("").folders else []
    while waiting:
        path, parts = waiting.pop()
        below = storage.names(path).folders
        versions = sorted((int(name) for name in below if name.isdecimal()), reverse=True) if len(parts) > 1 else []
        if any(is_checkpoint(_all(storage, join(path, str(version)))) for version in versions):
            yield Flow(parts[:-1], parts[-1], versions[0])
        elif len(parts) < MOST_PARTS:
            waiting += [(join(path, name), (*parts, name)) for name in sorted(below) if not name.startswith(".")]


def _all(storage: FileTree, folder: str) -> frozenset[str]:
    names = storage.names(folder)
    return names.files | names.folders


def pipeline_in(storage: FileTree) -> Pipeline | None:
    """Return the pipeline that has a storage folder; None if there is no flow in it."""
    flows = short_names(find_flows(storage))
    return Pipeline(storage, flows) if flows else None


def open_pipeline(name: str) -> Pipeline | None:
    """Return the pipeline with this storage folder, or with this spec (``spark-pipeline.yml``); None if it is neither.

    Raise ``CheckpointUnreadable`` for a spec whose pipeline has no flow yet.
    """
    if not name.endswith(_SPEC_ENDINGS) or not Path(name).is_file():
        return pipeline_in(open_files(name))
    storage = storage_of_spec(Path(name))
    found = pipeline_in(open_files(storage))
    if found is None:
        raise CheckpointUnreadable(
            "no-checkpoint",
            f"the pipeline of {name} has no checkpoint of a streaming flow",
            evidence={"storage": storage},
            remedy=f"spark-pipelines run --spec {name}",
        )
    return found


def storage_of_spec(path: Path) -> str:
    """Return the storage folder that a pipeline's spec names, which is a line of its own at the top level of the YAML."""
    try:
        found = _STORAGE.search(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        found = None
    if found is None:
        raise CheckpointUnreadable(
            "bad-pipeline-spec",
            f"{path} does not name the storage folder of a pipeline",
            evidence={"expected": "a line such as storage: file:///data/shop/storage"},
            remedy="give the spec that spark-pipelines runs, or the storage folder itself",
        )
    return found["quoted"] or found["plain"]


def open_flow(name: str) -> FileTree | None:
    """Return the checkpoint of a flow that is named as ``PIPELINE:FLOW``; None if the part before is not a pipeline."""
    place, colon, flow = name.rpartition(":")
    if not colon or not place or "/" in flow:
        return None
    pipeline = open_pipeline(place)
    return None if pipeline is None else pipeline.files_of(pipeline.named(flow))
