"""Who runs this process, as journals record it."""

from __future__ import annotations

import getpass
import os
import socket


def current_user() -> str:
    """Return ``user@host``; the number of the user if it has no name, as in some containers."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
