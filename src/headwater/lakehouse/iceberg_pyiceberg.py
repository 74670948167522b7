"""Tables in catalogs that PyIceberg knows: databases (JDBC), REST services, Hive and Glue."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.core.errors import ServiceUnreachable, UsageProblem
from headwater.core.extras import naming_extras
from headwater.lakehouse.iceberg_metadata import MAIN, TableMetadata, Wanted

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

TYPES = {
    "org.apache.iceberg.jdbc.JdbcCatalog": "sql",
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "jdbc": "sql",
}


class PyIcebergTable:
    """A table of a catalog, by its name in Spark and the settings that Spark has for the catalog.

    Without settings, those of PyIceberg apply: the file ``.pyiceberg.yaml`` and the variables ``PYICEBERG_CATALOG__*``.
    With ``creates``, the tables of a catalog are created in a database that has none, as Spark does it.
    """

    def __init__(self, name: str, settings: Mapping[str, str], *, creates: bool = False) -> None:
        self.catalog_name, _, self.identifier = name.partition(".")
        self.settings, self._creates = settings, creates

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, connected."""
        with naming_extras():
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415
        properties = pyiceberg_settings(self.settings)
        if self._creates:
            properties.pop("init_catalog_tables", None)
        try:
            return load_catalog(self.catalog_name, **properties)
        except ModuleNotFoundError as error:
            with naming_extras():
                raise
            raise catalog_unreachable(self.catalog_name, error) from error
        except ValueError as error:
            raise UsageProblem(
                "catalog",
                f"the catalog {self.catalog_name} is not configured",
                evidence={"table": f"{self.catalog_name}.{self.identifier}", "reason": str(error).splitlines()[0]},
                remedy=f"--sink 'iceberg:{self.catalog_name}.{self.identifier}?catalog.type=hadoop&catalog.warehouse=PATH'"
                f", or describe the catalog for PyIceberg: PYICEBERG_CATALOG__{self.catalog_name.upper()}__URI=…",
            ) from error
        except Exception as error:
            raise catalog_unreachable(self.catalog_name, error) from error

    def load(self) -> TableMetadata | None:
        catalog = self.catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError  # noqa: PLC0415

        try:
            table = catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:
            raise catalog_unreachable(self.catalog_name, error) from error
        value: dict[str, Any] = json.loads(table.metadata.model_dump_json(by_alias=True))
        return TableMetadata(value, table.metadata_location)

    def commit(self, base: TableMetadata, wanted: Wanted) -> None:
        if base.is_set(wanted):
            return
        catalog = self.catalog
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415
        from pyiceberg.table import update  # noqa: PLC0415

        requirements = (
            update.AssertTableUUID(uuid=base.table_id),
            update.AssertRefSnapshotId(ref=MAIN, snapshot_id=base.head),
        )
        found: list[Any] = []
        for name, target in wanted.tags.items():
            found.append(_set_ref(name, target, "tag") if target is not None else _remove_ref(name))
        if wanted.main is None:
            found.append(_remove_ref(MAIN))
        elif wanted.main != base.head:
            found.append(_set_ref(MAIN, wanted.main, "branch", base.refs.get(MAIN, {})))
        values = {name: value for name, value in wanted.properties.items() if value is not None}
        removed = [name for name, value in wanted.properties.items() if value is None and name in base.properties]
        if values:
            found.append(update.SetPropertiesUpdate(updates=values))
        if removed:
            found.append(update.RemovePropertiesUpdate(removals=removed))
        try:
            catalog.commit_table(catalog.load_table(self.identifier), requirements, tuple(found))
        except CommitFailedException:
            return  # another program was first, and the caller checks what the table has


def pyiceberg_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a Spark catalog as PyIceberg names them."""
    kind = settings.get("type") or settings.get("catalog-impl")
    if kind is None and "uri" not in settings:
        return {}
    found = {name: value for name, value in settings.items() if name not in {"type", "catalog-impl"}}
    kind = TYPES.get(kind or "", kind)
    if kind is not None:
        found["type"] = kind
    if kind == "sql" and "uri" in found:
        found["uri"] = database_url(found["uri"], found.pop("jdbc.user", None), found.pop("jdbc.password", None))
        found["init_catalog_tables"] = "false"
    return found


def database_url(jdbc: str, user: str | None = None, password: str | None = None) -> str:
    """Return the URL of a database as SQLAlchemy names it: ``jdbc:sqlite:a.db`` is ``sqlite:///a.db``."""
    url = jdbc.removeprefix("jdbc:")
    if url.startswith("sqlite:") and not url.startswith("sqlite://"):
        return f"sqlite:///{url.removeprefix('sqlite:').removeprefix('file:').partition('?')[0]}"
    if url.startswith("postgresql://"):
        login = "" if user is None else user + (f":{password}" if password else "") + "@"
        return re.sub("^postgresql://", f"postgresql+psycopg://{login}", url)
    return url


def _set_ref(name: str, target: int, kind: str, existing: Mapping[str, Any] | None = None) -> Any:
    from pyiceberg.table.update import SetSnapshotRefUpdate  # noqa: PLC0415

    ages = {name.replace("-", "_"): value for name, value in (existing or {}).items() if name.startswith(("m",))}
    return SetSnapshotRefUpdate(ref_name=name, snapshot_id=target, type=kind, **{**_AGES, **ages})


_AGES: dict[str, int | None] = {"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None}


def _remove_ref(name: str) -> Any:
    from pyiceberg.table.update import RemoveSnapshotRefUpdate  # noqa: PLC0415

    return RemoveSnapshotRefUpdate(ref_name=name)


def catalog_unreachable(name: str, error: Exception) -> ServiceUnreachable:
    """Return the error to show for a catalog that PyIceberg cannot use."""
    return ServiceUnreachable(
        "catalog-unreachable",
        f"the Iceberg catalog {name} cannot be used",
        evidence={"reason": str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__},
        remedy="check the settings of the catalog: --sink 'iceberg:CATALOG.DATABASE.TABLE?catalog.type=…&catalog.uri=…'",
    )
