"""Spark's exceptions as Headwater errors: the problem, the evidence and a remedy, without a stack trace."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from headwater.core.errors import HeadwaterError, JobFailed, JobRefused
from headwater.jars.versions import kafka_package

SPARK_ERRORS = (PySparkException, Py4JError)
CONDITION = re.compile(r"^\[(?P<name>[A-Z0-9_.]+)\]\s*")
# An error of Headwater's own code that a Python worker raised, as its traceback ends with it.
REPORTED_BY_WORKER = re.compile(
    r"\nheadwater\.[\w.]+: error\[[\w-]+\]: (?P<problem>.+)(?P<evidence>(?:\n  .+)*)\nhelp: (?P<help>.+)"
)
INCOMPATIBLE_STATE = (
    "SCHEMA_NOT_COMPATIBLE",
    "SCHEMA_INCOMPATIBLE",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
)
# How Spark refuses another number of sources, without a condition.
OTHER_SOURCES = "sources in the checkpoint offsets"
# SPARK-57438, in the Kafka connector of Spark 4.1: the first batch of a start was planned by an earlier one.
NO_LATEST_OFFSETS = 'Cannot invoke "scala.collection.IterableOps.map(scala.Function1)"'
INTERRUPTED_START = re.compile(
    r"STREAMING_PYTHON_RUNNER_INITIALIZATION_COMMUNICATION_FAILURE\].*Cause: null(?!\S)", re.DOTALL
)
INTERRUPTIONS = ("InterruptedException", "ClosedByInterruptException", "InterruptedIOException")
TRAILING_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


@contextmanager
def explained(problem: str) -> Iterator[None]:
    """Turn an exception that Spark raises inside the block into a refusal of the job."""
    try:
        yield
    except HeadwaterError:
        raise
    except SPARK_ERRORS as error:
        raise refusal(problem, error) from error


def refusal(problem: str, error: Exception) -> JobRefused:
    """Return a refusal for an exception that Spark raised while it analyzed a plan."""
    condition, sentence = condition_of(error), first_sentence(error)
    if condition.startswith("UNRESOLVED_COLUMN"):
        parameters = error.getMessageParameters() if isinstance(error, AnalysisException) else {}
        name = (parameters or {}).get("objectName", "a column")
        known = (parameters or {}).get("proposal", "")
        return JobRefused(
            "unknown-column",
            f"there is no column {name}",
            evidence={"columns": known.replace("`", "")} if known else {"reason": sentence},
            remedy="use one of these columns, or add the field to the source's schema",
        )
    if condition == "PATH_NOT_FOUND":
        return JobRefused(
            "no-folder",
            "there are no files to read",
            evidence={"reason": sentence},
            remedy="start the job when the first file has arrived (a prefix in an object store exists only then)",
        )
    if sentence.startswith("Failed to find data source: kafka"):
        return JobRefused(
            "no-kafka-connector",
            "this Spark session has no Kafka connector",
            evidence={"needs": kafka_package()},
            remedy=f"start the session with --packages {kafka_package()}, or call start() in a process without a session",
        )
    named = condition and not condition.startswith("_LEGACY")
    return JobRefused("spark-refuses", problem, evidence={condition if named else "reason": sentence})


def is_interruption(error: Exception) -> bool:
    """Return whether a query that was stopped reports the interruption itself as its failure.

    Spark recognizes an interruption by its type, but not as the cause of another exception. It also replaces one by an
    error of its own, without its message, where it starts the Python process of custom state.
    """
    return root_cause(error) in INTERRUPTIONS or INTERRUPTED_START.search(str(error)) is not None


def failure(name: str, error: Exception) -> JobFailed:
    """Return the error for a query that failed while it was running."""
    text = str(error)
    if NO_LATEST_OFFSETS in text and "KafkaV2[" in text:
        return JobFailed(
            "kafka-progress",
            f"{name} has committed a batch, and Spark's Kafka connector failed to report its progress",
            evidence={"cause": "SPARK-57438: Spark 4.1 fails after a batch that an earlier start had planned"},
            remedy="start the job again: it resumes with the next batch",
        )
    if reported := REPORTED_BY_WORKER.search(text):
        evidence = {"cause": reported["problem"]}
        evidence |= dict(re.findall(r"  (\S+)  +(\S.*)", reported["evidence"]))
        remedy = f"{reported['help']}; then start the job again: it resumes with this batch"
        return JobFailed("job-failed", f"{name} failed", evidence=evidence, remedy=remedy)
    python = re.search(r"Traceback \(most recent call last\):.*?\n(\w[\w.]*(?:Error|Exception)?: .*)", text, re.DOTALL)
    evidence = {"cause": _last_line(python[1]) if python else root_cause(error)}
    file = failed_file(error)
    if file:
        evidence["file"] = file
    where = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', text)
    own = [place for place in where if "/pyspark/" not in place[0] and "headwater/spark" not in place[0]]
    if own:
        file, line, function = own[-1]
        evidence["in"] = f"{file}:{line} ({function})"
    return JobFailed("job-failed", f"{name} failed", evidence=evidence, remedy="add --debug to see Spark's full error")


def _last_line(trace: str) -> str:
    """Return how a Python traceback ends; for an exception of Java, that exception's message."""
    first, _, rest = trace.partition("\n")
    if not first.startswith("py4j.protocol.Py4JJavaError") or not rest.startswith(": "):
        return first
    message = re.sub(r"^: [\w.$]+: ", "", rest.partition("\n")[0])
    return TRAILING_STATE.sub("", CONDITION.sub("", message))


def refuses_state(error: Exception) -> bool:
    """Return whether Spark refuses to resume from the state of a checkpoint."""
    cause = f"{condition_of(error)} {root_cause(error)} {error}"
    return any(name in cause for name in INCOMPATIBLE_STATE)


def resume_failure(name: str, error: Exception, *, job: str, checkpoint: str) -> JobFailed:
    """Return the error for a query that failed; ``job`` is how the user names it.

    If its code and its checkpoint do not match, the remedy is the command that compares them.
    """
    is_state = refuses_state(error)
    if not is_state and OTHER_SOURCES not in str(error):
        return failure(name, error)
    return JobFailed(
        "state-incompatible" if is_state else "other-sources",
        f"{name} cannot resume from {'the state of ' if is_state else ''}this checkpoint: its code has changed",
        evidence={"cause": shortened_schemas(root_cause(error)), "checkpoint": checkpoint},
        remedy=f"headwater check {job} --checkpoint {checkpoint}   (shows every difference)",
    )


def shortened_schemas(text: str) -> str:
    """Return a message of Spark without the two schemas that it quotes in full."""
    return re.split(r"\s*Existing (?:key|value)_schema=", text)[0]


def condition_of(error: Exception) -> str:
    if isinstance(error, PySparkException):
        return str(error.getCondition() or "")
    found = CONDITION.search(_java_message(error))
    return found["name"] if found else ""


def first_sentence(error: Exception) -> str:
    text = TRAILING_STATE.sub("", CONDITION.sub("", _java_message(error).strip())).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    return line.removesuffix(";")


def root_cause(error: Exception) -> str:
    """Return the message of the innermost Java exception; the outer ones only report that something failed."""
    cause = _innermost(error)
    if cause is None:
        return _innermost_text(error)
    text = TRAILING_STATE.sub("", CONDITION.sub("", str(cause.getMessage() or ""))).strip().partition("\n")[0]
    # The message of some exceptions is a bare name that means nothing without the class.
    return text if " " in text else f"{cause.getClass().getSimpleName()}: {text}".removesuffix(": ")


def _innermost(error: Exception) -> Any | None:
    cause = _throwable(error)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def _innermost_text(error: Exception) -> str:
    """Return the message of the last cause that PySpark has kept, for exceptions of classes that it does not know."""
    while (cause := getattr(error, "_cause", None)) is not None:
        error = cause
    text = str(error).strip().partition("\n")[0]
    # Such a message begins with a Java class, and some consist of it.
    return re.sub(r"^(?:\w+\.)+(?:\w+: (?=.* )|(?=\w+$))", "", text) or type(error).__name__


def failed_file(error: Exception) -> str | None:
    """Return the file that Spark could not read, if an exception on the way to the cause names one."""
    messages, cause = [str(error)], _throwable(error)
    while cause is not None:
        messages.append(str(cause.getMessage() or ""))
        cause = cause.getCause()
    found = re.search(r"error while reading file (\S+?)\.(?:\s|$)", "\n".join(messages))
    return unquote(found[1]).removeprefix("file://") if found else None


def _throwable(error: Exception | None) -> Any | None:
    """Return the Java exception behind a Python exception or behind its cause."""
    while error is not None:
        throwable = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
        if throwable is not None:
            return throwable
        error = getattr(error, "_cause", None)
    return None


def _java_message(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage() or error.java_exception.toString())
    if isinstance(error, StreamingQueryException):
        return root_cause(error)
    return str(error)


def user_code_place(error: BaseException, file: str) -> str | None:
    """Return ``file:line`` of the innermost frame in the user's own file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{frames[-1].lineno}" if frames else None
