"""Each check of pipelined autotuning fails where a fault is planted in torch's selector, or in what was generated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest

from conformance.inductor.compile.program import Choice, Generated, GeneratedKernel, Lowering
from conformance.inductor.topics import tuning as checks
from conformance.inductor.tuning import prescreened_choices
from conformance.records import Verdict
from tests.inductor.planted_code import failed

AUTOTUNER = prescreened_choices.module().AsyncAutotuner
START, RESULTS = AUTOTUNER.start, AUTOTUNER.get_results


def right(choices: Sequence[Any], key: str) -> Any:
    return RESULTS([choice for choice in choices if not choice.failed], key)


def starts_twice(choices: Sequence[Any], key: str) -> None:
    START(choices, key)
    for choice in choices:
        AUTOTUNER.choice_hash_to_future.pop(AUTOTUNER.get_choice_hash(choice, key))
    START(choices, key)


def triton_first(choices: Sequence[Any], key: str) -> None:
    if [choice.name for choice in choices] != ["library"]:
        START(choices, key)


def only_started(choices: Sequence[Any], key: str) -> dict[Any, float]:
    futures = AUTOTUNER.choice_hash_to_future
    return dict(RESULTS([choice for choice in choices if AUTOTUNER.get_choice_hash(choice, key) in futures], key))


def mixed_up(choices: Sequence[Any], key: str) -> dict[Any, float]:
    timings = right(choices, key)
    return dict(zip(timings, reversed(timings.values()), strict=True))


def broken_is_fastest(choices: Sequence[Any], key: str) -> dict[Any, float]:
    return {choice: 0.0 if choice.failed else 1.0 for choice in choices}


def failing_is_fast(choices: Sequence[Any], key: str) -> dict[Any, float]:
    return {choice: 0.0 if value == float("inf") else value for choice, value in right(choices, key).items()}


@pytest.mark.parametrize(
    ("check", "faults", "expected"),
    [
        (checks.check_pipelined, {}, []),
        (checks.check_failing_benchmark, {}, []),
        (lambda: checks.check_failing_compilation(all_of_them=True), {}, []),
        (lambda: checks.check_failing_compilation(all_of_them=False), {"get_results": right}, []),
        (lambda: checks.check_failing_compilation(all_of_them=False), {}, ["chosen"]),
        (checks.check_pipelined, {"start": starts_twice}, ["once"]),
        (
            checks.check_pipelined,
            {"start": triton_first, "get_results": only_started},
            ["library first", "once", "times"],
        ),
        (checks.check_pipelined, {"get_results": mixed_up}, ["times", "chosen"]),
        (checks.check_failing_benchmark, {"get_results": failing_is_fast}, ["infinite", "chosen"]),
        (
            lambda: checks.check_failing_compilation(all_of_them=False),
            {"get_results": broken_is_fastest},
            ["not timed", "chosen"],
        ),
    ],
)
def test_selection(
    check: Callable[[], list[Verdict]], faults: dict[str, Callable[..., Any]], expected: list[str]
) -> None:
    with contextlib.ExitStack() as stack:
        for name, fault in faults.items():
            stack.enter_context(mock.patch.object(AUTOTUNER, name, staticmethod(fault)))
        assert failed(check()) == expected


SOURCE = """
@triton_heuristics.template(num_stages=3, num_warps=4, triton_meta={}, inductor_meta={})
@triton.jit
def triton_tem_fused_mm_0(arg_A):
    BLOCK_M : tl.constexpr = 64
    BLOCK_N : tl.constexpr = 64
    BLOCK_K : tl.constexpr = 32
    GROUP_M : tl.constexpr = 8
"""
REST = "BLOCK_N=64, BLOCK_K=32, GROUP_M=8, num_stages=3, num_warps=4"
CHOICES = tuple(Choice(f"triton_mm_{block}", f"BLOCK_M={block}, {REST}", "triton") for block in (32, 64))


def product(choices: Sequence[Choice], *notes: str) -> Generated:
    offered = tuple(choices)
    kernel = GeneratedKernel("k", "template", SOURCE)
    return Generated(lowerings=(Lowering("mm", offered, offered, 2),), kernels=(kernel,), notes=notes)


@pytest.mark.parametrize(
    ("pipelined", "expected"),
    [
        (product(CHOICES, "triton_mm_32", "triton_mm_64"), []),
        (product(CHOICES[1:], "triton_mm_64"), ["offered"]),
        (product(CHOICES, "triton_mm_64", "triton_mm_32"), ["chosen"]),
        (product(CHOICES, "triton_mm_64"), ["timed"]),
        (product(CHOICES, "triton_mm_32", "triton_mm_32", "triton_mm_64"), ["timed"]),
        (product(CHOICES), ["timed", "chosen"]),
    ],
)
def test_product(pipelined: Generated, expected: list[str]) -> None:
    assert failed(checks.check_product(product(CHOICES), pipelined)) == expected
