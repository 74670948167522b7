"""A table of products for the items that ``Items`` generates. The prices depend on the seed, the products do not."""

from __future__ import annotations

import json
import random

CATEGORIES = {
    "drinks": ("tea", "coffee", "juice", "water"),
    "bakery": ("bread", "rolls", "bagels", "cake"),
    "produce": ("apples", "carrots", "onions", "lemons"),
    "dairy": ("milk", "butter", "cheese", "yogurt"),
    "household": ("soap", "candles", "sponges", "matches"),
}
SIZES = ("small", "regular", "large", "organic", "family")
COLUMNS = ("product", "name", "category", "price")
Product = tuple[str, str, str, int]


def product_rows(seed: int) -> list[Product]:
    """Return the rows of the table, with prices in cents."""
    rng = random.Random(f"products {seed}")  # noqa: S311 - repeatable test data
    kinds = [(category, noun) for category, nouns in CATEGORIES.items() for noun in nouns]
    named = [(f"{size} {noun}", category) for size in SIZES for category, noun in kinds]
    return [
        (f"p{number}", name, category, rng.randrange(10, 400) * 5)
        for number, (name, category) in enumerate(named, start=1)
    ]


PRODUCTS = len(SIZES) * sum(map(len, CATEGORIES.values()))


def product_lines(seed: int, format_name: str, *, header: bool = False) -> list[str]:
    """Return the table as lines of json or csv."""
    rows = product_rows(seed)
    if format_name == "csv":
        return [*([",".join(COLUMNS)] if header else []), *(",".join(map(str, row)) for row in rows)]
    return [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows]
