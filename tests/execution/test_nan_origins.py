"""NaN that a kernel makes is traced to the line where it begins, with the kind of operation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.execution import nan_kernels as kernels
from tests.kernels.interpreter_runs import in_interpreter

WAYS = [("elements", way) for way in kernels.ELEMENTS] + [("tiles", way) for way in kernels.TILES]


@pytest.fixture(scope="module")
def results() -> Any:
    """Returns the answers of one process for everything, because its start takes longer."""
    return in_interpreter(kernels.everything)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_the_line_and_the_kind_are_named(results: Any, name: str, way: str) -> None:
    sentences, kinds = results[name, way]
    kind, words = {"elements": kernels.ELEMENTS, "tiles": kernels.TILES}[name][way]
    line = kernels.line_of(getattr(kernels, name), way)
    assert kinds == {kind}
    assert len(sentences) == 1
    assert f"begins at nan_kernels.py:{line}" in sentences[0]
    assert words in sentences[0]
