"""``headwater jars``: fetch the jars ahead of time, and list them."""

from __future__ import annotations

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import json_lines, note, say, table


@app.command(rich_help_panel=RUN)
def jars(
    configuration: list[str] = typer.Option(
        ["spark"], "--configuration", "-c", help="spark (Kafka connector), broker, s3; may be given several times."
    ),
    archive: bool = typer.Option(
        True, help="For Spark, also make a class archive (160 MB): every later start takes a third less time."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line."),
) -> None:
    """Fetch the jars that Spark or the broker need, if they are not here yet, and list them.

    They are fetched by themselves on first use; this does it ahead of time, and has Spark start faster ever after.

    Example:
      headwater jars --configuration spark --configuration broker
    """
    from headwater.core.errors import UsageProblem
    from headwater.jars.resolve import CONFIGURATIONS, jar_paths

    unknown = [name for name in configuration if name not in CONFIGURATIONS]
    if unknown:
        raise UsageProblem(
            "unknown-configuration",
            f"there are no jars called {unknown[0]!r}",
            evidence={"known": ", ".join(CONFIGURATIONS)},
            remedy=f"headwater jars --configuration {CONFIGURATIONS[0]}",
        )
    found = [(name, jar) for name in configuration for jar in jar_paths(name, on_fetch=note)]
    if archive and "spark" in configuration:
        _prepare_start()
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
    say(f"{len(found)} jars, {total / 1e6:,.1f} MB, in {found[0][1].parent.parent}")


def _prepare_start() -> None:
    from headwater.jars.java import require_java
    from headwater.spark.class_archive import archive_file, make_archive
    from headwater.spark.session import own_class_path

    jars = own_class_path()
    make_archive(archive_file(require_java(), jars), jars, on_work=note)
