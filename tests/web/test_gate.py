"""Access control of the page."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from nicegui import __version__ as nicegui_version

from broker_support import headwater
from corpus_support import CorpusCheckpoint
from headwater.web.access import AccessPolicy
from headwater.web.gate import Gate
from web.serving import Served, served

Corpus = Callable[[str], CorpusCheckpoint]


@pytest.fixture(scope="module")
def page(corpus: Corpus) -> Iterator[Served]:
    """A read-only page."""
    with served(corpus("aggregation-changelog").path, "--port", 0) as found:
        yield found


def request(page: Served, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path, skip_host="Host" in sent)
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    return answer


def handshake(page: Served, path: str, **headers: str) -> int:
    """Return the status of the opening request of a WebSocket."""
    lines = {"Host": f"127.0.0.1:{page.port}", "Upgrade": "websocket", "Connection": "Upgrade"}
    lines |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"} | headers
    text = f"GET {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", page.port), timeout=60) as connection:
        connection.sendall(text.encode())
        return int(connection.recv(1000).split()[1])


SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


def test_token_sets_a_cookie(page: Served) -> None:
    """The printed URL opens the page and sets a cookie, which is enough from then on."""
    first = request(page, f"/?token={page.token}")
    assert first.status == 200
    cookie = first.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert page.token not in cookie
    assert request(page, "/", Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", SOCKET, f"/_nicegui/{nicegui_version}/static/nicegui.js", "/docs"]
)
def test_no_request_without_the_token(page: Served, path: str) -> None:
    """Every request without the token is answered with 403."""
    assert request(page, path).status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "user@127.0.0.1:{port}", ""]
)
def test_foreign_host_is_refused(page: Served, host: str) -> None:
    """A request with another Host header is refused, even with the token."""
    assert request(page, f"/?token={page.token}", Host=host.format(port=page.port)).status == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.example:{port}"]
)
def test_foreign_origin_is_refused(page: Served, origin: str) -> None:
    """A request from another site is refused, even with the token."""
    assert request(page, f"/?token={page.token}", Origin=origin.format(port=page.port)).status == 403


def test_own_origin_is_accepted(page: Served) -> None:
    """A request from the page itself is accepted."""
    assert request(page, f"/?token={page.token}", Origin=f"http://127.0.0.1:{page.port}").status == 200


def test_websocket_needs_token_host_and_origin(page: Served) -> None:
    """The WebSocket, which carries every event, is protected by the same three checks."""
    allowed = f"{SOCKET}&token={page.token}"
    assert handshake(page, allowed) == 101
    assert handshake(page, SOCKET) == 403
    assert handshake(page, allowed, Origin="http://evil.example") == 403
    assert handshake(page, allowed, Host="evil.example") == 403


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        f"/_nicegui/{nicegui_version}/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        f"/_nicegui/{nicegui_version}/resources/x/%2e%2e/%2e%2e/etc/passwd",
        "/state/0/0/1.changelog",
        "/_headwater/job.json",
    ],
)
def test_no_path_of_the_client_reaches_the_disk(page: Served, path: str) -> None:
    """The path of a URL never gives access to a file of the machine or of the checkpoint."""
    assert request(page, path + f"?token={page.token}").status in {400, 403, 404}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_read_only_page_takes_no_changing_request(page: Served, method: str) -> None:
    """A read-only page accepts no request that could change something."""
    assert request(page, f"/?token={page.token}", method).status in {404, 405}


def test_page_cannot_be_framed(page: Served) -> None:
    """The page cannot be framed by another site, which prevents clickjacking."""
    assert request(page, f"/?token={page.token}").headers["X-Frame-Options"] == "DENY"


def test_listens_on_loopback_only(page: Served) -> None:
    """The kernel lists the port on 127.0.0.1 and on no other address."""
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    if not tables[0].exists():
        pytest.skip("reads /proc/net/tcp, which this system does not have")
    lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    listening, suffix = "0A", f":{page.port:04X}"
    assert [line[1] for line in lines if line[3] == listening and line[1].endswith(suffix)] == [f"0100007F{suffix}"]


@pytest.mark.parametrize("message", ["http.disconnect", "http.request"])
def test_reader_who_leaves_early_is_no_error(message: str) -> None:
    """The framework raises an exception if a browser leaves before the response; other ones are errors."""
    policy = AccessPolicy("secret", "127.0.0.1", 8080)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"token=secret",
        "headers": [(b"host", b"127.0.0.1:8080")],
        "client": ("127.0.0.1", 50_000),
    }

    async def receive() -> dict[str, str]:
        return {"type": message}

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise RuntimeError("No response returned.")

    async def send(_: Any) -> None:
        raise AssertionError("nothing is sent")

    expected = nullcontext() if message == "http.disconnect" else pytest.raises(RuntimeError)
    # In a thread of its own: a browser that other tests have opened keeps an event loop in this one.
    with expected, ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, Gate(respond, policy)(scope, receive, send)).result()


def test_every_page_has_a_token_of_its_own(corpus: Corpus, page: Served) -> None:
    """The token of another page is not accepted."""
    with served(corpus("aggregation-changelog").path, "--port", 0) as other:
        assert other.token != page.token
        assert request(other, f"/?token={page.token}").status == 403


@pytest.mark.parametrize(
    ("host", "authority", "known"),
    [
        ("127.0.0.1", "127.0.0.1:8765", True),
        ("127.0.0.1", "localhost:8765", True),
        ("127.0.0.1", "[::1]:8765", True),
        ("127.0.0.1", "10.0.0.7:8765", False),
        ("127.0.0.1", "127.0.0.1:99999999", False),
        ("box.example", "box.example:8765", True),
        ("box.example", "evil.example:8765", False),
        ("0.0.0.0", "10.0.0.7:8765", True),
        ("0.0.0.0", "evil.example:8765", False),
    ],
)
def test_names_of_the_server(host: str, authority: str, known: bool) -> None:
    """Accepted are the names of loopback and the given host; with 0.0.0.0, any address, but no name."""
    assert AccessPolicy("secret", host, 8765).accepts_host(authority) is known


def test_unknown_checkpoint_is_refused() -> None:
    """A checkpoint that does not exist is an error, not an empty page."""
    ran = headwater("ui", "/no/such/checkpoint")
    assert ran.returncode == 13
    assert "there is no checkpoint at /no/such/checkpoint" in ran.stderr
    assert ran.stdout == ""
