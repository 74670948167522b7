"""The optional parts of the installation: which packages they bring, and the error if one is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.core.errors import SetupProblem

# The extra that brings each package, by the name under which the package is imported.
EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "grpc": "spark",
    "confluent_kafka": "kafka",
    "psycopg": "postgres",
    "nicegui": "ui",
    "uvicorn": "ui",
    "starlette": "ui",
    "fastapi": "ui",
    "prometheus_client": "metrics",
    "s3fs": "s3",
    "fastavro": "avro",
    "pyiceberg": "iceberg-tables",
    "sqlalchemy": "iceberg-tables",
    "google": "protobuf",
    "grpc_tools": "protobuf",
    "opentelemetry": "otel",
}
PURPOSES = {
    "spark": "running, testing and replaying jobs needs PySpark",
    "kafka": "this needs a Kafka client",
    "postgres": "this needs a PostgreSQL client",
    "ui": "the page needs NiceGUI",
    "metrics": "serving metrics needs the Prometheus client",
    "s3": "checkpoints in S3 need s3fs",
    "avro": "Avro records and Iceberg's manifests need fastavro",
    "iceberg-tables": "a table in such a catalog needs PyIceberg",
    "protobuf": "Protobuf records need grpcio-tools",
    "otel": "sending traces needs the OpenTelemetry SDK",
}


def missing_extra(error: ModuleNotFoundError) -> SetupProblem | None:
    """Return the error to show for an import that failed; None if no extra brings the package."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return SetupProblem(
        "missing-extra",
        f"{PURPOSES[extra]}, which is not installed",
        evidence={"package": package},
        remedy=f"pip install 'headwater[{extra}]'",
    )


def require_packages(*packages: str) -> None:
    """Raise the error that names the extras of all packages that are not installed. None of them is imported."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        extras = list(dict.fromkeys(EXTRAS[package] for package in missing))
        raise SetupProblem(
            "missing-extra",
            "this needs packages that are not installed",
            evidence={"packages": ", ".join(missing)},
            remedy=f"pip install 'headwater[{','.join(extras)}]'",
        )


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turn a failed import of an optional package into the error that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        problem = missing_extra(error)
        if problem is None:
            raise
        raise problem from error
