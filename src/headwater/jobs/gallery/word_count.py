"""Words typed into a socket, counted: the "hello world" of streaming.

Complete mode prints all counts after each batch. Use a socket only for experiments: it cannot be read again, so every start
counts from zero.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job, Socket


def count_words(lines: DataFrame) -> DataFrame:
    """How often each word has occurred so far."""
    words = lines.select(F.explode(F.split("value", r"\s+")).alias("word"))
    return words.where("word <> ''").groupBy("word").count()


WORD_COUNT = Job("word-count", count_words, reads=Socket(), writes=Console(), mode="complete")
