"""The users of the page: a file with a line for each, ``name:role:hash``, which ``headwater passwd`` writes."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from headwater.core.errors import SetupProblem, UsageProblem

Role = Literal["read", "change"]
ROLES: tuple[Role, ...] = get_args(Role)
SHORTEST_PASSWORD = 8
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1


@dataclass(frozen=True)
class Account:
    """A user with a role and the hash of a password."""

    name: str
    role: Role
    hashed: str

    @property
    def line(self) -> str:
        return f"{self.name}:{self.role}:{self.hashed}"


def require_user_name(name: str) -> str:
    """Return a valid name of a user, or raise ``UsageProblem``."""
    if _NAME.fullmatch(name):
        return name
    raise UsageProblem(
        "bad-user", f"{name!r} is not a valid user name", evidence={"valid": "letters, digits and . _ @ -, at most 64"}
    )


def hash_password(password: str) -> str:
    """Return a salted hash of a password, with scrypt."""
    salt = secrets.token_bytes(16)
    return (
        f"scrypt${_COST}${_BLOCK}${_PARALLEL}${salt.hex()}${_derived(password, salt, _COST, _BLOCK, _PARALLEL).hex()}"
    )


def matches(password: str, hashed: str) -> bool:
    """Return whether a password has this hash. Takes about 50 ms."""
    _, cost, block, parallel, salt, digest = hashed.split("$")
    derived = _derived(password, bytes.fromhex(salt), int(cost), int(block), int(parallel))
    return hmac.compare_digest(derived, bytes.fromhex(digest))


def _derived(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=128 * cost * block * 2)


_HASH = re.compile(r"scrypt\$(16384|32768|65536)\$8\$[1-4]\$[0-9a-f]{16,64}\$[0-9a-f]{128}")
# What a password is compared with if there is no such user, so that the time does not show whether there is one.
_NOBODY = hash_password(secrets.token_hex(8))


class PasswordFile:
    """The accounts in a file, read again when the file changes. Only its owner may have access to the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int], dict[str, Account]] | None = None

    def accounts(self) -> dict[str, Account]:
        """Return the accounts by name; raise ``SetupProblem`` if the file is missing, malformed or open to others."""
        try:
            info = self.path.stat()
            marker = (info.st_mtime_ns, info.st_size)
            if self._read is None or self._read[0] != marker:
                if info.st_mode & 0o077:
                    raise SetupProblem(
                        "password-file-open",
                        f"other users have access to {self.path}",
                        evidence={"mode": f"{info.st_mode & 0o777:03o}"},
                        remedy=f"chmod 600 {self.path}",
                    )
                self._read = (marker, parse_accounts(self.path.read_text(), str(self.path)))
        except (OSError, UnicodeDecodeError) as error:
            raise SetupProblem(
                "bad-password-file",
                f"cannot read {self.path}",
                evidence={"reason": getattr(error, "strerror", None) or str(error)},
                remedy=f"headwater passwd {self.path} NAME",
            ) from None
        return self._read[1]

    def verify(self, name: str, password: str) -> Account | None:
        """Return the account if the password is right; None if it is wrong or there is no such user."""
        account = self.accounts().get(name)
        right = matches(password, account.hashed if account else _NOBODY)
        return account if right else None

    def write(self, accounts: dict[str, Account]) -> None:
        """Replace the file."""
        text = "".join(f"{account.line}\n" for account in accounts.values())
        draft = self.path.with_name(f".{self.path.name}.tmp")
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(text)
        draft.replace(self.path)


def parse_accounts(text: str, path: str) -> dict[str, Account]:
    """Return the accounts in the text of a password file. Empty lines and those that start with # are ignored."""
    found: dict[str, Account] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.strip().partition(":")
        role, _, hashed = rest.partition(":")
        if role not in ROLES or not _NAME.fullmatch(name) or not _HASH.fullmatch(hashed):
            raise SetupProblem(
                "bad-password-file",
                f"line {number} of {path} is not NAME:ROLE:HASH",
                evidence={"roles": ", ".join(ROLES)},
                remedy=f"headwater passwd {path} NAME   (passwords in plain text are not accepted)",
            )
        found[name] = Account(name, role, hashed)
    return found
