"""Who may talk to the page: whoever has the token, from a page of ours, under a name of ours.

Browsers let any web site send requests to 127.0.0.1. The Host check stops names that were pointed here (DNS rebinding),
the Origin check stops foreign pages, and the token stops everybody else on this machine. All three hold for websockets
too: they carry everything that happens on the page.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = (
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"frame-ancestors 'none'; form-action 'none'; base-uri 'self'; object-src 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
WILDCARDS = {"0.0.0.0", "::", ""}  # noqa: S104  compared with, not bound to
POLICY_VIOLATION = 1008


@dataclass(frozen=True)
class Admission:
    """The secret, and the names under which this server may be called."""

    token: str
    host: str
    port: int

    @property
    def cookie_name(self) -> str:
        # Browsers send a host's cookies to all of its ports.
        return f"headwater-{self.port}"

    @property
    def cookie_value(self) -> str:
        return hashlib.sha256(f"page {self.port} {self.token}".encode()).hexdigest()

    def knows_host(self, authority: str) -> bool:
        try:
            parts = urlsplit(f"//{authority}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.port or parts.username is not None:
            return False
        if name in {"127.0.0.1", "localhost", "::1", self.host}:
            return True
        # A number cannot be pointed elsewhere, a name can.
        return self.host in WILDCARDS and _is_address(name)

    def knows_origin(self, origin: str) -> bool:
        parts = urlsplit(origin)
        return parts.scheme in {"http", "https"} and self.knows_host(parts.netloc)

    def accepts_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def accepts_cookie(self, cookies: str) -> bool:
        try:
            held = SimpleCookie(cookies).get(self.cookie_name)
        except CookieError:
            return False
        return held is not None and hmac.compare_digest(held.value.encode(), self.cookie_value.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Gate:
    """Stands before the whole application, as ASGI middleware."""

    def __init__(self, app: App, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        reason, by_token = self._judge(scope)
        if reason is not None:
            await _refuse(scope, receive, send, reason)
            return
        await self._app(scope, receive, self._with_headers(send, set_cookie=by_token))

    def _judge(self, scope: Scope) -> tuple[str | None, bool]:
        """Why a request is refused, if it is, and whether it brought the token itself."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._admission.knows_host(hosts[0]):
            return "this server is not known under that name", False
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        if not all(self._admission.knows_origin(origin) for origin in origins):
            return "requests from other pages are not taken", False
        tokens = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
        if any(self._admission.accepts_token(token) for token in tokens):
            return None, True
        cookies = "; ".join(value.decode("latin-1") for name, value in headers if name == b"cookie")
        if self._admission.accepts_cookie(cookies):
            return None, False
        return "open the page with the URL that headwater printed: it has a token in it", False

    def _with_headers(self, send: Send, *, set_cookie: bool) -> Send:
        admission = self._admission
        cookie = f"{admission.cookie_name}={admission.cookie_value}; Path=/; HttpOnly; SameSite=Strict"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [*HEADERS, (b"set-cookie", cookie.encode())] if set_cookie else list(HEADERS)
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        return
    body = f"403: {reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
