"""A loopback proxy in front of an S3 server that delays requests and answers some of them with an error."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}
SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


@dataclass
class Faults:
    """The share of errors and the delay of the proxy, and how many requests it refused and passed."""

    error_rate: float = 0.0
    delay_seconds: float = 0.0
    refused: int = 0
    passed: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(5))


@contextmanager
def faulty_proxy(target: str) -> Iterator[tuple[str, Faults]]:
    """Yield the proxy's address and its faults, which can be changed at any time."""
    faults, upstream = Faults(), urlsplit(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(faults.delay_seconds)
            if faults.rng.random() < faults.error_rate:
                faults.refused += 1
                self._reply(503, {"Content-Type": "application/xml"}, SLOW_DOWN)
                return
            faults.passed += 1
            connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            headers = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
            length = response.getheader("Content-Length")
            self._reply(response.status, headers, response.read(), length if self.command == "HEAD" else None)
            connection.close()

        def _reply(self, status: int, headers: dict[str, str], body: bytes, length: str | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", faults
    finally:
        server.shutdown()
        server.server_close()
