"""The schema of Avro or Protobuf records as a value that can be sent to Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

BinaryFormat: TypeAlias = Literal["avro", "protobuf"]
BINARY_FORMATS: tuple[BinaryFormat, ...] = ("avro", "protobuf")


class MalformedRecord(ValueError):
    """A record that cannot be decoded; the message is the reason."""


@dataclass(frozen=True)
class RecordSchema:
    """A complete schema: decoding with it needs no file, and a registry only for the schemas of other writers.

    ``texts`` are Avro schemas as JSON, types that others refer to first; ``descriptors`` is a serialized
    ``FileDescriptorSet`` and ``message`` the full name of its message. With ``registry``, each record starts with the id
    of its writer's schema. ``schema_id`` is the id of this schema in the registry, if it comes from there.
    """

    format: BinaryFormat
    texts: tuple[str, ...] = ()
    descriptors: bytes = field(default=b"", repr=False)
    message: str = ""
    registry: str | None = field(default=None, repr=False)  # it may contain a password
    schema_id: int | None = None
