"""Errors with a code, evidence and a remedy. Passwords are redacted from everything that they show."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping

REDACTED = "***"
_SENSITIVE = r"(?:password|passwd|passphrase|secret|token|jaas|credential|authorization|keystore\.key|key\.pem)"
SECRET_NAME = re.compile(f"(?i){_SENSITIVE}")
# An option of a URI, or of a URL that is the percent-encoded value of such an option.
SECRET_OPTION = re.compile(
    rf"(?i)((?:[?&]|%3f|%26)(?:(?!%3d|%3f|%26)[^=&])*{_SENSITIVE}(?:(?!%3d)[^=&])*(?:=|%3d))[^&]*"
)
# A property of a JDBC URL, as for SQL Server, which may be percent-encoded too.
JDBC_PROPERTY = re.compile(
    rf"(?i)(jdbc(?::|%3a)[^&\s]*?(?:;|%3b)(?:(?!%3d)[^=&;\s])*{_SENSITIVE}(?:(?!%3d)[^=&;\s])*(?:=|%3d))(?:(?!%3b)[^&;\s])*"
)
# Greedy for PostgreSQL, so that a password with a slash or an at sign, which is not a valid URL, is hidden as well.
DATABASE_PASSWORD = re.compile(r"(?i)(postgres(?:ql)?(?:\+\w+)?://[^:/@?\s]*):\S*@")
ANY_PASSWORD = re.compile(r"(://[^:/@?\s]*):[^/?\s]*@")
ENCODED_PASSWORD = re.compile(r"(?i)((?::|%3a)(?:/|%2f){2}(?:(?!%3a)[^:/@?&\s])*)(?::|%3a)[^/?&@\s]*%40")
# A connection string of PostgreSQL: host=db user=ann password=…
CONNECTION_PASSWORD = re.compile(r"(?i)((?:^|\s)password\s*=\s*)(?:'(?:\\.|[^'\\])*'|[^\s?]+)")
# The login in the URL of a schema registry, which is an option of a URI and may be percent-encoded there.
REGISTRY_LOGIN = re.compile(r"(?i)([?&]registry=[^&\s]*?(?:://|%3a%2f%2f))[^&\s]*(?:@|%40)")


def redact(text: str) -> str:
    """Return a URI, or a sentence that contains one, with its passwords replaced by ``***``; the URI may be invalid."""
    hidden = REGISTRY_LOGIN.sub(r"\1***@", text)
    hidden = DATABASE_PASSWORD.sub(r"\1:***@", hidden)
    hidden = ANY_PASSWORD.sub(r"\1:***@", hidden)
    hidden = ENCODED_PASSWORD.sub(r"\1:***@", hidden)
    hidden = CONNECTION_PASSWORD.sub(r"\1***", hidden)
    hidden = JDBC_PROPERTY.sub(r"\1***", hidden)
    return SECRET_OPTION.sub(r"\1***", hidden)


def redact_value(name: str, value: str) -> str:
    """Return the value of an option without its secrets: ``***`` if the name says that all of it is one."""
    return REDACTED if SECRET_NAME.search(name) else redact(value)


def is_redacted(uri: str) -> bool:
    """Return whether ``redact`` has removed a password from a URI."""
    return ":***@" in uri or "=***" in uri


class HeadwaterError(Exception):
    """Base class of all errors that a user can understand and act on.

    ``code`` identifies the error, ``problem`` is its message, ``evidence`` holds labeled details, ``remedy`` is what to
    do about it (None if unknown), and ``exit_status`` is that of the command line. ``str()`` shows all of them.
    """

    exit_status = 10

    def __init__(
        self,
        code: str,
        problem: str,
        *,
        evidence: Mapping[str, object] | None = None,
        remedy: str | None = None,
    ) -> None:
        # Messages may quote user input, which may contain a password.
        self.problem = redact(problem)
        super().__init__(self.problem)
        self.code = code
        self.evidence = {label: redact(str(text)) for label, text in (evidence or {}).items()}
        self.remedy = redact(remedy) if remedy else remedy

    def __str__(self) -> str:
        width = max((len(label) for label in self.evidence), default=0)
        lines = [f"error[{self.code}]: {self.problem}"]
        lines += [f"  {label:<{width}}  {text}" for label, text in self.evidence.items()]
        if self.remedy:
            lines.append(f"help: {self.remedy}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """Return the error in the form that ``--json`` prints."""
        return {"error": self.code, "problem": self.problem, "evidence": self.evidence, "help": self.remedy}


class UsageProblem(HeadwaterError):
    """The arguments are invalid: a malformed URI, an unknown name, options that contradict each other."""

    exit_status = 2


class JobRefused(HeadwaterError):
    """The job contradicts itself or its checkpoint, or Spark would reject it."""

    exit_status = 10


class SetupProblem(HeadwaterError):
    """Something is missing or wrong on this machine: Java, jars, a free port, a Python package, the disk."""

    exit_status = 11


class ServiceUnreachable(HeadwaterError):
    """Kafka, PostgreSQL or an object store does not respond, or lacks the named topic or table."""

    exit_status = 12


class CheckpointUnreadable(HeadwaterError):
    """The checkpoint does not exist, or its files are corrupt or in an unknown format."""

    exit_status = 13


class CheckpointBusy(HeadwaterError):
    """Another process is using the checkpoint."""

    exit_status = 14


class ChangeRefused(HeadwaterError):
    """A change to the checkpoint was refused, because its result would not be provably correct."""

    exit_status = 15


class JobFailed(HeadwaterError):
    """The job failed while it was running."""

    exit_status = 16


class InternalError(HeadwaterError):
    """An exception that Headwater does not handle; only ``--debug`` shows its traceback."""

    exit_status = 17

    def __init__(self, error: Exception) -> None:
        reason = str(error).strip().splitlines()
        super().__init__(
            "unexpected",
            f"internal error: {type(error).__name__} (please report it with the output of --debug)",
            evidence={"reason": reason[0]} if reason else None,
        )


_PERMISSION_DENIED = ("no-permission", "permission denied", "change the permissions, or run as a user who has access")
_DISK_ERRORS = {
    errno.ENOSPC: ("disk-full", "the disk is full", "free some space and try again"),
    errno.EDQUOT: ("disk-full", "the disk quota is exceeded", "free some space and try again"),
    errno.EROFS: ("read-only", "the file system is read-only", "mount it for writing, or work on a copy"),
    errno.EACCES: _PERMISSION_DENIED,
    errno.EPERM: _PERMISSION_DENIED,
    errno.EIO: ("disk-broken", "the disk reported an input/output error", "check the system log for disk errors"),
}


def disk_error(error: OSError) -> SetupProblem | None:
    """Return the error to show for a failure of the disk or its permissions; None for any other ``OSError``."""
    if error.errno not in _DISK_ERRORS:
        return None
    code, problem, remedy = _DISK_ERRORS[error.errno]
    evidence = {"file": error.filename} if error.filename else {}
    return SetupProblem(code, problem, evidence={**evidence, "reason": error.strerror}, remedy=remedy)
