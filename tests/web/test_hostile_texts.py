"""Texts in a checkpoint that are meant to be run by the browser of a reader."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from playwright.sync_api import Browser, expect

from fleet.streams import write_stream
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.change import Change
from headwater.timemachine.journal import Entry, write_entry
from headwater.views.fork_comparison import ComparedStream, compare_fork
from headwater.views.page_events import Events, timeline_marks
from headwater.web.timeline_charts import fork_timeline
from headwater.web.widgets import mark
from web.serving import opened, served

IMAGE = "<img src=x onerror='window.ran = true'>"
VERB = f'x" innerHTML="{IMAGE}'


def change(verb: str) -> Change:
    return Change("1", verb, f"{IMAGE} of batch 7", (), details={"added": [7]})


def test_verb_in_the_journal(tmp_path: Path, browser: Browser) -> None:
    """A verb in the journal is shown as a text, and gives an element no other attribute."""
    path = write_stream(tmp_path / "stream")
    write_entry(LocalTree(path), change(VERB), 1)
    with served(path, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        event = page.locator("[data-event]")
        expect(event).to_contain_text(f"{VERB}: {IMAGE} of batch 7")
        expect(event).to_have_attribute("data-event", "change")
        assert page.evaluate("window.ran") is None


def test_labels_of_changes() -> None:
    """Only verbs of Headwater are labels of pins."""
    labels = {
        verb: timeline_marks([], {}, Events(journal=[Entry(1, 1, change(verb))]))[7][0].label
        for verb in ("edit", "migrate", VERB)
    }
    assert labels == {"edit": "edit", "migrate": "migrate", VERB: "change"}


def test_attribute_with_any_text() -> None:
    """The text of an attribute is not parsed, and only a new one is sent to the browser."""
    sent: list[str] = []

    class Props(dict[str, str]):
        def __setitem__(self, name: str, value: str) -> None:
            sent.append(value)
            super().__setitem__(name, value)

    element = SimpleNamespace(props=Props())
    for text in (VERB, VERB, 7):
        mark(element, "data-event", text)
    assert (element.props, sent) == ({"data-event": "7"}, [VERB, "7"])


def test_names_of_forks(tmp_path: Path, browser: Browser) -> None:
    """The tooltip of a fork and its original has their names as text."""
    batches = History(LocalTree(write_stream(tmp_path))).batches()
    stream = ComparedStream(IMAGE, tuple(batches), {})
    options = fork_timeline(compare_fork(stream, stream, 1, None), "rows")
    page = browser.new_page()
    try:
        shown = page.evaluate(options["tooltip"][":formatter"], {"data": [], "seriesName": IMAGE, "value": [0, 1234]})
        assert "<img" not in shown
        page.set_content(shown)
        assert page.inner_text("body") == f"{IMAGE}\n1970-01-01 00:00:00 UTC: 1,234"
    finally:
        page.close()
