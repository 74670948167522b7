"""A client for schema registries with Confluent's REST interface.

A schema never changes under its id, so schemas are cached for the life of the process. The newest version of a subject
is looked up each time. A registry that does not answer is an error and never a reason to call a record malformed: only
a registry that answers that it does not have an id makes records with that id malformed.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from headwater.core.errors import HeadwaterError, JobRefused, ServiceUnreachable, UsageProblem, redact

LOGIN_VARIABLE = "HEADWATER_REGISTRY_URL"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_SECONDS = 10.0
MAX_ANSWER_BYTES = 8 << 20
MAX_REFERENCES = 200
NOT_FOUND = (40401, 40402, 40403)
TEMPORARY = (429, 500, 502, 503, 504)
# How long a running batch waits before each further attempt. It then fails, and runs again at the next start.
PATIENCE = (0.2, 0.5, 1.0, 2.0, 4.0)


class SchemaNotFound(ServiceUnreachable):
    """The registry answers that it does not have a schema."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry stores it. ``references`` are the subjects and versions of schemas that it imports."""

    schema_id: int | None
    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()


class Registry:
    """A registry at a URL, which may contain a login. ``patience`` are the waits before further attempts, in seconds."""

    def __init__(self, url: str, patience: Sequence[float] = ()) -> None:
        self._base, self._headers = _split_login(_with_login(url))
        self.name = redact(self._base)
        self._patience = tuple(patience)
        self._by_id: dict[int, RegisteredSchema] = {}
        self._by_version: dict[tuple[str, int], RegisteredSchema] = {}
        self._registered: dict[tuple[str, str], int] = {}
        self._opener = urllib.request.build_opener(_SameServerLogin)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id; raise ``SchemaNotFound`` if there is none."""
        if schema_id not in self._by_id:
            answer = self._get(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
            self._by_id[schema_id] = self._schema({**answer, "id": schema_id})
        return self._by_id[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject; raise ``SchemaNotFound`` if there is none."""
        return self._schema(self._get(f"/subjects/{quote(subject, safe='')}/versions/latest", f"subject {subject}"))

    def register(self, subject: str, text: str) -> int:
        """Return the id of an Avro schema, which is added to the subject unless it is there already."""
        known = self._registered.get((subject, text))
        if known is not None:
            return known
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._request(path, f"subject {subject}", json.dumps({"schema": text}).encode())
        schema_id = answer.get("id")
        if not isinstance(schema_id, int):
            raise self._unexpected(f"no id for a new schema of {subject}")
        self._registered[subject, text] = schema_id
        return schema_id

    def with_references(self, schema: RegisteredSchema) -> list[tuple[str, str]]:
        """Return the names and texts of all schemas that a schema needs, in the order of need; its own text is last."""
        found: dict[str, str] = {}
        self._collect(schema, found, ())
        return [*found.items(), ("", schema.text)]

    def _collect(self, schema: RegisteredSchema, found: dict[str, str], path: tuple[str, ...]) -> None:
        for name, subject, version in schema.references:
            if name in found:
                continue
            if name in path or len(found) + len(path) >= MAX_REFERENCES:
                raise self._unexpected(f"schema {name} refers to itself or to more than {MAX_REFERENCES} others")
            if (subject, version) not in self._by_version:
                where = f"/subjects/{quote(subject, safe='')}/versions/{version}"
                self._by_version[subject, version] = self._schema(
                    self._get(where, f"version {version} of subject {subject}")
                )
            referenced = self._by_version[subject, version]
            self._collect(referenced, found, (*path, name))
            found[name] = referenced.text

    def _schema(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        try:
            references = tuple(
                (str(one["name"]), str(one["subject"]), int(one["version"])) for one in answer.get("references") or ()
            )
            schema_id = None if answer.get("id") is None else int(answer["id"])
            text = answer["schema"]
        except (KeyError, TypeError, ValueError):
            text = None
        if not isinstance(text, str):
            raise self._unexpected("the answer has no schema")
        return RegisteredSchema(schema_id, str(answer.get("schemaType") or "AVRO"), text, references)

    def _get(self, path: str, what: str) -> dict[str, Any]:
        return self._request(path, what)

    def _request(self, path: str, what: str, body: bytes | None = None) -> dict[str, Any]:
        for wait in (*self._patience, None):
            try:
                return self._attempt(path, what, body)
            except _Temporary as problem:
                if wait is None:
                    raise problem.error from None
                time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, path: str, what: str, body: bytes | None) -> dict[str, Any]:
        headers = {"Accept": f"{CONTENT_TYPE}, application/json", "Content-Type": CONTENT_TYPE, **self._headers}
        request = urllib.request.Request(self._base + path, data=body, headers=headers)  # noqa: S310  checked in _split_login
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as response:
                return self._object(response.read(MAX_ANSWER_BYTES + 1))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error, what) from None
        except (urllib.error.URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            text = (getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).lower()
            raise _Temporary(self._unreachable(text)) from None

    def _object(self, content: bytes) -> dict[str, Any]:
        if len(content) > MAX_ANSWER_BYTES:
            raise self._unexpected(f"the answer has more than {MAX_ANSWER_BYTES >> 20} MB")
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._unexpected("the answer is not a JSON object")
        return answer

    def _refused(self, error: urllib.error.HTTPError, what: str) -> Exception:
        try:
            answer = self._object(error.read(MAX_ANSWER_BYTES + 1))
        except (HeadwaterError, OSError, HTTPException):
            answer = {}
        message = str(answer.get("message") or error.reason or "").strip()
        if error.code == 404 and answer.get("error_code") in NOT_FOUND:
            return SchemaNotFound(
                "no-schema-in-registry",
                f"the schema registry does not have {what}",
                evidence={"registry": self.name, "reason": message},
                remedy="check the topic and the option subject, or register the schema",
            )
        if error.code in (401, 403):
            return ServiceUnreachable(
                "registry-login-failed",
                "the schema registry refused the login",
                evidence={"registry": self.name, "reason": message or f"status {error.code}"},
                remedy=f"export {LOGIN_VARIABLE}=https://USER:PASSWORD@{urlsplit(self._base).netloc}",
            )
        if error.code in (409, 422):
            return JobRefused(
                "schema-refused",
                f"the schema registry refused a schema for {what}",
                evidence={"registry": self.name, "reason": message or f"status {error.code}"},
                remedy="write to a new subject (option subject), or change the job's columns so that they are compatible",
            )
        problem = self._unexpected(f"status {error.code}" + (f": {message}" if message else ""))
        return _Temporary(problem) if error.code in TEMPORARY else problem

    def _unreachable(self, reason: str) -> ServiceUnreachable:
        return ServiceUnreachable(
            "registry-unreachable",
            f"cannot connect to the schema registry: {reason}",
            evidence={"registry": self.name},
            remedy="start the registry, or check the option registry",
        )

    def _unexpected(self, reason: str) -> ServiceUnreachable:
        return ServiceUnreachable(
            "registry-answer",
            "the schema registry gave an unexpected answer",
            evidence={"registry": self.name, "reason": reason},
            remedy="check that the option registry is the base URL of a Confluent-compatible schema registry",
        )


@lru_cache(maxsize=16)
def registry_at(url: str, *, in_batch: bool = False) -> Registry:
    """Return this process's client for a registry. In a running batch it retries for some seconds before it fails."""
    return Registry(url, PATIENCE if in_batch else ())


def complete_login(url: str) -> str:
    """Return the URL with the login that the environment has for it: workers do not see the driver's environment."""
    return _with_login(url)


class _Temporary(Exception):
    """An error that may go away by itself."""

    def __init__(self, error: HeadwaterError) -> None:
        super().__init__(error.problem)
        self.error = error


class _SameServerLogin(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and sends the login to no other server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        target = super().redirect_request(req, fp, code, msg, headers, newurl)
        if target is not None and _server(newurl) != _server(req.full_url):
            target.remove_header("Authorization")
        return target


def _split_login(url: str) -> tuple[str, dict[str, str]]:
    """Return the base URL without its login, and the headers that hold the login."""
    parts = urlsplit(url)
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment:
        raise UsageProblem(
            "bad-registry",
            "the address of a schema registry is not a URL with http or https",
            evidence={"found": url},
            remedy="registry=http://127.0.0.1:8081",
        )
    address = parts.netloc.rpartition("@")[2]
    base = urlunsplit((parts.scheme, address, parts.path.rstrip("/"), "", ""))
    if parts.username is None or "***" in (parts.username, parts.password):  # as it was recorded, without its secret
        return base, {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return base, {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


def _with_login(url: str) -> str:
    """Add the login from the environment if it is for this server, so that it goes to no other one."""
    known = os.environ.get(LOGIN_VARIABLE, "")
    if known and _server(known) == _server(url):
        return urlunsplit(urlsplit(url)._replace(netloc=urlsplit(known).netloc))
    return url


def _server(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", None, None
