"""Cutting compacted logs: afterwards Spark reads exactly what was kept."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given, reject
from hypothesis import strategies as st

from headwater.checkpoint.file_logs import LogNames
from headwater.timemachine.compacted_log import (
    cut_log,
    empty_log,
    ids_that_spark_reads,
    interval_of,
    needs_rebuilding,
    with_crc,
)


class SparkLog:
    """A model of Spark's compactible log as a dictionary of names to ids, to test cuts against."""

    def __init__(self, setting: int, files: dict[str, list[int]] | None = None) -> None:
        self.setting = setting
        self.files = dict(files or {})
        self.interval = interval_of(self._compact_ids(), setting)

    def _compact_ids(self) -> list[int]:
        return sorted(int(name.removesuffix(".compact")) for name in self.files if name.endswith(".compact"))

    @property
    def latest(self) -> int:
        return max((int(name.removesuffix(".compact")) for name in self.files), default=-1)

    def _name(self, number: int) -> str:
        return f"{number}.compact" if (number + 1) % self.interval == 0 else str(number)

    def add(self, retained: int) -> None:
        number = self.latest + 1
        held = [number]
        if (number + 1) % self.interval == 0:
            before = range(max(0, number - self.interval), number)
            held = [entry for earlier in before for entry in self.files[self._name(earlier)]] + held
        self.files[self._name(number)] = held
        oldest = number + 1 - retained
        if self.interval <= oldest:
            expired = oldest - oldest % self.interval - 1
            self.files = {
                name: ids for name, ids in self.files.items() if int(name.removesuffix(".compact")) >= expired
            }

    def everything(self) -> list[int]:
        ids = ids_that_spark_reads(self._compact_ids(), self.latest, self.setting) if self.files else ()
        return [entry for number in ids for entry in self.files[self._name(number)]]


def content(number: int, compact: bool) -> bytes:
    return ",".join(map(str, range(number + 1) if compact else [number])).encode()


@given(
    setting=st.sampled_from([2, 3, 4, 5, 10]),
    runs=st.lists(st.integers(1, 35), min_size=1, max_size=4),
    retained=st.sampled_from([1, 2, 5, 100]),
    share=st.floats(0, 1),
)
@example(setting=5, runs=[11, 4, 35], retained=1, share=0.9375)
def test_spark_reads_exactly_what_was_kept(setting: int, runs: list[int], retained: int, share: float) -> None:
    """For any interval, cleanup and restarts: after a cut Spark starts, and reads exactly the entries that were kept."""
    log = SparkLog(setting)
    try:
        for length in runs:
            log = SparkLog(setting, log.files)
            for _ in range(length):
                log.add(retained)
        log = SparkLog(setting, log.files)
        log.everything()
    except KeyError:
        reject()  # Spark itself cannot continue such a log: from one compacted file it derives a wrong interval
    last_kept = int((log.latest + 1) * share) - 1
    names = LogNames.of(log.files)
    rebuild = needs_rebuilding(names, last_kept)
    cut = cut_log(names, last_kept, content if rebuild else None)
    kept = {name: ids for name, ids in log.files.items() if name not in cut.aside}
    written = {name: [int(part) for part in data.decode().split(",")] for name, data in cut.written.items()}
    assert not kept.keys() & written.keys()
    after = SparkLog(setting, kept | written)
    assert after.everything() == list(range(last_kept + 1))
    for _ in range(25):
        after.add(retained=100)
    assert SparkLog(setting, after.files).everything() == list(range(last_kept + 26))


def cut_to(last_kept: int, *held: str) -> tuple[list[str], list[str]]:
    names = LogNames.of(held)
    make: Callable[[int, bool], bytes] | None = content if needs_rebuilding(names, last_kept) else None
    cut = cut_log(names, last_kept, make)
    return list(cut.aside), list(cut.written)


def test_a_complete_log_is_only_shortened() -> None:
    """If a log has all files that it needs, newer ones are set aside and nothing is written."""
    assert cut_to(6, *map(str, range(9)), "9.compact", "10") == (["7", "8", "9.compact", "10"], [])
    assert cut_to(12, "9.compact", "10", "11", "12", "13") == (["13"], [])
    assert cut_to(-1, "0", "1") == (["0", "1"], [])


def test_a_cleaned_log_is_rebuilt_under_the_old_names() -> None:
    """With Spark's default interval the compacted file gets its old name."""
    held = ("19.compact", "20", "21", "29.compact", "30")
    assert cut_to(13, *held) == (list(held), ["9.compact", "10", "11", "12", "13"])
    assert cut_to(4, *held) == (list(held), ["0", "1", "2", "3", "4"])
    assert cut_to(19, *held) == (["20", "21", "29.compact", "30"], [])


def test_an_unknown_interval_is_rebuilt_at_the_last_id() -> None:
    """If the interval is unknown, the compacted file is written at the last id, which works with any interval."""
    assert cut_to(7, "11.compact", "12") == (["11.compact", "12"], ["7.compact"])


def test_a_rebuilt_log_keeps_its_interval() -> None:
    """Two compacted files are written, so that Spark derives the same interval."""
    assert cut_to(27, "29.compact", "39.compact") == (
        ["29.compact", "39.compact"],
        ["9.compact", "19.compact", *map(str, range(20, 28))],
    )


def test_a_cut_that_would_change_the_interval_rebuilds_the_log() -> None:
    """From 39.compact alone, a Spark with a setting of 5 would derive an interval of 5 and look for 44.compact."""
    held = ("39.compact", *map(str, range(40, 49)), "49.compact")
    assert cut_to(45, *held) == (["46", "47", "48", "49.compact", "39.compact"], ["29.compact", "39.compact"])
    assert cut_to(39, *held) == ([*map(str, range(40, 49)), "49.compact"], [])


def test_with_crc_takes_the_checksum_along() -> None:
    """A file and its Hadoop checksum are set aside together."""
    assert with_crc(["5", "6"], ["5", ".5.crc", "6", ".7.crc"]) == ["5", ".5.crc", "6"]


@given(
    setting=st.sampled_from([2, 3, 4, 5, 10]),
    ran=st.integers(1, 60),
    retained=st.sampled_from([25, 100]),
    last=st.integers(0, 59),
)
def test_spark_continues_the_empty_log_of_a_fork(setting: int, ran: int, retained: int, last: int) -> None:
    """The new sink of a fork has a log in which the earlier batches wrote nothing."""
    if last >= ran:
        reject()
    original = SparkLog(setting)
    for _ in range(ran):
        original.add(retained)
    fork = SparkLog(setting, {name: [] for name in empty_log(LogNames.of(original.files), last, b"")})
    assert fork.latest == last
    for _ in range(25):
        fork.add(retained)
    assert fork.everything() == list(range(last + 1, last + 26))


@given(setting=st.sampled_from([3, 10, 100]), last=st.integers(9, 60))
def test_an_empty_log_where_no_other_is_known(setting: int, last: int) -> None:
    """Without another log as a model, a compacted file at the last id works with any interval."""
    fork = SparkLog(setting, {name: [] for name in empty_log(LogNames({}), last, b"")})
    for _ in range(25):
        fork.add(retained=100)
    assert fork.everything() == list(range(last + 1, last + 26))
