"""Orders per status, counted within each micro-batch only: each batch emits the counts of its new files.

``per_batch`` passes each micro-batch to the function as a static DataFrame. There is no state, so a batch knows nothing
about the files before it. The function is the same as in order-status, which counts across batches.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Console, Files, Job


def order_status(orders: DataFrame) -> DataFrame:
    """Orders per status, within each micro-batch only."""
    return orders.groupBy("order_status").count()


ORDER_STATUS_PER_BATCH = Job(
    "order-status-per-batch",
    order_status,
    reads=Files("data/orders", schema="order_id INT, order_status STRING"),
    writes=Console(),
    mode="update",
    per_batch=True,
)
