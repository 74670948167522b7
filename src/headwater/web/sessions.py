"""Log-ins with a password: sessions in memory, and a limit on guesses."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass, field

from headwater.core.errors import HeadwaterError
from headwater.web.accounts import Account, PasswordFile

IDLE_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1000
FREE_GUESSES, WAIT_SECONDS = 5, 30.0


@dataclass
class Session:
    """A user who has logged in."""

    account: Account
    used_at: float = field(default_factory=time.monotonic)


class TooManyGuesses(Exception):
    """Wrong passwords were given for a user too often."""


class Sessions:
    """The sessions of users. A session ends when it is idle, and when its account is removed or changed."""

    def __init__(self, passwords: PasswordFile) -> None:
        self._passwords = passwords
        self._sessions: dict[str, Session] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def log_in(self, name: str, password: str) -> str | None:
        """Return the secret of a new session; None if the password is wrong. Raise ``TooManyGuesses`` after some.

        Takes about 50 ms: call it from a thread.
        """
        with self._lock:
            failures, last = self._failures.get(name, (0, 0.0))
            if failures >= FREE_GUESSES and time.monotonic() - last < WAIT_SECONDS:
                raise TooManyGuesses
            # Counted before the password is checked, so that guesses at the same time count as well.
            self._failures[name] = (failures + 1, time.monotonic())
            if len(self._failures) > MOST_SESSIONS:
                self._failures.pop(next(iter(self._failures)))
        account = self._passwords.verify(name, password)
        if account is None:
            return None
        secret = secrets.token_urlsafe(32)
        with self._lock:
            self._failures.pop(name, None)
            self._sessions[_hashed(secret)] = Session(account)
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.pop(min(self._sessions, key=lambda one: self._sessions[one].used_at))
        return secret

    def account(self, secret: str) -> Account | None:
        """Return the user of a session; None if it has ended."""
        key = _hashed(secret)
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            if time.monotonic() - session.used_at > IDLE_SECONDS or not self._is_current(session.account):
                del self._sessions[key]
                return None
            session.used_at = time.monotonic()
            return session.account

    def log_out(self, secret: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_hashed(secret), None)

    def _is_current(self, account: Account) -> bool:
        try:
            return self._passwords.accounts().get(account.name) == account
        except HeadwaterError:  # a file that is being replaced, or that was damaged: nobody gets in
            return False


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
