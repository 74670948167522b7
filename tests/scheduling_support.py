"""Which process of `pytest -n 2` runs which file: one of them runs those that need a server, so that few start one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SERVERS = re.compile(r"\b(broker|secured_broker|postgres|s3|browser): [A-Z]|getfixturevalue\(")


@cache
def needs_server(file: Path) -> bool:
    """Return whether a test in the file has a parameter named like a fixture that starts a server or a browser."""
    return bool(SERVERS.search(file.read_text("utf-8")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out files as `--dist loadfile` does, in an order that depends on the process."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FilesByServer(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            has_servers = node is self.nodes[0]
            for file in self.workqueue:
                if needs_server(config.rootpath / file) is has_servers:
                    self.workqueue.move_to_end(file, last=False)
                    break
            super()._assign_work_unit(node)

    return FilesByServer(config, log)
