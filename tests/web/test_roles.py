"""Who may open the page and change a checkpoint: users with passwords, reverse proxies, TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from broker_support import run_here
from corpus_support import CorpusCheckpoint
from headwater.core.errors import ChangeRefused, HeadwaterError, SetupProblem, UsageProblem
from headwater.web import sessions as session_module
from headwater.web.access import AccessOptions, check_access
from headwater.web.accounts import Account, PasswordFile, hash_password, matches
from headwater.web.change_dialog import refuse_ended
from headwater.web.gate import VISITOR, Gate, Visitor
from headwater.web.sessions import Sessions
from web.serving import served

Corpus = Callable[[str], CorpusCheckpoint]
HASHES = {"ann": hash_password("anns password"), "bob": hash_password("bobs password")}


@pytest.fixture
def users(tmp_path: Path) -> PasswordFile:
    """Ann may change checkpoints, Bob may not."""
    found = PasswordFile(tmp_path / "users")
    found.write({"ann": Account("ann", "change", HASHES["ann"]), "bob": Account("bob", "read", HASHES["bob"])})
    return found


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    visitor: Visitor | None = None

    @property
    def cookie(self) -> str:
        return self.headers["set-cookie"].partition(";")[0]


class Client:
    """Sends requests to a gate without a server."""

    def __init__(self, options: AccessOptions, host: str = "127.0.0.1") -> None:
        self.policy = options.policy("the-token", host, 8765)
        self.gate = Gate(self._app, self.policy)
        self.seen: Visitor | None = None

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen = scope[VISITOR]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"page"})

    def __call__(
        self,
        path: str = "/",
        *,
        method: str = "GET",
        form: dict[str, str] | None = None,
        peer: str = "127.0.0.1",
        **headers: str,
    ) -> Reply:
        sent = {"Host": "127.0.0.1:8765", "Accept": "text/html"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        place, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": place,
            "query_string": query.encode(),
            "client": (peer, 50_000),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        }
        reply = Reply()
        self.seen = None

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": urlencode(form or {}).encode(), "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                reply.body += message["body"]

        with ThreadPoolExecutor() as apart:  # the browser of other tests has an event loop in this thread
            apart.submit(asyncio.run, self.gate(scope, receive, send)).result()
        reply.visitor = self.seen
        return reply

    def log_in(self, name: str, password: str, **form: str) -> Reply:
        return self(
            "/login", method="POST", form={"name": name, "password": password, **form}, Origin="http://127.0.0.1:8765"
        )


def test_log_in_sets_a_session_cookie(users: PasswordFile) -> None:
    """The right password opens the page with the user's name; the cookie is HttpOnly and SameSite."""
    client = Client(AccessOptions(password_file=users.path, allow_changes=True))
    assert client().status == 401
    assert b'action="/login"' in client().body
    reply = client.log_in("ann", "anns password", next="/stream?name=a")
    assert (reply.status, reply.headers["location"]) == (303, "/stream?name=a")
    assert "HttpOnly" in reply.headers["set-cookie"] and "SameSite=Strict" in reply.headers["set-cookie"]
    page = client(Cookie=reply.cookie)
    assert page.status == 200
    assert page.visitor and (page.visitor.name, page.visitor.may_change) == ("ann", True)


@pytest.mark.parametrize(
    ("name", "allow_changes", "may_change"), [("ann", True, True), ("ann", False, False), ("bob", True, False)]
)
def test_role_and_option_are_both_needed(users: PasswordFile, name: str, allow_changes: bool, may_change: bool) -> None:
    """Changes need --allow-changes and a user with the role for it."""
    client = Client(AccessOptions(password_file=users.path, allow_changes=allow_changes))
    visitor = client(Cookie=client.log_in(name, f"{name}s password").cookie).visitor
    assert visitor is not None and visitor.may_change is may_change


def test_token_does_not_open_a_page_with_users(users: PasswordFile) -> None:
    """With a password file, neither the token nor a wrong password or cookie opens the page."""
    client = Client(AccessOptions(password_file=users.path))
    assert client("/?token=the-token").status == 401
    assert client.log_in("ann", "bobs password").status == 401
    assert client.log_in("eve", "anns password").status == 401
    assert client(Cookie=f"headwater-8765={client.policy.cookie_value}").status == 401
    assert client("/_nicegui_ws/socket.io/", Accept="*/*").status == 401


def test_log_out_ends_the_session(users: PasswordFile) -> None:
    """After a log-out the cookie opens nothing, and an open page can no longer change anything."""
    client = Client(AccessOptions(password_file=users.path, allow_changes=True))
    cookie = client.log_in("ann", "anns password").cookie
    visitor = client(Cookie=cookie).visitor
    assert visitor is not None
    refuse_ended(visitor)
    assert client("/logout", method="POST", Cookie=cookie, Origin="http://127.0.0.1:8765").status == 303
    assert client(Cookie=cookie).status == 401
    with pytest.raises(ChangeRefused):
        refuse_ended(visitor)


def test_changed_account_ends_its_sessions(users: PasswordFile) -> None:
    """A user who is removed, or gets another role or password, has to log in again."""
    client = Client(AccessOptions(password_file=users.path))
    cookie = client.log_in("ann", "anns password").cookie
    assert client(Cookie=cookie).status == 200
    users.write({"ann": Account("ann", "read", HASHES["ann"]), "bob": Account("bob", "read", HASHES["bob"])})
    assert client(Cookie=cookie).status == 401


def test_idle_session_ends(users: PasswordFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was not used for half a day has ended."""
    found = Sessions(users)
    secret = found.log_in("ann", "anns password")
    assert secret is not None and found.account(secret) is not None
    now = time.monotonic()
    monkeypatch.setattr(session_module.time, "monotonic", lambda: now + 13 * 3600)
    assert found.account(secret) is None


def test_guesses_are_limited(users: PasswordFile) -> None:
    """After five wrong passwords for a user, even the right one is refused for a while; other users are not affected."""
    client = Client(AccessOptions(password_file=users.path))
    assert [client.log_in("ann", "wrong").status for _ in range(6)] == [401] * 5 + [429]
    assert client.log_in("ann", "anns password").status == 429
    assert client.log_in("bob", "bobs password").status == 303


def test_log_in_without_the_password_file(users: PasswordFile) -> None:
    """While the password file is missing, the page that asks for a password says so."""
    client = Client(AccessOptions(password_file=users.path))
    users.path.unlink()
    reply = client.log_in("ann", "anns password", next="/stream?name=a")
    assert reply.status == 503
    assert b"Nobody can log in at present" in reply.body and b'value="/stream?name=a"' in reply.body


@pytest.mark.parametrize("before", ['prefs={"a":1}', "theme=dark mode", "a[b]=1", "bare", "headwater-87650=1", "="])
def test_cookies_of_other_servers(before: str) -> None:
    """A cookie of another server on this host does not hide the one of the page."""
    client = Client(AccessOptions())
    own = f"headwater-8765={client.policy.cookie_value}"
    assert client(Cookie=f"{before}; {own}").status == 200
    assert client(Cookie=f"{own};{before}").status == 200
    assert client(Cookie=before).status == 403


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://["])
def test_log_in_from_another_site(users: PasswordFile, origin: str | None) -> None:
    """Another site cannot log a browser in or out."""
    client = Client(AccessOptions(password_file=users.path))
    headers = {} if origin is None else {"Origin": origin}
    form = {"name": "ann", "password": "anns password"}
    assert client("/login", method="POST", form=form, **headers).status in {403, 405}
    assert client("/logout", method="POST", **headers).status in {403, 405}


@pytest.mark.parametrize("target", ["//evil.example/", "https://evil.example", "/\\evil.example", "", "/a\r\nX: 1"])
def test_log_in_leads_to_this_page_only(users: PasswordFile, target: str) -> None:
    """The address after a log-in cannot be that of another site."""
    client = Client(AccessOptions(password_file=users.path))
    assert client.log_in("ann", "anns password", next=target).headers["location"] == "/"
    assert b"<script" not in client('/?"><script>').body


def test_header_of_the_proxy_names_the_user() -> None:
    """A trusted header names the user, without a token; without the header there is no access."""
    options = AccessOptions(behind_proxy=True, user_header="X-Remote-User", allow_changes=True)
    client = Client(options)
    page = client(X_Remote_User="ann", Host="streams.example", Origin="https://streams.example")
    assert page.visitor and (page.visitor.name, page.visitor.may_change) == ("ann", True)
    assert client(Host="streams.example").status == 403
    assert client("/?token=the-token", Host="streams.example").status == 403
    assert client(X_Remote_User=" ", Host="streams.example").status == 403


def test_header_of_anyone_else_is_not_believed() -> None:
    """The header counts only on connections from the proxy, and only if it is trusted."""
    options = AccessOptions(behind_proxy=True, user_header="X-Remote-User", proxies=("10.1.0.0/16",))
    client = Client(options, "0.0.0.0")
    assert client(X_Remote_User="ann", peer="10.1.2.3").status == 200
    assert client(X_Remote_User="ann", peer="10.2.0.1").status == 403
    assert client(X_Remote_User="ann", peer="127.0.0.1").status == 403
    untrusted = Client(AccessOptions(behind_proxy=True))
    assert untrusted(X_Remote_User="ann").status == 403
    named = untrusted("/?token=the-token", X_Remote_User="ann").visitor
    assert named is not None and named.name is None


def test_origin_behind_a_proxy() -> None:
    """Behind a proxy, the origin has to be the host of the request, or one of the public names."""
    anywhere = Client(AccessOptions(behind_proxy=True))
    token = "/?token=the-token"
    assert anywhere(token, Host="streams.example", Origin="https://streams.example").status == 200
    assert anywhere(token, Host="streams.example", Origin="https://evil.example").status == 403
    inner = {"Host": "127.0.0.1:8765", "X_Forwarded_Host": "streams.example"}
    assert anywhere(token, **inner, Origin="https://streams.example").status == 200
    assert anywhere(token, peer="10.0.0.9", **inner, Origin="https://streams.example").status == 403
    named = Client(AccessOptions(behind_proxy=True, public_names=("streams.example",)))
    assert named(token, Host="streams.example", Origin="https://streams.example").status == 200
    assert named(token, Host="evil.example", Origin="https://evil.example").status == 403


def test_cookie_is_secure_if_the_connection_is() -> None:
    """The cookie is marked Secure with TLS, here or at the proxy."""
    proxied = Client(AccessOptions(behind_proxy=True))
    assert "Secure" in proxied("/?token=the-token", X_Forwarded_Proto="https").headers["set-cookie"]
    assert "Secure" not in proxied("/?token=the-token").headers["set-cookie"]
    forged = Client(AccessOptions())("/?token=the-token", X_Forwarded_Proto="https")
    assert "Secure" not in forged.headers["set-cookie"]


def problem(options: AccessOptions, host: str = "127.0.0.1") -> HeadwaterError:
    with pytest.raises((UsageProblem, SetupProblem)) as refused:
        check_access(options, host)
    return refused.value


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "box.example"])
def test_other_machines_need_encryption(host: str) -> None:
    """An address that others can reach needs TLS or a proxy."""
    assert problem(AccessOptions(), host).code == "needs-tls"
    check_access(AccessOptions(behind_proxy=True), host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_needs_none(host: str) -> None:
    """Loopback needs neither."""
    check_access(AccessOptions(), host)


@pytest.mark.parametrize(
    "options",
    [
        AccessOptions(tls_cert=Path("cert.pem")),
        AccessOptions(user_header="X-User"),
        AccessOptions(behind_proxy=True, user_header="X User"),
        AccessOptions(behind_proxy=True, user_header="X-User", password_file=Path("users")),
        AccessOptions(behind_proxy=True, user_header="X-User", proxies=("somewhere",)),
        AccessOptions(proxies=("10.0.0.1",)),
        AccessOptions(public_names=("https://x",)),
    ],
)
def test_options_that_contradict_each_other(options: AccessOptions) -> None:
    """Options that are incomplete, malformed or exclude each other are refused."""
    assert problem(options).code == "bad-option"


def test_password_file_is_checked(tmp_path: Path) -> None:
    """A password file that is missing, empty, open to others, or has a password in plain text is refused."""
    path = tmp_path / "users"
    assert problem(AccessOptions(password_file=path)).code == "bad-password-file"
    path.touch(mode=0o600)
    assert problem(AccessOptions(password_file=path)).code == "bad-password-file"
    path.write_text("ann:change:secret\n")
    assert "plain text" in (problem(AccessOptions(password_file=path)).remedy or "")
    path.chmod(0o644)
    assert problem(AccessOptions(password_file=path)).code == "password-file-open"


def test_certificate_is_checked(tmp_path: Path) -> None:
    """Files that are no certificate and key are refused before anything is served."""
    for name in ("cert", "key"):
        (tmp_path / name).write_text("x")
    options = AccessOptions(tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")
    assert problem(options).code == "bad-certificate"


def test_passwd_writes_the_file(tmp_path: Path) -> None:
    """`headwater passwd` adds, changes and removes users; the file holds hashes and is closed to others."""
    path = tmp_path / "users"
    assert run_here("passwd", path, "ann", "--role", "change", stdin="anns password\n").returncode == 0
    assert run_here("passwd", path, "bob", stdin="bobs password\n").stderr == "added bob, who may read\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "password" not in path.read_text()
    accounts = PasswordFile(path).accounts()
    assert (accounts["ann"].role, accounts["bob"].role) == ("change", "read")
    assert matches("anns password", accounts["ann"].hashed)
    assert run_here("passwd", path, "ann", stdin="another one\n").stderr == "changed ann, who may change\n"
    assert run_here("passwd", path, "bob", "--remove").returncode == 0
    assert list(PasswordFile(path).accounts()) == ["ann"]
    assert run_here("passwd", path, "bob", "--remove").returncode == 2
    assert run_here("passwd", path, "a:b", stdin="long enough\n").returncode == 2
    assert run_here("passwd", path, "eve", stdin="short\n").returncode == 2


def test_ui_refuses_an_open_address(corpus: Corpus) -> None:
    """`ui --host 0.0.0.0` without TLS or a proxy exits with 2 and names what is missing."""
    ran = run_here("ui", corpus("stateless").path, "--host", "0.0.0.0")
    assert ran.returncode == 2
    assert "error[needs-tls]" in ran.stderr and "--behind-proxy" in ran.stderr


@pytest.mark.services
def test_page_over_tls(corpus: Corpus, tmp_path: Path) -> None:
    """With a certificate, the page is served over HTTPS on any address."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    options = ("--host", "0.0.0.0", "--tls-cert", cert, "--tls-key", key)
    with served(corpus("stateless").path, "--port", 0, *options) as page:
        assert page.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        address = f"https://localhost:{page.port}/?token={page.token}"
        with urllib.request.urlopen(address, timeout=60, context=context) as reply:
            assert reply.status == 200
            assert "Secure" in reply.headers["Set-Cookie"]
