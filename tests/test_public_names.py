"""The public names of the package: a change to them is a change to the API."""

from __future__ import annotations

import importlib
import inspect

import pytest

PUBLIC = {
    "headwater": {
        "Checkpoint",
        "Console",
        "Delta",
        "Files",
        "Iceberg",
        "Job",
        "Kafka",
        "Memory",
        "Postgres",
        "Rate",
        "RunningJob",
        "Socket",
        "Static",
        "Table",
        "__version__",
        "attach",
        "seed",
    },
    "headwater.testing": {"Crash"},
    "headwater.errors": {
        "ChangeRefused",
        "CheckpointBusy",
        "CheckpointUnreadable",
        "HeadwaterError",
        "InternalError",
        "JobFailed",
        "JobRefused",
        "ServiceUnreachable",
        "SetupProblem",
        "UsageProblem",
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_exported_names(module: str) -> None:
    """A module exports exactly its public names, sorted."""
    exported = importlib.import_module(module).__all__
    assert set(exported) == PUBLIC[module]
    assert exported == sorted(exported)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in sorted(names)]
)
def test_names_are_importable_and_documented(module: str, name: str) -> None:
    """Every public name can be imported and has a docstring of its own."""
    found = getattr(importlib.import_module(module), name)
    if name != "__version__":
        text = found.__doc__ if inspect.isfunction(found) else vars(found)["__doc__"]
        assert text
        assert not text.startswith(f"{name}("), "the docstring is the one that dataclass generates"


def test_every_error_class_is_public() -> None:
    """Every direct subclass of HeadwaterError can be imported from headwater.errors."""
    errors = importlib.import_module("headwater.errors")
    kinds = {kind.__name__ for kind in errors.HeadwaterError.__subclasses__()}
    assert kinds == set(errors.__all__) - {"HeadwaterError"}
