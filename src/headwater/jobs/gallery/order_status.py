"""Orders per status, to see what the output modes mean.

complete gives every status after each batch, update only those that changed. append gives rows that are final, which a
count without a watermark never is: with ``aggregate=false`` the orders themselves can be appended, and only appended.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Console, Files, Job


def order_status(orders: DataFrame, *, aggregate: bool = True) -> DataFrame:
    """Orders per status, or with aggregate=false the orders themselves."""
    return orders.groupBy("order_status").count() if aggregate else orders


ORDER_STATUS = Job(
    "order-status",
    order_status,
    reads=Files("data/orders", schema="order_id INT, order_status STRING"),
    writes=Console(),
    mode="complete",
)
