"""``headwater jars``: download the jars ahead of time, and list them."""

from __future__ import annotations

import typer

from headwater.cli.app import RUN, JsonLines, app
from headwater.cli.output import json_lines, note, say, table
from headwater.core.text import count


@app.command(rich_help_panel=RUN)
def jars(
    configuration: list[str] = typer.Option(
        ["spark"],
        "--configuration",
        "-c",
        help="Set of jars: spark (the Kafka connector), broker, s3, postgres, delta or iceberg. Repeatable.",
    ),
    archive: bool = typer.Option(
        True, help="Also create a class archive for Spark (160 MB), which shortens every later start by a third."
    ),
    as_json: JsonLines = False,
) -> None:
    """Download and list the jars that Spark and the broker need.

    Jars are downloaded automatically on first use. Run this command to do it ahead of time, and to make Spark start
    faster.

    Example:
      headwater jars --configuration spark --configuration broker
    """
    from headwater.core.errors import UsageProblem
    from headwater.jars.resolve import CONFIGURATIONS, jar_paths

    unknown = [name for name in configuration if name not in CONFIGURATIONS]
    if unknown:
        raise UsageProblem(
            "unknown-configuration",
            f"there is no set of jars named {unknown[0]!r}",
            evidence={"known": ", ".join(CONFIGURATIONS)},
            remedy=f"headwater jars --configuration {CONFIGURATIONS[0]}",
        )
    found = [(name, jar) for name in configuration for jar in jar_paths(name, on_fetch=note)]
    if archive and "spark" in configuration:
        _create_class_archive()
    if as_json:
        json_lines(
            {"configuration": name, "name": jar.name, "bytes": jar.stat().st_size, "path": str(jar)}
            for name, jar in found
        )
        return
    table(
        ["configuration", "jar", "kB"], [(name, jar.name, f"{jar.stat().st_size / 1000:,.0f}") for name, jar in found]
    )
    total = sum(jar.stat().st_size for _, jar in found)
    say(f"{count(len(found), 'jar')}, {total / 1e6:,.1f} MB, in {found[0][1].parent.parent}")


def _create_class_archive() -> None:
    from headwater.jars.java import require_java
    from headwater.spark.class_archive import archive_file, create_archive
    from headwater.spark.session import local_class_path

    jars = local_class_path()
    create_archive(archive_file(require_java(), jars), jars, report=note)
