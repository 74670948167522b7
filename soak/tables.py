"""Versions of the static table of products, which changes between the runs of a job."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from soak.records import PRODUCTS, Fields

Product: TypeAlias = dict[str, Any]
CATEGORIES = ("drinks", "bakery", "household", "Käse", None)


@dataclass
class ProductTable:
    """A folder with one file, which is replaced with a rename. The stories see the products of every version."""

    folder: Path
    versions: list[dict[str, Product]] = field(default_factory=list)

    @property
    def version(self) -> int:
        return len(self.versions) - 1

    def replace(self, seed: int) -> int:
        """Write a new version and return the number of its products: about a fifth of them are missing."""
        rng = random.Random(f"{seed} products")
        chosen = [f"p{number}" for number in range(PRODUCTS) if rng.random() < 0.8]
        rows = {
            product: {
                "product": product,
                "name": f"{product} of {seed}",
                "category": rng.choice(CATEGORIES),
                "price": rng.randrange(100, 900),
            }
            for product in chosen
        }
        self._write(rows)
        return len(rows)

    def restore(self, version: int) -> None:
        """Write the products of an earlier version as a new one."""
        self._write(self.versions[version])

    def _write(self, rows: dict[str, Product]) -> None:
        self.folder.mkdir(exist_ok=True)
        draft = self.folder.with_suffix(".draft")
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
        draft.rename(self.folder / "products.json")
        self.versions.append(rows)

    def enrich(self, fields: Fields, version: int) -> Fields:
        """Return a record with the category and the price of its product; what the table lacks is unknown and free."""
        product = self.versions[version].get(fields["product"], {})
        return {**fields, "category": product.get("category") or "unknown", "price": product.get("price", 0)}
