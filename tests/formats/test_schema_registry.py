"""The client of a schema registry, against a server on loopback."""

from __future__ import annotations

import json
import threading

import pytest

from broker_support import free_port
from headwater.core.errors import JobRefused, ServiceUnreachable, UsageProblem
from headwater.formats import registry as client
from headwater.formats.registry import LOGIN_VARIABLE, Registry, SchemaNotFound
from registry_support import SchemaRegistry, serving

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def test_schema_is_fetched_once(registry: SchemaRegistry) -> None:
    """A schema is cached by its id; the newest version of a subject is not."""
    number = registry.add("orders-value", ORDER)
    reader = Registry(registry.url + "/")
    assert [json.loads(reader.schema(number).text) for _ in range(3)] == [ORDER] * 3
    assert reader.schema(number).kind == "AVRO"
    assert registry.requests == [f"GET /schemas/ids/{number}"]
    assert [reader.latest("orders-value").schema_id for _ in range(2)] == [number] * 2
    assert len(registry.requests) == 3


def test_names_are_quoted(registry: SchemaRegistry) -> None:
    """A subject may have slashes and spaces in its name."""
    registry.add("a/b c", ORDER)
    assert Registry(registry.url).latest("a/b c").schema_id == 1


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"<html>"), (404, b'{"message": "x"}'), (200, b"<html>"), (200, b"[]")]
)
def test_answer_of_another_server(registry: SchemaRegistry, status: int, body: bytes) -> None:
    """An answer that no registry gives is an error, and not a schema that does not exist."""
    registry.fault = (status, body, {})
    with pytest.raises(ServiceUnreachable) as caught:
        Registry(registry.url).schema(1)
    assert caught.value.code == "registry-answer"
    assert not isinstance(caught.value, SchemaNotFound)


@pytest.mark.parametrize("body", [b"{}", b'{"schema": 5}', b'{"schema": "\\"int\\"", "references": 7}', b"[" * 100_000])
def test_answer_without_a_schema(registry: SchemaRegistry, body: bytes) -> None:
    """An answer of another shape is an error."""
    registry.fault = (200, body, {})
    with pytest.raises(ServiceUnreachable) as caught:
        Registry(registry.url).latest("orders")
    assert caught.value.code == "registry-answer"


def test_huge_answer(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without an end is not read to its end."""
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1000)
    registry.fault = (200, json.dumps({"schema": "x" * 2000}).encode(), {})
    with pytest.raises(ServiceUnreachable, match="unexpected") as caught:
        Registry(registry.url).schema(1)
    assert "more than" in caught.value.evidence["reason"]


def test_unknown_id_and_subject(registry: SchemaRegistry) -> None:
    """A registry that does not have a schema is told apart from one that does not answer."""
    with pytest.raises(SchemaNotFound, match="schema 7"):
        Registry(registry.url).schema(7)
    with pytest.raises(SchemaNotFound, match="subject orders"):
        Registry(registry.url).latest("orders")


def test_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is not running is reported at once, without its password."""
    monkeypatch.setattr(client, "time", None)  # it would sleep before another attempt
    with pytest.raises(ServiceUnreachable) as caught:
        Registry(f"http://ann:secret@127.0.0.1:{free_port()}").schema(1)
    assert caught.value.code == "registry-unreachable"
    assert "secret" not in str(caught.value)


def test_temporary_errors_are_retried(registry: SchemaRegistry) -> None:
    """A running batch outlives a short failure of the registry, and fails if it lasts."""
    number = registry.add("orders-value", ORDER)
    registry.fault = (503, b"", {})
    with pytest.raises(ServiceUnreachable) as caught:
        Registry(registry.url, patience=(0.01, 0.01)).schema(number)
    assert caught.value.code == "registry-answer"
    assert len(registry.requests) == 3
    threading.Timer(0.2, lambda: setattr(registry, "fault", None)).start()
    assert Registry(registry.url, patience=[0.05] * 2000).schema(number).text


def test_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The login comes from the URL, or from the environment for the same server only."""
    with serving(login="ann:se/cret") as registry, serving() as other:
        registry.add("orders-value", ORDER)
        address = registry.url.removeprefix("http://")
        with pytest.raises(ServiceUnreachable) as caught:
            Registry(registry.url).schema(1)
        assert caught.value.code == "registry-login-failed"
        assert Registry(f"http://ann:se%2Fcret@{address}").schema(1)
        monkeypatch.setenv(LOGIN_VARIABLE, f"http://ann:se%2Fcret@{address}")
        assert Registry(registry.url).schema(1)
        assert Registry(f"http://ann:***@{address}").schema(1)
        assert Registry(other.url)._headers == {}


def test_redirect_keeps_the_login_at_its_server(registry: SchemaRegistry) -> None:
    """A redirect is followed, and the login does not go to another server."""
    registry.add("orders-value", ORDER)
    with serving() as front:
        front.fault = (302, b"", {"Location": f"{registry.url}/schemas/ids/1"})
        address = front.url.removeprefix("http://")
        registry.login = "ann:secret"
        with pytest.raises(ServiceUnreachable) as caught:
            Registry(f"http://ann:secret@{address}").schema(1)
        assert caught.value.code == "registry-login-failed"
        registry.login = None
        assert Registry(f"http://ann:secret@{address}").schema(1)
        front.fault = (302, b"", {"Location": f"{front.url}/schemas/ids/1"})
        with pytest.raises(ServiceUnreachable, match="unexpected"):
            Registry(front.url).schema(1)


def test_registering(registry: SchemaRegistry) -> None:
    """A schema is registered once; an incompatible one is refused with the registry's reason."""
    writer = Registry(registry.url)
    numbers = [writer.register("orders-value", json.dumps(ORDER)) for _ in range(3)]
    assert numbers == [1, 1, 1]
    assert registry.requests == ["POST /subjects/orders-value/versions"]
    other = {**ORDER, "fields": [{"name": "id", "type": "long"}]}
    with pytest.raises(JobRefused, match="refused a schema") as caught:
        writer.register("orders-value", json.dumps(other))
    assert "incompatible" in caught.value.evidence["reason"]


def test_references_come_first(registry: SchemaRegistry) -> None:
    """The schemas that a schema needs are collected in the order of need, each once."""
    registry.add("money", {"type": "record", "name": "Money", "fields": []})
    registry.add("line", {"type": "record", "name": "Line", "fields": []}, references=[_reference("Money", "money")])
    registry.add("order", ORDER, references=[_reference("Line", "line"), _reference("Money", "money")])
    reader = Registry(registry.url)
    assert [name for name, _ in reader.with_references(reader.latest("order"))] == ["Money", "Line", ""]


def test_references_in_a_circle(registry: SchemaRegistry) -> None:
    """Schemas that refer to each other are refused."""
    registry.add("a", {"type": "record", "name": "A", "fields": []}, references=[_reference("B", "b")])
    registry.add("b", {"type": "record", "name": "B", "fields": []}, references=[_reference("A", "a")])
    reader = Registry(registry.url)
    with pytest.raises(ServiceUnreachable, match="unexpected"):
        reader.with_references(reader.latest("a"))


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "ftp://h", "http://", "http://h:x", "http://h/?a=b", "file:///etc"])
def test_invalid_urls(url: str) -> None:
    """Only a base URL with http or https is a registry."""
    with pytest.raises(UsageProblem) as caught:
        Registry(url)
    assert caught.value.code == "bad-registry"


def _reference(name: str, subject: str) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": 1}
