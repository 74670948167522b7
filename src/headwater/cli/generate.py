"""``headwater generate``: write generated data to a topic, a folder, an object store, or a Delta or Iceberg table."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import json_line, note, progress_bar, say

if TYPE_CHECKING:
    from headwater.core.uris import Uri
    from headwater.datagen.files import FileWriter
    from headwater.kafka.records import TopicWriter
    from headwater.lakehouse.delta_lines import DeltaLineWriter
    from headwater.lakehouse.iceberg_lines import IcebergLineWriter

DEFAULT_EVERY_SECONDS = 5.0


class ShapeName(StrEnum):
    """The kinds of records that can be generated."""

    visits = "visits"
    purchases = "purchases"
    trades = "trades"
    sales = "sales"
    items = "items"
    products = "products"
    sessions = "sessions"
    impressions_and_clicks = "impressions,clicks"


@app.command(rich_help_panel=RUN)
def generate(
    shape: ShapeName = typer.Argument(help="Kind of records."),
    to: list[str] = typer.Option(
        ...,
        "--to",
        metavar="URI",
        help="Target: kafka://127.0.0.1:9092/visits, files:DIR?format=json, s3://BUCKET/DIR, delta:PATH or "
        "iceberg:CATALOG.DATABASE.TABLE?catalog.type=jdbc&…. NAME=URI for each stream of impressions,clicks.",
    ),
    rate: float = typer.Option(None, "--rate", help="Records per second; default: as fast as possible."),
    count: int = typer.Option(None, "--count", min=1, help="Total number of records; default: until Ctrl-C."),
    late: str = typer.Option("0%", "--late", help="Share of records that are hours late (purchases: weeks)."),
    duplicates: str = typer.Option("0%", "--duplicates", help="Share of records that repeat a recent one."),
    malformed: str = typer.Option(
        "0%", "--malformed", help="Share of records that are truncated, of a wrong type, or garbage."
    ),
    seed: int = typer.Option(
        None, "--seed", help="The same seed and options give the same bytes; default: a random seed, which is shown."
    ),
    start: str = typer.Option(
        None,
        "--start",
        metavar="TIME|now",
        help="First event time, or 'now'; default: 2024-10-06T10:00:00Z with --count or --seed, else now.",
    ),
    per_file: int = typer.Option(1000, "--per-file", min=1, help="Maximum number of records per file."),
    every: float = typer.Option(
        DEFAULT_EVERY_SECONDS, "--every", min=0.01, help="With --rate: write a file at least every this many seconds."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the summary as one JSON object."),
) -> None:
    """Write generated records to a Kafka topic, or as files to a folder or to S3.

    With --count or --seed, the records are reproducible: event time starts at a fixed instant and advances by a step
    of the record kind, regardless of the rate. Otherwise event time is the current time. --count is the total number
    of records, including late, duplicate and malformed ones.

    impressions,clicks generates two streams that belong together: a third of the impressions are clicked later.
    products writes a table of 100 products, to which items refer. It replaces the table that is there; the prices
    depend on the seed.

    Examples:
      headwater generate visits --to kafka://127.0.0.1:9092/visits --rate 100 --late 5% --malformed 1%
      headwater generate sales --to 'files:data/sales?format=json' --count 10000 --seed 7
      headwater generate sales --to s3://bucket/landing --rate 100 --every 60
      headwater generate products --to files:data/products --seed 7
      headwater generate impressions,clicks --to impressions=files:data/impressions --to clicks=files:data/clicks
    """
    import secrets
    import signal
    from threading import Event

    from headwater.core.errors import UsageProblem
    from headwater.core.uris import parse_uri
    from headwater.datagen.sending import send_stream
    from headwater.datagen.stream import RecordStream, Shares

    if shape is ShapeName.products:
        options = {"--rate": rate, "--count": count, "--start": start}
        faults_asked = {"--late": _share(late), "--duplicates": _share(duplicates), "--malformed": _share(malformed)}
        _write_products(to, seed, {**options, **faults_asked}, as_json=as_json)
        return
    shares = {"late": _share(late), "duplicates": _share(duplicates), "malformed": _share(malformed)}
    if sum(shares.values()) > 1:
        raise UsageProblem(
            "bad-share",
            "the shares of late, duplicate and malformed records add up to more than 100%",
            remedy="--late 5%",
        )
    if rate is not None and rate <= 0:
        raise UsageProblem("bad-rate", "--rate must be greater than zero", remedy="--rate 100")
    uris = {name: parse_uri(uri) for name, uri in _named_targets(to, shape.value).items()}
    start_ms = _start_ms(start, fixed=seed is not None or count is not None)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    format_name = _common_format(uris)
    stream = RecordStream(shape.value, seed=seed, shares=Shares(**shares), format=format_name)

    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    records_per_file = per_file if rate is None else max(1, min(per_file, round(rate * every)))
    with ExitStack() as opened, progress_bar(shape.value, count) as show:
        targets = {
            name: opened.enter_context(_target(uri, shape.value, name, format_name, records_per_file))
            for name, uri in uris.items()
        }
        tally = send_stream(
            stream,
            targets,
            start_ms=start_ms,
            count=count,
            rate=rate,
            stop=stop,
            on_progress=lambda tally: show(tally.records),
        )
    faults = {"late": tally.late, "duplicates": tally.duplicates, "malformed": tally.malformed}
    redacted = {name: uri.redacted() for name, uri in uris.items()}
    if as_json:
        numbers = {"records": tally.records, **faults, "seconds": round(tally.seconds, 3), "rate": round(tally.rate, 1)}
        one = len(redacted) == 1
        places = {"to": redacted[shape.value]} if one else {"to": redacted, "streams": dict(tally.by_stream)}
        json_line({"shape": shape.value, **places, **numbers, "seed": seed})
        return
    say(
        ", ".join(f"{tally.by_stream[name]:,} {name} to {place}" for name, place in redacted.items())
        + f" in {tally.seconds:.1f} s ({tally.rate:,.0f} per second): "
        + ", ".join(f"{number:,} {fault}" for fault, number in faults.items())
        + f"; seed {seed}"
    )


def _write_products(to: list[str], seed: int | None, options: dict[str, Any], *, as_json: bool) -> None:
    """Write the table of products as one file, which replaces the one of an earlier run."""
    import secrets

    from headwater.checkpoint.locate import open_files
    from headwater.core.errors import UsageProblem
    from headwater.core.uris import parse_uri
    from headwater.datagen.files import SUFFIXES
    from headwater.datagen.products import product_lines

    given = [name for name, value in options.items() if value]
    if given:
        raise UsageProblem(
            "bad-option",
            f"{given[0]} does not apply to products, which are a table",
            remedy="headwater generate products --to files:data/products",
        )
    uri = parse_uri(to[0])
    format_name = _format(uri)
    if uri.scheme != "files" or format_name == "text" or len(to) > 1:
        raise UsageProblem(
            "bad-target",
            "products are written as json or csv to one folder",
            evidence={"found": ", ".join(parse_uri(one).redacted() for one in to)},
            remedy="--to files:data/products",
        )
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    lines = product_lines(seed, format_name, header=uri.options.get("header", "").lower() == "true")
    name = f"products{SUFFIXES[format_name]}"
    open_files(uri.path).write(name, "".join(f"{line}\n" for line in lines).encode())
    if as_json:
        json_line({"shape": "products", "to": uri.redacted(), "records": len(lines), "seed": seed})
        return
    say(f"{len(lines)} products to {uri.path.rstrip('/')}/{name}; seed {seed}")


def _named_targets(texts: list[str], shape: str) -> dict[str, str]:
    """Return the URI of each stream of a shape: ``NAME=URI``, or just the URI if the shape has a single stream."""
    from headwater.core.errors import UsageProblem
    from headwater.datagen.shapes import SHAPES
    from headwater.jobs.loading import NAMED_SOURCE

    names = list(SHAPES[shape].streams())
    if len(names) == 1 and len(texts) == 1:
        return {names[0]: texts[0]}
    given = [text.partition("=")[::2] if NAMED_SOURCE.match(text) else ("", text) for text in texts]
    if sorted(name for name, _ in given) != sorted(names):
        several = len(names) > 1
        problem = f"{shape} needs one --to for each of its streams" if several else f"{shape} are written to one target"
        example = " ".join(f"--to {name}=files:data/{name}" for name in names)
        raise UsageProblem(
            "bad-target",
            problem,
            evidence={"found": ", ".join(f"{name or 'no name'}" for name, _ in given)} if several else None,
            remedy=example if several else f"--to {texts[0]}",
        )
    return {name: dict(given)[name] for name in names}


def _common_format(uris: dict[str, Uri]) -> str:
    from headwater.core.errors import UsageProblem

    formats = {name: _format(uri) for name, uri in uris.items()}
    if len(set(formats.values())) > 1:
        raise UsageProblem(
            "bad-target",
            "all streams of one command are written in the same format",
            evidence=dict(formats),
            remedy="--to impressions=files:data/impressions --to clicks=files:data/clicks",
        )
    return next(iter(formats.values()))


def _share(text: str) -> float:
    from headwater.core.errors import UsageProblem

    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest.strip() or not 0 <= share <= 1:
        raise UsageProblem(
            "bad-share",
            "a share must be between 0% and 100%",
            evidence={"found": text},
            remedy="write it like 5% or 0.05",
        )
    return share


def _start_ms(text: str | None, *, fixed: bool) -> int | None:
    from headwater.core.errors import UsageProblem
    from headwater.core.times import ms_from_iso
    from headwater.datagen.stream import FIXED_START_MS

    if text is None:
        return FIXED_START_MS if fixed else None
    if text == "now":
        return None
    try:
        return ms_from_iso(text)
    except ValueError:
        raise UsageProblem(
            "bad-time",
            "--start is not a valid time",
            evidence={"found": text},
            remedy="--start 2024-10-06T10:00:00Z, or --start now",
        ) from None


def _format(uri: Uri) -> str:
    from headwater.core.errors import UsageProblem
    from headwater.datagen.files import SUFFIXES

    if uri.scheme == "kafka":
        return "json"
    found = uri.options.get("format", "json")
    settings = {name for name in uri.options if uri.scheme == "iceberg" and name.startswith("catalog.")}
    unknown = uri.options.keys() - {"format", "header"} - settings
    if uri.scheme not in ("files", "delta", "iceberg") or found not in SUFFIXES or unknown:
        raise UsageProblem(
            "bad-target",
            "generated records can be written to a Kafka topic, as json, csv or text to a folder or to S3, or to a Delta "
            "or Iceberg table",
            evidence={"found": uri.redacted()},
            remedy="--to kafka://127.0.0.1:9092/visits, or --to 'files:data/visits?format=json'",
        )
    return found


def _target(
    uri: Uri, shape: str, stem: str, format_name: str, per_file: int
) -> AbstractContextManager[TopicWriter | FileWriter | DeltaLineWriter | IcebergLineWriter]:
    from pathlib import Path

    from headwater.core.errors import UsageProblem
    from headwater.datagen.files import SUFFIXES, FolderWriter, ObjectWriter
    from headwater.datagen.shapes import SHAPES
    from headwater.kafka.options import Connection
    from headwater.kafka.records import TopicWriter

    if uri.scheme == "delta":
        from headwater.checkpoint.locate import open_files
        from headwater.lakehouse.delta_lines import DeltaLineWriter

        return DeltaLineWriter(open_files(str(Path(uri.path).absolute())), records_per_file=per_file)
    if uri.scheme == "iceberg":
        from headwater.lakehouse.iceberg_lines import IcebergLineWriter
        from headwater.lakehouse.tables import TableUri

        return IcebergLineWriter(TableUri("iceberg", uri.path, uri.options), records_per_file=per_file)
    if uri.scheme == "files":
        header = uri.options.get("header", "false").lower() == "true" and format_name == "csv"
        layout: dict[str, Any] = {
            "stem": stem,
            "suffix": SUFFIXES[format_name],
            "records_per_file": per_file,
            "header": ",".join(SHAPES[shape].streams()[stem]) if header else None,
        }
        is_url = "://" in uri.path
        return ObjectWriter(uri.path, **layout) if is_url else FolderWriter(Path(uri.path).expanduser(), **layout)
    foreign = [name for name in uri.options if not name.startswith("kafka.")]
    if foreign or "," in uri.path or not uri.path:
        raise UsageProblem(
            "bad-target",
            f"option {foreign[0]} does not apply to writing"
            if foreign
            else "generated records go to exactly one topic",
            evidence={"found": uri.redacted()},
            remedy=f"--to kafka://{uri.address}/{uri.path.split(',')[0] or 'visits'}",
        )
    writer = TopicWriter(Connection.from_uri(uri), uri.path)
    if writer.created:
        note(f"created topic {uri.path}")
    return writer
