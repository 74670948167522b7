"""Keeping passwords out of everything that is printed or written down."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping

SECRET_OPTION = re.compile(r"(?i)([?&][^=&]*(?:password|passwd|secret|token|jaas|credential)[^=&]*=)[^&]*")
# Greedy for PostgreSQL, so that a password with a slash or an at sign in it, which does not parse, is hidden as well.
DATABASE_PASSWORD = re.compile(r"(?i)(postgres(?:ql)?://[^:/@?\s]*):\S*@")
ANY_PASSWORD = re.compile(r"(://[^:/@?\s]*):[^/?\s]*@")


def redact(text: str) -> str:
    """A URI's text, right or wrong, or a sentence with one in it, without the passwords that it may hold."""
    hidden = DATABASE_PASSWORD.sub(r"\1:***@", text)
    hidden = ANY_PASSWORD.sub(r"\1:***@", hidden)
    return SECRET_OPTION.sub(r"\1***", hidden)


class HeadwaterError(Exception):
    """A refusal or failure that a user can understand and act on."""

    exit_status = 10

    def __init__(
        self,
        code: str,
        problem: str,
        *,
        evidence: Mapping[str, object] | None = None,
        remedy: str | None = None,
    ) -> None:
        # Whoever raises this may quote what a user wrote, and that may hold a password.
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
        return {"error": self.code, "problem": self.problem, "evidence": self.evidence, "help": self.remedy}


class UsageProblem(HeadwaterError):
    """The words of the command do not make sense: a wrong URI, a name that is not known."""

    exit_status = 2


class JobRefused(HeadwaterError):
    """The job cannot mean what it says, or Spark would refuse it."""

    exit_status = 10


class SetupProblem(HeadwaterError):
    """The machine lacks something: Java, jars, a free port, a Python package."""

    exit_status = 11


class ServiceUnreachable(HeadwaterError):
    """Kafka, PostgreSQL or an object store does not answer, or lacks the topic or table that was named."""

    exit_status = 12


class CheckpointUnreadable(HeadwaterError):
    """The checkpoint is not there, or its bytes cannot be understood."""

    exit_status = 13


class CheckpointBusy(HeadwaterError):
    """Another process is working on the checkpoint."""

    exit_status = 14


class ChangeRefused(HeadwaterError):
    """A change to a checkpoint that cannot be shown to be right."""

    exit_status = 15


class JobFailed(HeadwaterError):
    """The job started and then broke."""

    exit_status = 16


class Surprise(HeadwaterError):
    """Something that nobody thought of: a mistake of ours, told without a traceback."""

    exit_status = 17

    def __init__(self, error: Exception) -> None:
        told = str(error).strip().splitlines()
        super().__init__(
            "unexpected",
            f"something went wrong that should not: {type(error).__name__}",
            evidence={"it says": told[0]} if told else None,
            remedy="run it again with --debug to see where, and report it",
        )


NO_PERMISSION = "no-permission", "this may not be touched by you", "ask for the right, or run as the user who has it"
DISK_TROUBLES = {
    errno.ENOSPC: ("disk-full", "the disk is full", "make room and do it again"),
    errno.EDQUOT: ("disk-full", "the disk's quota is used up", "make room and do it again"),
    errno.EROFS: ("read-only", "this is on a disk that can only be read", "mount it for writing, or work on a copy"),
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.EIO: ("disk-broken", "the disk does not read or write", "look into the system's log for the disk"),
}


def disk_trouble(error: OSError) -> HeadwaterError | None:
    """What a disk refuses, in our words; None for what may be a mistake of ours."""
    if error.errno not in DISK_TROUBLES:
        return None
    code, problem, remedy = DISK_TROUBLES[error.errno]
    evidence = {"file": error.filename, "it says": error.strerror} if error.filename else {"it says": error.strerror}
    return SetupProblem(code, problem, evidence=evidence, remedy=remedy)
