"""Protobuf schemas as descriptors: from a ``.proto`` text, which ``protoc`` compiles, or from a descriptor set."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from headwater.core.errors import JobRefused
from headwater.core.extras import naming_extras

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

COMPILE_SECONDS = 60
MAIN_FILE = "headwater_main_schema.proto"
# Confluent's registry takes this file as known, so that schemas import it without a reference.
CONFLUENT_META = "confluent/meta.proto"
CONFLUENT_META_TEXT = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""


def compile_texts(schemas: Sequence[tuple[str, str]]) -> bytes:
    """Return the descriptor set of ``.proto`` texts, each with the name by which others import it. The last is the schema."""
    with tempfile.TemporaryDirectory(prefix="headwater-proto-") as folder:
        for name, text in schemas:
            place = PurePosixPath(name or MAIN_FILE)
            if place.is_absolute() or ".." in place.parts:
                raise _invalid(f"a schema imports the file {name}")
            file = Path(folder, place)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return _compile(Path(folder), schemas[-1][0] or MAIN_FILE)


def compile_file(file: Path) -> bytes:
    """Return the descriptor set of a ``.proto`` file. What it imports is found relative to its folder."""
    return _compile(file.parent, file.name)


def _compile(folder: Path, name: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="headwater-proto-") as scratch:
        out = Path(scratch, "schema.desc")
        # In a process of its own: a compiler error must not end a worker.
        known = Path(scratch, CONFLUENT_META)
        known.parent.mkdir()
        known.write_text(CONFLUENT_META_TEXT, encoding="utf-8")
        arguments = [f"-I{folder}", f"-I{scratch}", "--include_imports", f"--descriptor_set_out={out}", name]
        done = subprocess.run(
            [*_compiler(), *arguments], capture_output=True, timeout=COMPILE_SECONDS, check=False, text=True
        )
        if done.returncode or not out.exists():
            raise _invalid((done.stderr.strip().splitlines() or ["protoc failed"])[0])
        return out.read_bytes()


def _compiler() -> list[str]:
    if importlib.util.find_spec("grpc_tools") is not None:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    found = shutil.which("protoc")
    if found is None:
        with naming_extras():
            raise ModuleNotFoundError("protoc is not installed either", name="grpc_tools")
    return [found]


def find_message(descriptors: bytes, name: str | None, path: Sequence[int] = ()) -> Descriptor:
    """Return a message of a descriptor set: the named one, or else the one at a path of indexes in the last file.

    Without both, the last file has to have a single message.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    files: Any = descriptor_pb2.FileDescriptorSet()
    pool: Any = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptors)
        for file in files.file:
            pool.Add(file)
        main = pool.FindFileByName(files.file[-1].name)
    except (DecodeError, TypeError, KeyError, IndexError, ValueError) as error:
        raise _invalid(f"{type(error).__name__}: {error}") from None
    messages = list(main.message_types_by_name.values())
    if path:
        return _at(messages, path)
    if not name:
        if len(messages) == 1:
            return messages[0]
        raise JobRefused(
            "no-message",
            "the Protobuf schema has several messages" if messages else "the Protobuf schema has no message",
            evidence={"messages": ", ".join(one.full_name for one in messages) or "none"},
            remedy=f'name one: message="{messages[0].full_name}"' if messages else "give a file with a message",
        )
    everywhere = [one for file in files.file for one in pool.FindFileByName(file.name).message_types_by_name.values()]
    found = [one for one in everywhere if name in (one.full_name, one.name)] or [
        one for outer in everywhere for one in _nested(outer) if name == one.full_name
    ]
    if len(found) != 1:
        raise JobRefused(
            "no-message",
            f"the Protobuf schema has {'no' if not found else 'several'} messages named {name}",
            evidence={"messages": ", ".join(one.full_name for one in everywhere)},
            remedy="use the full name of one of them: message=PACKAGE.NAME",
        )
    return found[0]


def path_of(message: Descriptor) -> tuple[int, ...]:
    """Return the indexes of a message in its file, from the file inwards."""
    outer = message.containing_type
    siblings = _declared(outer) if outer else list(message.file.message_types_by_name.values())
    return (*(path_of(outer) if outer else ()), siblings.index(message))


def _at(messages: Sequence[Any], path: Sequence[int]) -> Any:
    for depth, index in enumerate(path):
        if not 0 <= index < len(messages):
            raise _invalid(f"there is no message {list(path)}")
        if depth == len(path) - 1:
            return messages[index]
        messages = _declared(messages[index])
    raise _invalid("there is no message")


def _declared(message: Any) -> list[Any]:
    """Return the messages that are declared inside another one. Confluent's Java client does not count those of maps."""
    return [one for one in message.nested_types_by_name.values() if not one.GetOptions().map_entry]


def _nested(message: Any) -> list[Any]:
    inside = _declared(message)
    return [*inside, *(deeper for one in inside for deeper in _nested(one))]


def _invalid(reason: str) -> JobRefused:
    return JobRefused(
        "bad-schema",
        "the Protobuf schema is not valid",
        evidence={"reason": reason[:300]},
        remedy="check it with protoc; a descriptor set needs --include_imports",
    )
