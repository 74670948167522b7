"""The settings with which Spark starts."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.jars.own_jar import HEADWATER_JAR
from headwater.spark.session import default_conf

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


@pytest.mark.parametrize("master", ["local[*]", "spark://127.0.0.1:7077", "spark://far.example:7077", "yarn"])
def test_every_default_is_explained(master: str) -> None:
    """The configuration reference names each of Headwater's default settings."""
    page = DOCUMENT.read_text()
    assert [name for name in default_conf(master) if f"`{name}`" not in page] == []


def test_a_remote_cluster_can_reach_the_driver() -> None:
    """The driver is bound to the loopback interface only if the master is on this machine."""
    assert default_conf("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert default_conf("spark://127.0.0.1:1")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in default_conf("spark://far.example:1")


def test_the_session_has_them(headwater_spark: SparkSession) -> None:
    """A session has the defaults, except where the caller overrides them."""
    conf = {name: headwater_spark.conf.get(name, None) for name in default_conf("local[2]")}
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.shuffle.partitions"] == "2", "set by the fixture"
    assert "RocksDB" in conf["spark.sql.streaming.stateStore.providerClass"]
    assert conf["spark.ui.enabled"] == "false"
    assert (
        headwater_spark.sql("SELECT make_timestamp(2024, 1, 1, 0, 0, 0)").collect()[0][0].isoformat()[:10]
        == "2024-01-01"
    )


def test_the_jar_is_built_from_its_sources() -> None:
    """The jar matches the sources of its classes and workers; python scripts/build_jar.py rebuilds it after a change."""
    workers = sorted(HEADWATER_JAR.with_name("workers").glob("*.py"))
    sources = [*sorted(HEADWATER_JAR.with_name("java").rglob("*.java")), *workers]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    with zipfile.ZipFile(HEADWATER_JAR) as jar:
        assert jar.read("META-INF/source.sha256").decode() == digest


def test_permissions_are_set_without_a_shell(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Files, folders and checksum files get the permissions they are created with, including sticky bits."""
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

    created = hadoop.Path(str(tmp_path / "file"))
    files.create(created, True).close()
    assert (mode("file"), mode(".file.crc")) == ("-rw-r--r--", "-rw-r--r--")
    files.setPermission(created, permission("-rw-r-x---"))
    assert mode("file") == "-rw-r-x---"
    files.mkdirs(hadoop.Path(str(tmp_path / "folder")), permission("-rwxr-x---"))
    assert mode("folder") == "drwxr-x---"
    files.setPermission(hadoop.Path(str(tmp_path / "folder")), permission("-rwxrwxrwt"))
    assert mode("folder") == "drwxrwxrwt"


def test_hadoop_settings_without_unused_defaults(headwater_spark: SparkSession) -> None:
    """Hadoop's settings lack the defaults of MapReduce and YARN; all others stay, and so does what a user sets."""
    settings = headwater_spark.sparkContext._jsc.hadoopConfiguration()
    assert settings.get("yarn.resourcemanager.webapp.address") is None
    assert settings.get("fs.s3a.impl")
    copy = headwater_spark._jvm.org.apache.hadoop.conf.Configuration()
    copy.set("mapreduce.job.maps", "7")
    assert copy.get("yarn.resourcemanager.webapp.address")
    removed = headwater_spark._jvm.headwater.hadoop.UnusedDefaults.remove(copy)
    assert removed > 500
    assert copy.get("mapreduce.job.maps") == "7"
    assert copy.get("yarn.resourcemanager.webapp.address") is None
