"""Orders per status, which shows the difference between the output modes.

Complete mode emits every status after each batch, update mode only those that changed. Append mode emits rows that are
final, which a count without a watermark never is. With ``aggregate=false`` the result is the orders themselves, which
can only be appended.
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
