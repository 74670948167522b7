"""Keeping passwords out of everything that is printed or written down."""

from __future__ import annotations

import re

SECRET_OPTION = re.compile(r"(?i)([?&][^=&]*(?:password|passwd|secret|token|jaas|credential)[^=&]*=)[^&]*")
# Greedy for PostgreSQL, so that a password with a slash or an at sign in it, which does not parse, is hidden as well.
DATABASE_PASSWORD = re.compile(r"(?i)(postgres(?:ql)?://[^:/@?\s]*):\S*@")
ANY_PASSWORD = re.compile(r"(://[^:/@?\s]*):[^/?\s]*@")


def redact(text: str) -> str:
    """A URI's text, right or wrong, or a sentence with one in it, without the passwords that it may hold."""
    hidden = DATABASE_PASSWORD.sub(r"\1:***@", text)
    hidden = ANY_PASSWORD.sub(r"\1:***@", hidden)
    return SECRET_OPTION.sub(r"\1***", hidden)
