"""Differences between a kernel of Triton's cache and a new compilation: code counts, and names of modules do not."""

from __future__ import annotations

import pytest

from conformance.execution.compile.cache_entries import differing

KEPT = {"source": b"tt.call @first.tiles.swizzle", "ptx": b".entry mm(", "json": b'{"name": "mm", "hash": "1"}'}


@pytest.mark.parametrize(
    ("stage", "content", "differences"),
    [
        ("source", b"tt.call @second.tiles.swizzle", []),  # a module of another name with the same text
        ("ptx", b".entry mm( ", ["ptx"]),
        ("json", b'{"name": "mm", "hash": "2"}', []),
        ("json", b'{"name": "addmm", "hash": "1"}', ["json"]),
    ],
)
def test_code_counts_and_names_of_modules_do_not(stage, content, differences):
    assert differing(KEPT, {**KEPT, stage: content}) == differences
