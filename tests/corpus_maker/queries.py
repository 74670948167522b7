"""The queries of the corpus, one for each of Spark's stateful operators."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from . import custom_state
from .case import Inputs

DataFrame = Any


def aggregation(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .withWatermark("at", "10 minutes")
        .groupBy(F.window("at", "5 minutes"), "user")
        .agg(F.count("*").alias("n"), F.max("at").alias("last_at"), F.sum("amount").alias("total"))
    )


def complete_aggregation(inputs: Inputs) -> DataFrame:
    return inputs["events"].groupBy("kind").agg(F.count("*").alias("n"), F.avg("amount").alias("mean"))


def global_count(inputs: Inputs) -> DataFrame:
    return inputs["events"].groupBy().agg(F.count("*").alias("n"), F.max("at").alias("last_at"))


def session(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .withWatermark("at", "10 minutes")
        .groupBy(F.session_window("at", "4 minutes"), "user")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    )


def dedup(inputs: Inputs) -> DataFrame:
    return inputs["events"].withWatermark("at", "10 minutes").dropDuplicates(["user", "at"])


def dedup_without_watermark(inputs: Inputs) -> DataFrame:
    return inputs["events"].dropDuplicates(["user", "kind"])


def dedup_within_watermark(inputs: Inputs) -> DataFrame:
    return inputs["events"].withWatermark("at", "10 minutes").dropDuplicatesWithinWatermark(["user", "kind"])


def inner_join(inputs: Inputs) -> DataFrame:
    return _joined(inputs, "inner")


def left_outer_join(inputs: Inputs) -> DataFrame:
    return _joined(inputs, "leftOuter")


def _joined(inputs: Inputs, how: str) -> DataFrame:
    shown = inputs["shown"].withWatermark("shown_at", "10 minutes")
    clicked = inputs["clicked"].withWatermark("clicked_at", "10 minutes").withColumnRenamed("ad", "clicked_ad")
    within = F.expr("ad = clicked_ad AND clicked_at >= shown_at AND clicked_at <= shown_at + INTERVAL 10 MINUTES")
    return shown.join(clicked, within, how)


def window_then_window(inputs: Inputs) -> DataFrame:
    per_user = (
        inputs["events"]
        .withWatermark("at", "5 minutes")
        .groupBy(F.window("at", "5 minutes"), "user")
        .agg(F.count("*").alias("n"))
    )
    return per_user.groupBy(F.window(F.window_time("window"), "10 minutes")).agg(
        F.count("*").alias("users"), F.sum("n").alias("n")
    )


def dedup_then_window(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .withWatermark("at", "10 minutes")
        .dropDuplicates(["user", "at"])
        .groupBy(F.window("at", "5 minutes"), "kind")
        .agg(F.count("*").alias("n"))
    )


def stateless(inputs: Inputs) -> DataFrame:
    return inputs["events"].where("amount > 200").select("user", "amount", "at")


def stateless_as_json(inputs: Inputs) -> DataFrame:
    return stateless(inputs).select(F.to_json(F.struct("*")).alias("value"))


def aggregation_as_json(inputs: Inputs) -> DataFrame:
    return aggregation(inputs).select(F.to_json(F.struct("*")).alias("value"))


def custom(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .withWatermark("at", "10 minutes")
        .groupBy("user")
        .transformWithState(custom_state.Purchases(), custom_state.OUTPUT, "Update", "EventTime")
    )


def custom_with_one_more_column(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .withWatermark("at", "10 minutes")
        .groupBy("user")
        .transformWithState(custom_state.EvolvedPurchases(), custom_state.OUTPUT, "Update", "EventTime")
    )


def custom_in_pandas(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .withWatermark("at", "10 minutes")
        .groupBy("user")
        .transformWithStateInPandas(custom_state.PurchasesInPandas(), custom_state.OUTPUT, "Update", "EventTime")
    )


def custom_with_ttl(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .groupBy("user")
        .transformWithState(custom_state.Purchases(ttl_ms=3_600_000), custom_state.OUTPUT, "Update", "ProcessingTime")
    )


def pandas_state(inputs: Inputs) -> DataFrame:
    return (
        inputs["events"]
        .withWatermark("at", "10 minutes")
        .groupBy("user")
        .applyInPandasWithState(
            custom_state.running_total,
            custom_state.OUTPUT,
            custom_state.PANDAS_STATE,
            "update",
            "EventTimeTimeout",
        )
    )
