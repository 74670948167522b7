"""Results as HTML for notebooks: complete, escaped, and bounded in size."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cli.running import Command
from corpus_support import CorpusCheckpoint, corpus_names, load
from headwater import Checkpoint
from headwater.core.finding import Finding
from headwater.results import BatchList, DroppedRecordList, FindingList
from headwater.spark.dropped.records import DroppedRecord
from headwater.views.html import SHOWN_ROWS, arrow_html
from headwater.views.plans import rewind_text, undo_text
from headwater.views.table_label import TableLabel

Corpus = Callable[[str], CorpusCheckpoint]
SCRIPT = "<script>alert('x')</script>"


class _Tags(HTMLParser):
    """Checks that tags are closed in order, and collects them and the text of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def parsed(text: str | None) -> _Tags:
    """Return the parts of an HTML text that is well formed and has no script, style sheet, color or link."""
    assert text is not None
    tags = _Tags()
    tags.feed(text)
    tags.close()
    assert not tags.open
    assert tags.seen <= {"div", "p", "b", "code", "table", "thead", "tbody", "tr", "th", "td"}
    assert tags.attributes <= {"style"}
    assert not re.search(r"color|background|url\(", text.replace("color:inherit", ""))
    return tags


def visible(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


def state_of(values: list[str]) -> pa.Table:
    rows = pa.table(
        {
            "key": [{"user": value} for value in values],
            "value": [{"note": value} for value in values],
            "partition_id": pa.array([0] * len(values), pa.int32()),
        }
    )
    return TableLabel("state", 0, "default", None, (3,)).attach(rows)


def test_values_are_escaped() -> None:
    """Text from users never becomes markup: in states, records, findings and paths."""
    record = DroppedRecord(1, "late", "files", {"path": SCRIPT, "line": 3}, SCRIPT, None, None, SCRIPT)
    shown = [
        arrow_html(state_of([SCRIPT])),
        DroppedRecordList([record])._repr_html_(),
        FindingList([Finding("error", "x", SCRIPT, SCRIPT)])._repr_html_(),
    ]
    for text in shown:
        assert parsed(text).rows
        assert SCRIPT not in str(text)
        assert SCRIPT in visible(str(text))


def test_a_folder_name_is_escaped(tmp_path: Path) -> None:
    """A checkpoint in a folder with a hostile name, and the plan to rewind it, are shown as text."""
    path = load("kafka-changelog", tmp_path).path.rename(tmp_path / "<img src=x>")
    checkpoint = Checkpoint(path)
    for text in (checkpoint._repr_html_(), checkpoint.plan_rewind(to=4)._repr_html_()):
        parsed(text)
        assert str(path) in visible(text)


def test_number_of_rows_is_bounded() -> None:
    """A long table shows its first rows and how many are left; batches show the newest."""
    table = state_of([f"user {number:04}" for number in range(5_000)])
    text = arrow_html(table)
    tags = parsed(text)
    assert len(tags.rows) == SHOWN_ROWS + 1
    assert "… 4,950 more" in str(text)
    assert len(str(text)) < 50_000


def test_long_values_are_cut() -> None:
    """A value of a megabyte does not make the notebook a megabyte longer."""
    assert len(str(arrow_html(state_of(["x" * 1_000_000])))) < 5_000


def test_newest_batches_are_shown(corpus: Corpus) -> None:
    """Of many batches the newest are shown."""
    batches = Checkpoint(corpus("kafka-changelog").path).batches
    tags = parsed(BatchList(list(batches) * 10)._repr_html_())
    assert [row[0] for row in tags.rows[1:]] == [str(number % 10) for number in range(SHOWN_ROWS)]
    assert "… 50 earlier" in BatchList(list(batches) * 10)._repr_html_()


@pytest.mark.parametrize(
    "name", [name for name in corpus_names() if re.fullmatch(r"[a-z-]+-changelog|[a-z]+\d*", name)]
)
def test_every_checkpoint_can_be_shown(corpus: Corpus, name: str) -> None:
    """Checkpoint, batches, and the states and changes of every store are shown, whatever query wrote them."""
    checkpoint = Checkpoint(corpus(name).path)
    batches = checkpoint.batches
    parsed(checkpoint._repr_html_())
    assert len(parsed(batches._repr_html_()).rows) == 1 + len(batches)
    parsed(batches[0]._repr_html_())
    source = checkpoint._state(None, None, None, None)
    last = source.reader.readable()[-1:]
    for target in (target for batch in last for target in source.reader.targets(batch)):
        place = {"operator": target.operator_id, "store": target.store, "var": target.var}
        state = checkpoint.state(last[0], **place)
        tags = parsed(arrow_html(state))
        assert len(tags.rows) == (min(state.num_rows, SHOWN_ROWS) + 1 if state.num_rows else 0)
        parsed(arrow_html(checkpoint.diff(source.reader.readable()[0], last[0], **place)))


def test_state_shows_the_cells_of_the_command(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A state, a diff and a key's history have the columns and rows that the commands print."""
    path = corpus("aggregation-changelog").path
    checkpoint = Checkpoint(path)
    shown = {
        "state": (checkpoint.state(at=4), ("--at", "4")),
        "diff": (checkpoint.diff(1, 4), ("1", "4")),
        "history": (checkpoint.key_history({"user": "bob"}), ("--key", "user=bob")),
    }
    command = Command(monkeypatch, capsys)
    for verb, (table, options) in shown.items():
        head, _, *printed = command(verb, path, *options).out.rstrip().splitlines()[-2 - table.num_rows :]
        tags = parsed(arrow_html(table))
        assert " ".join(tags.rows[0]).split() == head.split()
        assert [" ".join(row).split() for row in tags.rows[1:]] == [line.split() for line in printed[:SHOWN_ROWS]], verb


def test_captions(corpus: Corpus) -> None:
    """The caption names operator, store and batch; a derived table shows how many rows are left."""
    checkpoint = Checkpoint(corpus("aggregation-changelog").path)
    state = checkpoint.state(at=4)
    assert f"State of operator 0, store default, after batch 4: {state.num_rows} rows" in str(arrow_html(state))
    assert f"after batch 4: 2 of {state.num_rows} rows" in str(arrow_html(state.slice(0, 2)))
    assert "batch 4" not in str(arrow_html(pa.concat_tables([state, checkpoint.state(at=5)])))
    assert "Changes of operator 0, store default, batch 1 to 4: +" in str(arrow_html(checkpoint.diff(1, 4)))
    derived = state.filter(pc.field("key", "user") == "nobody")
    assert f"0 of {state.num_rows} rows" in str(arrow_html(derived))
    for other in (state.select(["key"]), state.flatten(), state.drop_columns(["partition_id"])):
        assert len(parsed(arrow_html(other)).rows) == state.num_rows + 1


def test_other_tables_are_left_alone() -> None:
    """A table that does not come from a checkpoint, or whose label is damaged, is not Headwater's to show."""
    table = pa.table({"a": [1]})
    assert arrow_html(table) is None
    for damaged in (b"{", b"[]", b'{"batches": [1]}', b"\xff"):
        assert arrow_html(table.replace_schema_metadata({b"headwater": damaged})) is None


def test_plans(tmp_path: Path) -> None:
    """A plan shows the facts and warnings that the terminal shows, and that nothing has changed; then what was done."""
    checkpoint = Checkpoint(load("kafka-changelog", tmp_path).path)
    rewind = checkpoint.plan_rewind(to=4)
    text = rewind_text(rewind)
    rows = parsed(rewind._repr_html_()).rows
    assert rows == [list(fact) for fact in text.facts]
    assert all(warning in visible(rewind._repr_html_()) for warning in (text.title, *text.warnings))
    assert ".apply()" in rewind._repr_html_()
    assert "Done: rewind to batch 4" in visible(rewind.apply()._repr_html_())
    undo = checkpoint.undo()
    assert parsed(undo._repr_html_()).rows == [list(fact) for fact in undo_text(undo).facts]
    assert "Done: undo the rewind" in visible(undo.apply()._repr_html_())
    fork = checkpoint.fork(tmp_path / "fork", at=4)._repr_html_()
    assert "at batch 4 into" in visible(fork)
    assert ["partitions", "5 instead of 2"] in parsed(checkpoint.repartition(5)._repr_html_()).rows


def test_records_of_named_sources_and_bytes() -> None:
    """Records show the name of their source if it has one, and bytes in base64."""
    position = {"topic": "clicks", "partition": 0, "offset": 7}
    detail = "not a valid avro record"
    named = DroppedRecord(
        1, "malformed", "kafka", position, None, None, None, detail, source="clicks", value_base64="AAE="
    )
    rows = parsed(DroppedRecordList([named])._repr_html_()).rows
    assert rows[1] == ["1", "malformed", "clicks", "clicks[0]@7", "AAE=", detail]


def test_empty_results() -> None:
    """Nothing to show is said in words."""
    assert "No findings" in FindingList()._repr_html_()
    assert "0 late, 0 malformed" in DroppedRecordList()._repr_html_()
    assert "0 batches" in BatchList()._repr_html_()
