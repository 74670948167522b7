"""A schema registry for tests: Confluent's REST interface, served on loopback from the memory of the test process."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

from headwater.formats.registry import registry_at

Answer = tuple[int, dict[str, Any]]


@dataclass
class SchemaRegistry:
    """The contents of a running registry, and how it answers."""

    url: str
    subjects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fault: tuple[int, bytes, dict[str, str]] | None = None
    """Status, body and headers of every answer, instead of the real ones."""
    only_fault: str | None = None
    """Requests of paths that start with this are answered with status 503."""
    login: str | None = None

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Register a schema without a check of its compatibility; return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        versions = self.subjects.setdefault(subject, [])
        for other in (one for known in self.subjects.values() for one in known):
            if (other["schema"], other["schemaType"]) == (text, kind):
                if other not in versions:
                    versions.append({**other, "subject": subject, "version": len(versions) + 1})
                return int(other["id"])
        schema_id = 1 + sum(len(known) for known in self.subjects.values())
        versions.append(
            {
                "subject": subject,
                "version": len(versions) + 1,
                "id": schema_id,
                "schema": text,
                "schemaType": kind,
                "references": references or [],
            }
        )
        return schema_id

    def get(self, path: str) -> Answer:
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                for one in (one for known in self.subjects.values() for one in known):
                    if str(one["id"]) == number:
                        kept = {name: one[name] for name in ("schema", "schemaType", "references")}
                        return 200, {name: part for name, part in kept.items() if part and part != "AVRO"}
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            case ["subjects", subject, "versions", version]:
                known = self.subjects.get(subject)
                if not known:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                place = len(known) if version == "latest" else int(version)
                if not 0 < place <= len(known):
                    return 404, {"error_code": 40402, "message": "Version not found"}
                return 200, known[place - 1]
        return 404, {"error": "no such page"}

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["subjects", subject, "versions"]:
                schema = json.loads(body["schema"])
                for known in self.subjects.get(subject, [])[-1:]:
                    if not _is_compatible(json.loads(known["schema"]), schema):
                        return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
                return 200, {"id": self.add(subject, body["schema"])}
        return 404, {"error": "no such page"}


def _is_compatible(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether the new schema reads what the old one wrote, as far as the tests need it."""
    types = {one["name"]: one["type"] for one in old["fields"]}
    return all(types[one["name"]] == one["type"] if one["name"] in types else "default" in one for one in new["fields"])


@contextmanager
def serving(login: str | None = None) -> Iterator[SchemaRegistry]:
    """Serve an empty registry while the block runs. ``login`` is the user and password that it requires."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(lambda: registry.get(self.path.partition("?")[0]))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(lambda: registry.post(self.path, body))

        def _answer(self, answer: Any) -> None:
            registry.requests.append(f"{self.command} {self.path}")
            if registry.only_fault and self.path.startswith(registry.only_fault):
                status, content, headers = 503, b"", {}
            elif registry.fault is not None:
                status, content, headers = registry.fault
            elif registry.login and self.headers.get("Authorization") != _basic(registry.login):
                status, content, headers = 401, b'{"error_code": 40101, "message": "Unauthorized"}', {}
            else:
                status, body = answer()
                content, headers = json.dumps(body).encode(), {}
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = SchemaRegistry(f"http://127.0.0.1:{server.server_address[1]}", login=login)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        registry_at.cache_clear()


def _basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    """An empty schema registry."""
    with serving() as served:
        yield served
