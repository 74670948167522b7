"""Run functions in threads and return their results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

Result = TypeVar("Result")


def in_order(functions: Iterable[Callable[[], Result]], workers: int | None = None) -> Iterator[Result]:
    """Yield the results of functions in their order. If there are several, a few run ahead, in threads.

    Decompression, numpy and Arrow do their work without Python's lock, so that threads use several cores.
    """
    source = iter(functions)
    first = list(islice(source, 2))
    workers = min(4, os.cpu_count() or 1) if workers is None else workers
    if len(first) < 2 or workers < 2:
        yield from (function() for function in chain(first, source))
        return
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415  not needed for small states

    with ThreadPoolExecutor(workers, thread_name_prefix="headwater-state") as pool:
        running: deque[Future[Result]] = deque()
        try:
            for function in chain(first, source):
                running.append(pool.submit(function))
                if len(running) > workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()
