"""Words typed into a socket, counted for ever: the "hello world" of streams.

Complete mode prints all counts after each batch. A socket cannot be read again after a failure: use it to play.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job, Socket


def count_words(lines: DataFrame) -> DataFrame:
    """How often each word has come so far."""
    words = lines.select(F.explode(F.split("value", r"\s+")).alias("word"))
    return words.where("word <> ''").groupBy("word").count()


WORD_COUNT = Job("word-count", count_words, reads=Socket(port=9999), writes=Console(), mode="complete")
