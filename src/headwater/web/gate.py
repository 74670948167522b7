"""Access control of the page: every request needs a known Host, a known Origin, and a user or the token.

A browser lets any web site send requests to 127.0.0.1. The Host check stops DNS rebinding, the Origin check stops
requests from other sites, and the token stops other users of the machine. All three apply to WebSockets as well, which
carry every event of the page.

Instead of the token, users may log in with a password, or a reverse proxy may name the user in a header. The header is
believed only if the connection comes from the proxy.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from headwater.core.errors import HeadwaterError
from headwater.web.access import AccessPolicy
from headwater.web.sessions import Sessions, TooManyGuesses

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_POLICY = "frame-ancestors 'none'; form-action {form}; base-uri 'self'; object-src 'none'"
HEADERS = (
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", _POLICY.format(form="'none'").encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
LOGIN_POLICY = _POLICY.format(form="'self'") + "; default-src 'none'; style-src 'unsafe-inline'"
POLICY_VIOLATION = 1008
LOGIN, LOGOUT = "/login", "/logout"
LONGEST_FORM = 4096
LOGIN_PAGE = Path(__file__).with_name("login.html")
VISITOR = "headwater.visitor"
"""Where the visitor of a request is in its ASGI scope."""


@dataclass(frozen=True)
class Visitor:
    """Who has sent a request. ``name`` is None for a visitor with the token, who has no name."""

    name: str | None = None
    may_change: bool = False
    is_current: Callable[[], bool] = lambda: True
    """Whether the visitor would still get in. An open page may outlive a session."""
    can_log_out: bool = False


class _Request:
    """The parts of a request that decide about access."""

    def __init__(self, scope: Scope, policy: AccessPolicy) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        client = scope.get("client")
        self.from_proxy = policy.behind_proxy and policy.is_proxy(client[0] if client else None)
        self.path: str = scope.get("path", "/")
        self.method: str = scope.get("method", "GET")
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        forwarded = self.all("x-forwarded-proto") if self.from_proxy else []
        self.is_https = policy.is_https or forwarded == ["https"]
        self.hosts = self.all("host") + (self.all("x-forwarded-host") if self.from_proxy else [])
        self.cookies = "; ".join(self.all("cookie"))

    def all(self, name: str) -> list[str]:
        wanted = name.lower().encode()
        return [value.decode("latin-1") for found, value in self._headers if found == wanted]


class _Connection:
    """Notices that the browser has closed its connection."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_closed = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.is_closed = self.is_closed or message["type"] == "http.disconnect"
        return message


class Gate:
    """ASGI middleware that applies the policy to every request."""

    def __init__(self, app: App, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request, policy = _Request(scope, self._policy), self._policy
        reason = self._refusal(request)
        if reason is not None:
            await _refuse(scope, receive, send, 403, reason)
            return
        if policy.sessions is not None and scope["type"] == "http" and request.path in (LOGIN, LOGOUT):
            await self._handle_login(policy.sessions, request, receive, send)
            return
        visitor, by_token = self._visitor(request)
        if visitor is None:
            await self._turn_away(scope, request, receive, send)
            return
        scope[VISITOR] = visitor
        cookie = policy.set_cookie(policy.cookie_value, https=request.is_https) if by_token else None
        connection = _Connection(receive)
        try:
            await self._app(scope, connection.receive, _with_headers(send, cookie))
        except RuntimeError:
            # Middleware of the web framework misses the response to a browser that has left in the meantime.
            if not connection.is_closed:
                raise

    def _refusal(self, request: _Request) -> str | None:
        """Return why a request is refused whoever sends it; None if it is not."""
        own = request.all("host")
        if len(own) != 1 or not all(self._policy.accepts_host(host) for host in request.hosts):
            return "the Host header does not match this server"
        if not all(self._policy.accepts_origin(origin, request.hosts) for origin in request.all("origin")):
            return "the Origin header does not match this page"
        return None

    def _visitor(self, request: _Request) -> tuple[Visitor | None, bool]:
        """Return who sends a request, None if nobody who may, and whether the request contains the token itself."""
        policy = self._policy
        if policy.user_header is not None:
            names = request.all(policy.user_header)
            if request.from_proxy and len(names) == 1 and names[0].strip():
                return Visitor(names[0].strip()[:100], policy.allow_changes), False
            return None, False
        if policy.sessions is not None:
            return self._user(policy.sessions, policy.cookie(request.cookies)), False
        anyone = Visitor(None, policy.allow_changes)
        if any(policy.accepts_token(token) for token in parse_qs(request.query).get("token", [])):
            return anyone, True
        return (anyone if policy.accepts_cookie(request.cookies) else None), False

    def _user(self, sessions: Sessions, secret: str | None) -> Visitor | None:
        account = sessions.account(secret) if secret else None
        if account is None or secret is None:
            return None
        may_change = self._policy.allow_changes and account.role == "change"
        return Visitor(account.name, may_change, lambda: sessions.account(secret) is not None, can_log_out=True)

    async def _turn_away(self, scope: Scope, request: _Request, receive: Receive, send: Send) -> None:
        if self._policy.user_header is not None:
            where = "did not name a user" if request.from_proxy else "was bypassed"
            await _refuse(scope, receive, send, 403, f"the reverse proxy {where}")
        elif self._policy.sessions is None:
            reason = "the token is missing or wrong; open the URL that headwater printed"
            await _refuse(scope, receive, send, 403, reason)
        elif scope["type"] == "http" and request.method == "GET" and "text/html" in "".join(request.all("accept")):
            target = request.path + (f"?{request.query}" if request.query else "")
            await _show_login(send, 401, target)
        else:
            await _refuse(scope, receive, send, 401, "log in first")

    async def _handle_login(self, sessions: Sessions, request: _Request, receive: Receive, send: Send) -> None:
        if request.path == LOGIN and request.method == "GET":
            await _show_login(send, 200, "/")
            return
        if request.method != "POST" or not request.all("origin"):
            await _respond(send, 405, b"405: only the page itself can send this\n")
            return
        if request.path == LOGOUT:
            sessions.log_out(self._policy.cookie(request.cookies) or "")
            await self._redirect(send, LOGIN, "", request)
            return
        form = parse_qs((await _body(receive)).decode("utf-8", "replace"), keep_blank_values=True)
        name, password, target = (form.get(field, [""])[0] for field in ("name", "password", "next"))
        try:
            secret = await asyncio.to_thread(sessions.log_in, name, password)
        except TooManyGuesses:
            await _show_login(send, 429, target, "Too many attempts. Try again in half a minute.")
            return
        except HeadwaterError:  # it is being replaced, or was damaged since the start
            await _show_login(send, 503, target, "Nobody can log in at present: the password file cannot be read.")
            return
        if secret is None:
            await _show_login(send, 401, target, "The name or the password is wrong.")
            return
        await self._redirect(send, _local_path(target), secret, request)

    async def _redirect(self, send: Send, target: str, cookie: str, request: _Request) -> None:
        set_cookie = (b"set-cookie", self._policy.set_cookie(cookie, https=request.is_https))
        await _respond(send, 303, b"", (b"location", target.encode("latin-1", "replace")), set_cookie)


def _local_path(target: str) -> str:
    """Return a path of this page to continue at; the start page for anything that a browser could take for another site."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_local and "\\" not in target else "/"


def _with_headers(send: Send, cookie: bytes | None) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [*HEADERS, (b"set-cookie", cookie)] if cookie else list(HEADERS)
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return send_with_headers


async def _body(receive: Receive) -> bytes:
    found = b""
    while len(found) <= LONGEST_FORM:
        message = await receive()
        found += message.get("body", b"")
        if not message.get("more_body"):
            break
    return found[:LONGEST_FORM]


async def _show_login(send: Send, status: int, target: str, problem: str = "") -> None:
    page = LOGIN_PAGE.read_text()
    for mark, text in (("{next}", _local_path(target)), ("{problem}", problem)):
        page = page.replace(mark, html.escape(text, quote=True))
    body = page.encode()
    await _respond(
        send,
        status,
        body,
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", LOGIN_POLICY.encode()),
        (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers hide the origin of a form as well
    )


async def _respond(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    given = {name for name, _ in headers}
    shown = [
        *headers,
        *((name, value) for name, value in HEADERS if name not in given),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if body and b"content-type" not in given:
        shown.append((b"content-type", b"text/plain; charset=utf-8"))
    await send({"type": "http.response.start", "status": status, "headers": shown})
    await send({"type": "http.response.body", "body": body})


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        return
    await _respond(send, status, f"{status}: {reason}\n".encode())
