"""Access control of the page: requests need the token, a known Host and a known Origin.

A browser lets any web site send requests to 127.0.0.1. The Host check stops DNS rebinding, the Origin check stops
requests from other sites, and the token stops other users of the machine. All three apply to WebSockets as well, which
carry every event of the page.
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
class AccessPolicy:
    """The token, and the host and port at which clients may address the server."""

    token: str
    host: str
    port: int

    @property
    def cookie_name(self) -> str:
        # A browser sends the cookies of a host to all of its ports.
        return f"headwater-{self.port}"

    @property
    def cookie_value(self) -> str:
        return hashlib.sha256(f"page {self.port} {self.token}".encode()).hexdigest()

    def accepts_host(self, authority: str) -> bool:
        try:
            parts = urlsplit(f"//{authority}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.port or parts.username is not None:
            return False
        if name in {"127.0.0.1", "localhost", "::1", self.host}:
            return True
        # DNS rebinding works with names only, not with addresses.
        return self.host in WILDCARDS and _is_address(name)

    def accepts_origin(self, origin: str) -> bool:
        parts = urlsplit(origin)
        return parts.scheme in {"http", "https"} and self.accepts_host(parts.netloc)

    def accepts_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def accepts_cookie(self, cookies: str) -> bool:
        try:
            cookie = SimpleCookie(cookies).get(self.cookie_name)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.cookie_value.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Gate:
    """ASGI middleware that applies the policy to every request."""

    def __init__(self, app: App, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        reason, by_token = self._check(scope)
        if reason is not None:
            await _refuse(scope, receive, send, reason)
            return
        await self._app(scope, receive, self._with_headers(send, set_cookie=by_token))

    def _check(self, scope: Scope) -> tuple[str | None, bool]:
        """Return why a request is refused (None if it is not), and whether it contains the token itself."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._policy.accepts_host(hosts[0]):
            return "the Host header does not match this server", False
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        if not all(self._policy.accepts_origin(origin) for origin in origins):
            return "the Origin header does not match this page", False
        tokens = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
        if any(self._policy.accepts_token(token) for token in tokens):
            return None, True
        cookies = "; ".join(value.decode("latin-1") for name, value in headers if name == b"cookie")
        if self._policy.accepts_cookie(cookies):
            return None, False
        return "the token is missing or wrong; open the URL that headwater printed", False

    def _with_headers(self, send: Send, *, set_cookie: bool) -> Send:
        cookie = f"{self._policy.cookie_name}={self._policy.cookie_value}; Path=/; HttpOnly; SameSite=Strict"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [*HEADERS, (b"set-cookie", cookie.encode())] if set_cookie else list(HEADERS)
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        return send_with_headers


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        return
    body = f"403: {reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
