"""Work that takes minutes, such as a command that starts Spark, in threads of its own.

In the threads that all readers share, a few such requests would stop the state panes and log-ins of everyone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

THREADS = 2
_executor = ThreadPoolExecutor(THREADS, thread_name_prefix="headwater slow")
Parameters = ParamSpec("Parameters")
Found = TypeVar("Found")


class SlowRuns:
    """The slow work of one reader, one run at a time."""

    def __init__(self) -> None:
        self._one_run = asyncio.Lock()

    async def run(
        self,
        is_wanted: Callable[[], bool],
        function: Callable[Parameters, Found],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Found | None:
        """Return the result of a function; None if nobody wants it any more when its turn has come."""
        async with self._one_run:
            return await asyncio.get_running_loop().run_in_executor(
                _executor, lambda: function(*args, **kwargs) if is_wanted() else None
            )
