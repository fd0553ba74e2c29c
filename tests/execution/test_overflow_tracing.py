"""Integers of 32 bits that overflow are traced to the results and addresses that depend on them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.execution import overflow_kernels as kernels
from tests.kernels.interpreter_runs import in_interpreter


@pytest.fixture(scope="module")
def results() -> Any:
    """Returns the answers of one process for everything, because its start takes longer."""
    return in_interpreter(kernels.everything)


@pytest.mark.parametrize("way", kernels.WAYS)
def test_an_overflow_is_named_with_its_line(results: Any, way: str) -> None:
    (sentence,) = results[way]
    assert sentence.startswith(f"32-bit overflow at overflow_kernels.py:{kernels.line_of(way)}: {kernels.WAYS[way]}")


def test_an_address_names_its_access_too(results: Any) -> None:
    assert results["offset"][0].endswith(" loads from an address that depends on it")


def test_numbers_that_fit_have_no_sentence(results: Any) -> None:
    assert results["none"] == []
