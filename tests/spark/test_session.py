"""The settings that Spark is started with."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.spark.session import OWN_JAR, default_conf

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


@pytest.mark.parametrize("master", ["local[*]", "spark://127.0.0.1:7077", "spark://far.example:7077", "yarn"])
def test_every_default_is_explained(master: str) -> None:
    """The reference page names each setting that Headwater chooses."""
    explained = DOCUMENT.read_text()
    assert [name for name in default_conf(master) if f"`{name}`" not in explained] == []


def test_a_cluster_elsewhere_must_reach_the_driver() -> None:
    """Only a master on this machine keeps the driver on the loopback interface."""
    assert default_conf("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert default_conf("spark://127.0.0.1:1")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in default_conf("spark://far.example:1")


def test_the_session_has_them(headwater_spark: SparkSession) -> None:
    """A started session has the defaults, and what was asked for instead of them."""
    conf = {name: headwater_spark.conf.get(name, None) for name in default_conf("local[2]")}
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.shuffle.partitions"] == "2", "the fixture's own"
    assert "RocksDB" in conf["spark.sql.streaming.stateStore.providerClass"]
    assert conf["spark.ui.enabled"] == "false"
    assert (
        headwater_spark.sql("SELECT make_timestamp(2024, 1, 1, 0, 0, 0)").collect()[0][0].isoformat()[:10]
        == "2024-01-01"
    )


def test_the_jar_is_made_of_its_source() -> None:
    """After a change of the source, python scripts/build_jar.py makes the jar anew."""
    sources = sorted(OWN_JAR.with_name("java").rglob("*.java"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    with zipfile.ZipFile(OWN_JAR) as jar:
        assert jar.read("META-INF/source.sha256").decode() == digest


def test_files_get_their_permissions_without_a_shell(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Files, folders and checksum files have the permissions that they are created with, sticky bits included."""
    jvm = headwater_spark._jvm
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop.fs
    conf = headwater_spark._jsc.hadoopConfiguration()
    files = hadoop.FileSystem.get(jvm.java.net.URI("file:///"), conf)
    assert files.getClass().getName() == "headwater.hadoop.ShellFreeLocalFileSystem"

    def mode(name: str) -> str:
        return stat.filemode((tmp_path / name).stat().st_mode)

    def permission(text: str) -> object:
        return hadoop.permission.FsPermission.valueOf(text)

    made = hadoop.Path(str(tmp_path / "made"))
    files.create(made, True).close()
    assert (mode("made"), mode(".made.crc")) == ("-rw-r--r--", "-rw-r--r--")
    files.setPermission(made, permission("-rw-r-x---"))
    assert mode("made") == "-rw-r-x---"
    files.mkdirs(hadoop.Path(str(tmp_path / "folder")), permission("-rwxr-x---"))
    assert mode("folder") == "drwxr-x---"
    files.setPermission(hadoop.Path(str(tmp_path / "folder")), permission("-rwxrwxrwt"))
    assert mode("folder") == "drwxrwxrwt"
