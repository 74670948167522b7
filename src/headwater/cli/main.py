"""The command line's front door: finds the verb, turns errors into messages and exit statuses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from headwater.cli.app import app
from headwater.cli.output import note, show_error
from headwater.core.errors import HeadwaterError, Surprise, disk_trouble

# In the order in which help shows them. Each file is named for its verb and imports little at its top.
VERBS: tuple[str, ...] = (
    "jobs",
    "check",
    "run",
    "demo",
    "log",
    "show",
    "state",
    "diff",
    "history",
    "bisect",
    "fsck",
    "late",
    "replay",
    "rewind",
    "undo",
    "compact",
    "fork",
    "repartition",
    "ui",
    "jars",
    "broker",
    "topics",
    "produce",
    "consume",
    "generate",
)


def load_verbs(arguments: Sequence[str]) -> None:
    """Only the verb that was named, so that one verb's answer does not wait for all the others; all of them for help."""
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    for verb in (named,) if named in VERBS else VERBS:
        importlib.import_module(f"headwater.cli.{verb}")


def main() -> None:
    """Run one verb. A traceback is shown only to those who ask for it with ``--debug``."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        load_verbs(arguments)
        app(args=arguments, prog_name="headwater")
    except HeadwaterError as error:
        if debug:
            raise
        show_error(error, as_json="--json" in arguments)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        note("stopped")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        surprise = (disk_trouble(error) if isinstance(error, OSError) else None) or Surprise(error)
        show_error(surprise, as_json="--json" in arguments)
        sys.exit(surprise.exit_status)
