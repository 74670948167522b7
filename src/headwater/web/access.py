"""Who may open the page: the options of the command line, checked before anything is served, and the policy they give.

``gate`` applies the policy to every request.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headwater.core.errors import SetupProblem, UsageProblem
from headwater.web.accounts import PasswordFile
from headwater.web.sessions import Sessions

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

WILDCARDS = {"0.0.0.0", "::", ""}  # noqa: S104  compared with, not bound to
LOOPBACK_NETWORKS: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_NAME = re.compile(r"[A-Za-z0-9.-]{1,253}")


@dataclass(frozen=True)
class AccessPolicy:
    """The token, the addresses at which clients may address the server, and who may change a checkpoint.

    ``sessions`` and ``user_header`` replace the token: log-ins with a password, and the header in which one of the
    ``proxies`` names the user.
    """

    token: str
    host: str
    port: int
    is_https: bool = False
    behind_proxy: bool = False
    public_names: tuple[str, ...] = ()
    allow_changes: bool = False
    sessions: Sessions | None = None
    user_header: str | None = None
    proxies: tuple[Network, ...] = LOOPBACK_NETWORKS

    @property
    def uses_token(self) -> bool:
        return self.sessions is None and self.user_header is None

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
            name, port = parts.hostname or "", parts.port or (443 if self.is_https else 80)
        except ValueError:
            return False
        if parts.username is not None or not name:
            return False
        if name in self.public_names or (self.behind_proxy and not self.public_names):
            return True
        if port != self.port:
            return False
        if name in {"127.0.0.1", "localhost", "::1", self.host}:
            return True
        # DNS rebinding works with names only, not with addresses.
        return self.host in WILDCARDS and _is_address(name)

    def accepts_origin(self, origin: str, hosts: Sequence[str] = ()) -> bool:
        """Return whether a request may come from a page at this origin; ``hosts`` are those that the request names.

        A proxy may be known to browsers by any name, which is then both the origin and the host of a request.
        """
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in {"http", "https"}:
            return False
        if self.behind_proxy and not self.public_names:
            return parts.netloc in hosts
        return self.accepts_host(parts.netloc)

    def accepts_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def cookie(self, cookies: str) -> str | None:
        """Return the value of this server's cookie; None if there is none.

        Other servers on this host may have set cookies that no parser accepts, and the browser sends them as well.
        """
        for cookie in cookies.split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == self.cookie_name:
                return value
        return None

    def accepts_cookie(self, cookies: str) -> bool:
        value = self.cookie(cookies)
        return value is not None and hmac.compare_digest(value.encode(), self.cookie_value.encode())

    def is_proxy(self, address: str | None) -> bool:
        """Return whether a connection from an address is one of the proxy."""
        try:
            found = ipaddress.ip_address(address or "")
        except ValueError:
            return False
        return any(found in network for network in self.proxies)

    def set_cookie(self, value: str, *, https: bool) -> bytes:
        """Return the header that sets the cookie; an empty value removes it."""
        parts = [f"{self.cookie_name}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
        parts += (["Secure"] if https else []) + ([] if value else ["Max-Age=0"])
        return "; ".join(parts).encode()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class AccessOptions:
    """How the page is reached and by whom. The default is a token, on loopback, read-only."""

    allow_changes: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    public_names: tuple[str, ...] = ()
    password_file: Path | None = None
    user_header: str | None = None
    proxies: tuple[str, ...] = ()

    @property
    def uses_tls(self) -> bool:
        return self.tls_cert is not None

    def policy(self, token: str, host: str, port: int) -> AccessPolicy:
        """Return the policy for a server at an address."""
        return AccessPolicy(
            token,
            host,
            port,
            is_https=self.uses_tls,
            behind_proxy=self.behind_proxy,
            public_names=tuple(name.lower() for name in self.public_names),
            allow_changes=self.allow_changes,
            sessions=Sessions(PasswordFile(self.password_file)) if self.password_file else None,
            user_header=self.user_header.lower() if self.user_header else None,
            proxies=tuple(_network(text) for text in self.proxies) or LOOPBACK_NETWORKS,
        )


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_access(options: AccessOptions, host: str) -> None:
    """Raise ``UsageProblem`` or ``SetupProblem`` for options that are unsafe, contradict each other, or cannot be used."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise UsageProblem(
            "bad-option", "--tls-cert and --tls-key belong together", remedy="--tls-cert cert.pem --tls-key key.pem"
        )
    if not is_loopback(host) and not options.uses_tls and not options.behind_proxy:
        raise UsageProblem(
            "needs-tls",
            f"{host} can be reached from other machines, and the connection would not be encrypted",
            remedy="add --tls-cert FILE --tls-key FILE, or --behind-proxy if a reverse proxy encrypts it;"
            " or listen on loopback and use ssh -L 8765:127.0.0.1:8765 MACHINE",
        )
    if options.user_header is not None:
        _check_header(options)
    elif options.proxies:
        raise UsageProblem("bad-option", "--proxy-from needs --trust-user-header", remedy="--trust-user-header NAME")
    for text in options.proxies:
        _network(text)
    for name in options.public_names:
        if not _NAME.fullmatch(name):
            raise UsageProblem(
                "bad-option", f"--public-name {name!r} is not a host name", remedy="--public-name streams.example.org"
            )
    if options.password_file is not None and not PasswordFile(options.password_file).accounts():
        raise SetupProblem(
            "bad-password-file",
            f"{options.password_file} contains no user",
            remedy=f"headwater passwd {options.password_file} NAME",
        )
    if options.tls_cert is not None and options.tls_key is not None:
        _check_certificate(options.tls_cert, options.tls_key)


def _check_header(options: AccessOptions) -> None:
    if options.user_header is None or not _HEADER.fullmatch(options.user_header):
        raise UsageProblem(
            "bad-option",
            f"{options.user_header!r} is not the name of a header",
            remedy="--trust-user-header X-Remote-User",
        )
    if not options.behind_proxy:
        raise UsageProblem(
            "bad-option",
            "--trust-user-header needs --behind-proxy: only a reverse proxy can name the user",
            remedy=f"--behind-proxy --trust-user-header {options.user_header}",
        )
    if options.password_file is not None:
        raise UsageProblem(
            "bad-option",
            "--trust-user-header and --password-file exclude each other: either the proxy or the page knows the users",
            remedy="leave one of them out",
        )


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise UsageProblem(
            "bad-option", f"{text!r} is not an address or network", remedy="--proxy-from 10.0.0.7, or 10.0.0.0/24"
        ) from None


def _check_certificate(cert: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:  # a wrong key or certificate is an OSError as well
        raise SetupProblem(
            "bad-certificate",
            f"cannot use the certificate {cert} with the key {key}",
            evidence={"reason": getattr(error, "strerror", None) or str(error)},
            remedy="both files have to be in PEM format and belong together; the key must not have a password",
        ) from None
