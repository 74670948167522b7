"""Parsed logs keep the bytes that were read."""

from __future__ import annotations

import pytest

from corpus_support import as_memory_files, corpus_names, sampled
from headwater.checkpoint.file_logs import log_with, parse_file_source_log
from headwater.checkpoint.layout import log_id
from headwater.checkpoint.log_entries import parse_commit, parse_offsets, parse_query_metadata
from headwater.checkpoint.operator_metadata import parse_operator_metadata


def parser_for(path: str, data: bytes):
    folder, _, name = path.rpartition("/")
    if path == "metadata":
        return parse_query_metadata
    if folder == "offsets" and name.isdigit():
        return parse_offsets
    if folder == "commits" and name.isdigit():
        return parse_commit
    if folder.startswith("sources/") and log_id(name) is not None and b'"path"' in data:
        return parse_file_source_log
    if folder.endswith(("/_metadata", "/_metadata/v2")) and (name == "metadata" or name.isdigit()):
        return parse_operator_metadata
    return None


@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_every_log_file_of_the_corpus(name: str) -> None:
    """Each log that Spark wrote keeps its exact bytes, and each kind of log occurs."""
    seen = set()
    for path, data in as_memory_files(name).contents.items():
        parse = parser_for(path, data)
        if parse is not None:
            seen.add(parse.__name__)
            assert parse(data, path).text.to_bytes() == data, path
    assert {"parse_query_metadata", "parse_offsets", "parse_commit"} <= seen


@pytest.mark.parametrize("name", corpus_names("aggregation"))
def test_source_log_built_from_its_entries(name: str) -> None:
    """A source log built from its entries is what Spark wrote."""
    for path, data in as_memory_files(name).contents.items():
        if parser_for(path, data) is parse_file_source_log:
            assert log_with(parse_file_source_log(data, path).entries) == data


@pytest.mark.parametrize("data", [b"v1\n{}\n-\n", b"v1\r\n{}\r\n3", b"v1\n\n3\n\n", b'v2\n{"conf":{}}\na:b:c\nd:-'])
def test_odd_line_ends_survive(data: bytes) -> None:
    """Trailing line breaks, Windows line ends and blank lines are kept."""
    assert parse_offsets(data, "offsets/0").text.to_bytes() == data
