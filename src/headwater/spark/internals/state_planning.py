"""Plans of stateful queries, made as for a micro-batch but without running one and without contacting the sources.

Spark plans a batch with ``IncrementalExecution``. Planning writes the metadata and the schemas of the stateful operators
below the state folder that it is given. If the folder already has them, Spark compares them with the plan, and raises the
errors that a query would raise when it starts.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it: ``check --checkpoint`` compares only what a run has recorded, not the schemas of the state.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import SparkSession

from headwater.spark.internals.gateway import first_class
from headwater.spark.internals.plans import Plan

_STREAMING = "org.apache.spark.sql.execution.streaming"
EXECUTION = (f"{_STREAMING}.runtime.IncrementalExecution", f"{_STREAMING}.IncrementalExecution")
PROPAGATOR = (f"{_STREAMING}.runtime.WatermarkPropagator", f"{_STREAMING}.WatermarkPropagator")
METADATA = (f"{_STREAMING}.checkpointing.OffsetSeqMetadata", f"{_STREAMING}.OffsetSeqMetadata")
# From the session to how commands are executed. Later releases of Spark added flags after them.
KNOWN_PARAMETERS = 14
ADAPTIVE = "spark.sql.adaptive.enabled"


def probe(spark: SparkSession) -> bool:
    with suppress(Py4JError):
        name = first_class(spark, EXECUTION)
        return name is not None and len(_parameters(spark, name)) >= KNOWN_PARAMETERS
    return False


def plan_state(spark: SparkSession, plan: Plan, mode: str, folder: str, batch: int, metadata: str) -> None:
    """Plan a batch of a query whose state is in ``folder``, and write there what the folder lacks.

    ``metadata`` is the second line of the batch's offsets: its settings replace those of the session, as when a query
    restarts. Raise Spark's exception if the plan cannot resume from the state.
    """
    jvm: Any = spark._jvm
    execution, propagator = first_class(spark, EXECUTION), first_class(spark, PROPAGATOR)
    offsets = _named(jvm, first_class(spark, METADATA) or "")
    session: Any = spark._jsparkSession.cloneSession()
    session.conf().set(ADAPTIVE, "false")
    recorded = offsets.apply(metadata)
    offsets.setSessionConf(recorded, session.sessionState().conf())
    none = jvm.scala.Option.empty()
    flags = [False] * (len(_parameters(spark, execution or "")) - KNOWN_PARAMETERS)
    maps = jvm.scala.collection.mutable
    try:
        _named(jvm, execution or "")(
            session,
            plan.node,
            getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())(),
            folder,
            jvm.java.util.UUID.fromString(str(uuid.uuid4())),
            jvm.java.util.UUID.fromString(str(uuid.uuid4())),
            batch,
            none,
            recorded,
            _named(jvm, propagator or "").noop(),
            True,  # the first batch of a run: only then does Spark compare the plan with the state
            maps.HashMap(),
            maps.HashMap(),
            jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL(),
            *flags,
        ).executedPlan()
    except Py4JJavaError as error:
        raise convert_exception(error.java_exception) from error


def _named(jvm: Any, name: str) -> Any:
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _parameters(spark: SparkSession, name: str) -> list[Any]:
    jvm: Any = spark._jvm
    loaded = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    (constructor,) = loaded.getConstructors()
    return list(constructor.getParameterTypes())
