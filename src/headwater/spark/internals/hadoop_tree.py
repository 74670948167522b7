"""Small files next to a checkpoint on an object store, through Spark's Hadoop client and its credentials.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it (no Py4J: Spark Connect): a run cannot hold a lease or keep a record on an object store, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import Entry, FileTree, names_by_folder, walk
from headwater.checkpoint.object_tree import unreachable
from headwater.spark.failures import root_cause

Params = ParamSpec("Params")
Result = TypeVar("Result")


def _unreachable_on_error(
    method: Callable[Concatenate[HadoopTree, Params], Result],
) -> Callable[Concatenate[HadoopTree, Params], Result]:
    """Turn an error of the store into ``ServiceUnreachable``."""

    def called(self: HadoopTree, /, *args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return method(self, *args, **kwargs)
        except Py4JJavaError as error:
            raise unreachable(self, root_cause(error)) from error

    return called


def probe(spark: SparkSession) -> bool:
    return getattr(spark, "_jvm", None) is not None


class HadoopTree(FileTree):
    """The part of ``FileTree`` that a running job needs for its record, its lease and its restore points."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        assert spark._jvm is not None
        self._jvm: Any = spark._jvm
        self._root = root.rstrip("/")
        self._conf: Any = spark._jsc.hadoopConfiguration()
        self._system = self._path("").getFileSystem(self._conf)

    @property
    def location(self) -> str:
        return self._root

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:  # noqa: ARG002  the root is Spark's own URI
        return f"{self._root}/{path}" if path else self._root

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.spark_uri(path))

    @_unreachable_on_error
    def read(self, path: str) -> bytes:
        if not self.exists(path):
            raise FileNotFoundError(path)
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    @_unreachable_on_error
    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    @_unreachable_on_error
    def entries(self, folder: str) -> list[Entry]:
        if not self.exists(folder):
            return []
        found = [
            Entry(item.getPath().getName(), item.isDirectory(), item.getLen(), item.getModificationTime())
            for item in self._system.listStatus(self._path(folder))
        ]
        return sorted(found, key=lambda entry: entry.name)

    def tree(self, folder: str) -> dict[str, list[str]]:
        return names_by_folder(path for path, _ in walk(self, folder))

    @_unreachable_on_error
    def write(self, path: str, data: bytes) -> None:
        stream = self._system.create(self._path(path), True)
        stream.write(data)
        stream.close()

    @_unreachable_on_error
    def move(self, source: str, target: str) -> None:
        self._system.rename(self._path(source), self._path(target))

    @_unreachable_on_error
    def copy(self, source: str, target: str) -> None:
        if not self.exists(source):
            raise FileNotFoundError(source)
        old, new = self._path(source), self._path(target)
        # Through the JVM: a file of state may be too large for Python.
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(self._system, old, self._system, new, False, True, self._conf)

    @_unreachable_on_error
    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), False)

    @_unreachable_on_error
    def remove_folder(self, folder: str) -> None:
        self._system.delete(self._path(folder), True)
