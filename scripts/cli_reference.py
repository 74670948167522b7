"""Generate docs/reference/cli.md from the commands: ``python scripts/cli_reference.py``."""

# ruff: noqa: E501  table rows cannot be wrapped

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from headwater.cli.app import BUILD, CHANGE, INSPECT, RUN
from headwater.cli.main import root_command

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
HEAD = """\
# Command line

This page is generated from the commands; `headwater COMMAND --help` shows the same text.
`headwater` without arguments lists the commands.

| placeholder | meaning |
|---|---|
| CKPT | a checkpoint: a folder, an object-store URL such as `s3://bucket/checkpoints/visits`, or the name of a job that ran here (`.headwater/checkpoints/<name>`) |
| JOB | a job of the [gallery](../gallery/README.md), `package.module:NAME` or `path/to/file.py:NAME`; `:NAME` is optional if there is only one job |
| BATCH | `41`, `HEAD` (the last committed batch), `HEAD~3` (three before it), `@10:30` or `@2026-07-01T10:30:00Z` (the last batch committed by then, UTC) |
| URI | where to read or write: see [sources and sinks](../concepts/sources-and-sinks.md) |

Every command that reads takes `--json`, which prints one JSON object per line on standard output
and errors as an object on standard error. Results go to standard output; progress, notes and
warnings go to standard error. `--debug` shows the traceback of a failure. For exit statuses and
error codes, see [Errors](errors.md).

`headwater --install-completion` installs completion of commands, options, gallery jobs and the
checkpoints of the current folder for bash, zsh, fish or PowerShell. `headwater --show-completion`
prints what it would install.
"""
ABOUT = {
    BUILD: "Find a job and check whether it would run.",
    RUN: "Run jobs and what they need on one machine: a broker, topics and records.",
    INSPECT: "Read a checkpoint without changing it. Only `late`, `replay` and `state --engine spark` start Spark.",
    CHANGE: "Change a checkpoint. Every change shows its plan first, and only `compact` deletes anything.",
}


def page() -> str:
    """Return the complete page."""
    verbs = root_command([]).commands
    parts = [HEAD]
    for panel, about in ABOUT.items():
        parts.append(f"## {panel}\n\n{_wrap(about)}\n")
        parts += [describe(name, verb) for name, verb in verbs.items() if panel == verb.rich_help_panel]
    return "\n".join(parts)


def describe(name: str, verb: Any, level: int = 3) -> str:
    """Return one command with its arguments, options and examples, followed by its subcommands."""
    prose, examples = _split_help(verb.help or "")
    parts = [f"{'#' * level} headwater {name}", _wrap(_as_markdown(prose))]
    inner = getattr(verb, "commands", {})
    if inner and not verb.params:
        parts.append("")
    else:
        parts += [f"```\n{_usage(name, verb)}\n```", _parameter_table(verb)]
    if examples:
        parts.append(f"```sh\n{examples}\n```")
    parts += [describe(f"{name} {one}", command, level + 1).rstrip() for one, command in inner.items()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _split_help(text: str) -> tuple[str, str]:
    prose, _, examples = re.sub(r"\n+Examples?:\n", "\0", text).partition("\0")
    return prose, "\n".join(line.strip() for line in examples.splitlines() if line.strip())


def _as_markdown(text: str) -> str:
    """Format options as code and escape characters that Markdown would interpret."""
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]+)", r"`\1`", text.replace("<", "&lt;").replace("|", "\\|"))


def _wrap(text: str) -> str:
    """Wrap paragraphs at 100 columns; lists and indented lines stay as they are."""
    paragraphs = re.split(r"\n\s*\n", text)
    fixed = re.compile(r"^(\s|[-*] |\d+\. )", re.MULTILINE)
    return "\n\n".join(
        paragraph
        if fixed.search(paragraph)
        else textwrap.fill(paragraph, 100, break_long_words=False, break_on_hyphens=False)
        for paragraph in paragraphs
    )


def _usage(name: str, verb: Any) -> str:
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    shown = [_argument(one) if one.required else f"[{_argument(one)}]" for one in arguments]
    return " ".join(["headwater", name, *shown, "[OPTIONS]" if len(arguments) < len(verb.params) else ""]).strip()


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _parameter_table(verb: Any) -> str:
    rows = [
        f"| {_format_name(one)} | {_as_markdown(one.help or '')}{_format_default(one)} |"
        for one in verb.params
        if not one.hidden
    ]
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else ""


def _format_name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    names = ", ".join(sorted(parameter.opts, key=len, reverse=True))
    return f"`{names}`" if parameter.is_flag else f"`{names} {_format_type(parameter)}`".replace("|", "\\|")


def _format_type(parameter: Any) -> str:
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    if parameter.metavar:
        return str(parameter.metavar)
    kind = type(parameter.type).__name__.lower()
    return "NUMBER" if "int" in kind or "float" in kind else "FILE" if "path" in kind else "TEXT"


def _format_default(parameter: Any) -> str:
    choices = getattr(parameter.type, "choices", None)
    if parameter.param_type_name == "argument":
        return " " + ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in choices) if choices else ""
    if parameter.required:
        return " Required."
    default = getattr(parameter.default, "value", parameter.default)
    default = " ".join(default) if isinstance(default, list | tuple) else default
    shown = default is not None and not parameter.is_flag and not callable(default)
    return f" Default: `{default}`." if shown and parameter.show_default else ""


if __name__ == "__main__":
    PAGE.write_text(page())
