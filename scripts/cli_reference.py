"""Write the page of the command line from the commands themselves: ``python scripts/cli_reference.py``."""

# ruff: noqa: E501  rows of a table cannot be broken

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from headwater.cli.app import BUILD, CHANGE, LOOK, RUN, app
from headwater.cli.main import load_verbs

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
HEAD = """\
# Command line

Written from the commands themselves; `headwater VERB --help` says the same. `headwater` alone lists the verbs.

| word | means |
|---|---|
| CKPT | a checkpoint: a folder, an object-store URL such as `s3://bucket/checkpoints/visits`, or the name of a job that ran here (`.headwater/checkpoints/<name>`) |
| JOB | a name of the [gallery](../gallery/README.md), `package.module:NAME` or `path/to/file.py:NAME`; the name may be left out where there is one job |
| BATCH | `41`, `HEAD` (the last committed batch), `HEAD~3` (three before it), `@10:30` or `@2026-07-01T10:30:00Z` (the last one committed by then, UTC) |
| URI | where to read or write: [sources and sinks](../concepts/sources-and-sinks.md) |

Every command that reads takes `--json`: one JSON object a line on standard output, errors as an object on standard error. Answers
go to standard output; progress, notes and warnings to standard error. `--debug` shows the traceback of a failure. Exit statuses and
error codes have [a page of their own](errors.md).

`headwater --install-completion` teaches bash, zsh, fish or PowerShell the verbs, their options, the gallery and the checkpoints of this
folder; `headwater --show-completion` prints what would be installed.
"""
ABOUT = {
    BUILD: "Find a job, and see whether it would run.",
    RUN: "Run jobs, and what they need on one machine: a broker, topics, records.",
    LOOK: "Read a checkpoint. Nothing is changed, and only `late`, `replay` and `state --engine spark` start Spark.",
    CHANGE: "Change a checkpoint: a plan first, and nothing is deleted except by `compact`.",
}


def page() -> str:
    """The whole page."""
    load_verbs([])
    verbs = typer.main.get_command(app).commands
    parts = [HEAD]
    for panel, about in ABOUT.items():
        parts.append(f"## {panel}\n\n{about}\n")
        parts += [described(name, verb) for name, verb in verbs.items() if panel == verb.rich_help_panel]
    return "\n".join(parts)


def described(name: str, verb: Any, level: int = 3) -> str:
    """One command with its arguments, options and examples; below it its own commands."""
    texts, examples = _parted(verb.help or "")
    parts = [f"{'#' * level} headwater {name}", _plain(texts)]
    inner = getattr(verb, "commands", {})
    if inner and not verb.params:
        parts.append("")
    else:
        parts += [f"```\n{_usage(name, verb)}\n```", _table(verb)]
    if examples:
        parts.append(f"```sh\n{examples}\n```")
    parts += [described(f"{name} {one}", command, level + 1).rstrip() for one, command in inner.items()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parted(text: str) -> tuple[str, str]:
    texts, _, examples = re.sub(r"\n+Examples?:\n", "\0", text).partition("\0")
    return texts, "\n".join(line.strip() for line in examples.splitlines() if line.strip())


def _plain(text: str) -> str:
    """Options and placeholders as code, so that nothing of them is taken for markup."""
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]+)", r"`\1`", text.replace("<", "&lt;").replace("|", "\\|"))


def _usage(name: str, verb: Any) -> str:
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    words = [_argument(one) if one.required else f"[{_argument(one)}]" for one in arguments]
    return " ".join(["headwater", name, *words, "[OPTIONS]" if len(arguments) < len(verb.params) else ""]).strip()


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _table(verb: Any) -> str:
    rows = [f"| {_term(one)} | {_plain(one.help or '')}{_note(one)} |" for one in verb.params if not one.hidden]
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else ""


def _term(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    names = ", ".join(sorted(parameter.opts, key=len, reverse=True))
    return f"`{names}`" if parameter.is_flag else f"`{names} {_kind(parameter)}`".replace("|", "\\|")


def _kind(parameter: Any) -> str:
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    if parameter.metavar:
        return str(parameter.metavar)
    kind = type(parameter.type).__name__.lower()
    return "NUMBER" if "int" in kind or "float" in kind else "FILE" if "path" in kind else "TEXT"


def _note(parameter: Any) -> str:
    choices = getattr(parameter.type, "choices", None)
    if parameter.param_type_name == "argument":
        return " " + ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in choices) if choices else ""
    if parameter.required:
        return " Needed."
    default = getattr(parameter.default, "value", parameter.default)
    default = " ".join(default) if isinstance(default, list | tuple) else default
    shown = default is not None and not parameter.is_flag and not callable(default)
    return f" Default: `{default}`." if shown and parameter.show_default else ""


if __name__ == "__main__":
    PAGE.write_text(page())
