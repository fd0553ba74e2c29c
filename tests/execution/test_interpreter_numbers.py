"""Narrow formats, rules of NaN and rounding modes in the interpreter, against arithmetic of the tests' own."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from tests.execution import interpreted_kernels
from tests.kernels.interpreter_runs import in_interpreter

ALL = ("conversions", "arithmetic", "reductions")


def corrected(name: str) -> list[str]:
    return getattr(interpreted_kernels, name)()


def without_corrections() -> dict[str, list[str]]:
    """For each of METHODS what is wrong if the interpreter's own stays, and nothing proves it."""
    from triton.runtime.interpreter import InterpreterBuilder

    drops_nan = hasattr(InterpreterBuilder, "get_bf16")  # since Triton 3.9
    return {method: without_correction(method) for method in METHODS + [*RULES_OF_NAN] * (not drops_nan)}


def without_correction(method: str) -> list[str]:
    from conformance.execution.interpreter import executor as interpreter

    corrections = interpreter.corrections

    def others(module: Any) -> Any:
        return [
            (owner, {name: new for name, new in names.items() if name != method})
            for owner, names in corrections(module)
        ]

    with (
        mock.patch.object(interpreter, "corrections", others),
        mock.patch.object(interpreter, "faults_of_methods", return_value={}),
        mock.patch.object(interpreter, "faults_of_kernels", return_value={}),
    ):
        wrong = []
        for name in ALL:
            try:
                wrong += corrected(name)
            except Exception as error:
                wrong.append(repr(error))
    return wrong


@pytest.mark.parametrize("name", ALL)
def test_numbers_are_those_of_a_device(name: str) -> None:
    assert in_interpreter(corrected, name) == []


#: Corrections without which each release that is supported is wrong.
METHODS = ["cast_impl", "create_fp_to_fp", "binary_op", "create_fma", "sum"]
#: Those without which releases up to 3.8 are wrong.
RULES_OF_NAN = ["create_maxnumf", "create_minnumf", "create_clampf"]


def test_a_correction_that_is_left_out_is_seen() -> None:
    assert [method for method, wrong in in_interpreter(without_corrections).items() if not wrong] == []
