"""Each way of an access that strays is told with operand, element, program and line; none that does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.execution import straying_kernels as kernels
from tests.kernels.interpreter_runs import in_interpreter

EXPECTED = {**kernels.WAYS, **kernels.DESCRIBED}
INTEGERS = [torch.int8, torch.int32, torch.int64, torch.bool]
FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float32]


def everything() -> tuple[Any, dict[Any, list[list[float]]], str]:
    lanes = {
        dtype: [kernels.undefined_numbers(dtype, plausible) for plausible in (False, True)]
        for dtype in INTEGERS + FLOATS
    }
    return kernels.strays(), lanes, kernels.refused("offset")


@pytest.fixture(scope="module")
def results() -> Any:
    """Returns the answers of one process for everything, because its start takes longer."""
    return in_interpreter(everything)


@pytest.mark.parametrize("launch", EXPECTED, ids=str)
def test_what_strays_is_told(results: Any, launch: Any) -> None:
    if launch not in results[0]:
        pytest.skip("this release of Triton has no block pointers")
    strays, text = results[0][launch], EXPECTED[launch]
    assert len(strays) == (1 if text else 0), strays
    assert not text or (strays[0].startswith("straying_kernels.py:") and f"program (0, 0, 0) {text}" in strays[0])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_undefined_integers_differ_between_two_runs(results: Any, dtype: torch.dtype) -> None:
    first, second = results[1][dtype]
    assert all(x != y for x, y in zip(first, second, strict=True))
    assert second == [0 if dtype.itemsize == 1 else 1] * 4, "the last number that the load reads"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_undefined_numbers_are_nan(results: Any, dtype: torch.dtype) -> None:
    assert all(math.isnan(x) for lanes in results[1][dtype] for x in lanes)


def test_what_was_not_measured_is_refused(results: Any) -> None:
    """A tensor map that is read from the middle of a unit of 16 bytes."""
    assert "no-interpreter (a tensor map)" in results[2]
    assert "was not measured" in results[2]
