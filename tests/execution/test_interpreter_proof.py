"""The proof at the start: it passes, a planted fault is named by its method, and what failed is refused and no more."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.interpreter_runs import in_interpreter


@triton.jit
def doubled(x, out):
    at = tl.arange(0, 16)
    tl.store(out + at, (tl.load(x + at) + tl.load(x + at)).to(out.dtype.element_ty))


def faulty(interpreter: Any, methods: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """Faults by name: the method and what replaces it."""
    handle, tl_ = interpreter.TensorHandle, interpreter.tl

    def truncating_cast(self: Any, src: Any, kind: Any) -> Any:
        if src.dtype.name == "fp32" and kind.scalar.name == "bf16":
            return handle((src.data.view(np.uint32) >> 16).astype(np.uint16), kind.scalar)
        return methods["cast_impl"](self, src, kind)

    def via_fp32(self: Any, src: Any, kind: Any) -> Any:
        if src.dtype.name == "fp64" and kind.scalar.name == "bf16":
            src = methods["cast_impl"](self, src, tl_.float32)
        return methods["cast_impl"](self, src, kind)

    def no_mode(self: Any, src: Any, kind: Any, mode: Any) -> Any:
        return methods["create_fp_to_fp"](self, src, kind, interpreter._ir.ROUNDING_MODE.RTNE)

    def unfused(self: Any, x: Any, y: Any, z: Any) -> Any:
        return methods["binary_op"](self, methods["binary_op"](self, x, y, np.multiply), z, np.add)

    def keeps_nan(self: Any, x: Any, y: Any) -> Any:
        return methods["binary_op"](self, x, y, np.maximum)

    def on_bits(self: Any, x: Any, y: Any, op: Any) -> Any:
        if x.dtype.name != "bf16" or op not in (np.less, np.less_equal):
            return methods["binary_op"](self, x, y, op)
        return handle(op(x.data, y.data), tl_.int1)

    def squared(self: Any, a: Any, b: Any, d: Any, *more: Any) -> Any:
        return methods["create_dot"](self, a, handle(a.data.T, a.dtype), d, *more)

    def other_nibble(self: Any, a: Any, *more: Any) -> Any:
        if a.dtype.is_int():
            a = handle(a.data >> 4 | a.data << 4, a.dtype)
        return methods["create_dot_scaled"](self, a, *more)

    def other_block(self: Any, a: Any, a_scale: Any, a_format: Any, b: Any, b_scale: Any, *more: Any) -> Any:
        if b_scale is not None:
            b_scale = handle(b_scale.data[:, ::-1], b_scale.dtype)
        return methods["create_dot_scaled"](self, a, a_scale, a_format, b, b_scale, *more)

    def least_scale_is_zero(self: Any, a: Any, scale: Any, *more: Any) -> Any:
        result = methods["create_dot_scaled"](self, a, scale, *more)
        if scale is None or scale.data.shape[-1] > 1:
            return result
        return handle(np.where(scale.data == 0, 0, result.data).astype(np.float32), result.dtype)

    return {
        "truncating cast": ("cast_impl", truncating_cast),
        "double rounding": ("cast_impl", via_fp32),
        "no rounding mode": ("create_fp_to_fp", no_mode),
        "two roundings of fma": ("create_fma", unfused),
        "NaN is kept": ("create_maxnumf", keeps_nan),
        "bits are compared": ("binary_op", on_bits),
        "wrong operand": ("create_dot", squared),
        "other nibble": ("create_dot_scaled", other_nibble),
        "scale of another block": ("create_dot_scaled", other_block),
        "the least scale is zero": ("create_dot_scaled", least_scale_is_zero),
    }


FAULTS = ("truncating cast", "double rounding", "no rounding mode", "two roundings of fma", "NaN is kept")
FAULTS += ("bits are compared", "wrong operand", "other nibble", "scale of another block")
FAULTS += ("the least scale is zero",)


def named_faults() -> dict[str, tuple[str, dict[Any, str]]]:
    """Of each planted fault the method that has it, and what the proof says."""
    from conformance.execution.interpreter.executor import InterpreterExecutor
    from conformance.execution.interpreter.proof import faults_of_methods

    executor = InterpreterExecutor()
    interpreter, methods = executor._interpreter, executor._methods
    result = {"none": ("", faults_of_methods(interpreter, methods))}
    for name, (method, fault) in faulty(interpreter, methods).items():
        result[name] = method, faults_of_methods(interpreter, {**methods, method: fault})
    return result


def faults_of_planted_kernels() -> dict[str, list[Any]]:
    """Returns the faults that the kernels of the proof show without corrections of methods that its other part leaves
    out."""
    from conformance.execution.interpreter import executor as interpreter
    from conformance.execution.interpreter.proof import faults_of_kernels

    executor = interpreter.InterpreterExecutor()
    result = {"none": list(faults_of_kernels(executor.run))}
    for method in (
        "get_bf16",
        "sum",
        "create_atomic_rmw",
        "create_fp_to_fp",
        "create_clampf",
        "create_descriptor_reduce",
        "loop_indices",
        "of_numbers",
        "assigned_each",
        "__call__",
    ):
        names = next((names for _, names in executor._reductions if method in names), executor._methods)
        kept = names.pop(method)
        result[method] = list(faults_of_kernels(executor.run))
        names[method] = kept
    return result


def refusals() -> list[str]:
    """Returns the outcomes of sums of bf16 and of fp32 if those of bf16 are not proven."""
    from conformance.execution.interpreter import executor as interpreter
    from conformance.kernels.launch import Launch

    planted = {("binary_op", "bf16"): "planted"}
    with mock.patch.object(interpreter, "faults_of_kernels", return_value=planted):
        executor = interpreter.InterpreterExecutor()
    results = []
    for dtype in (torch.bfloat16, torch.float32):
        x, out = torch.ones(16, dtype=dtype), torch.zeros(16)
        try:
            executor.run(Launch(doubled, (1,), {"x": x, "out": out}))
        except interpreter.InterpreterUnsupported as error:
            results.append(f"{error.reason.code.value}: {error.reason.detail}")
        else:
            results.append(str(out[0].item()))
    return results


@pytest.fixture(scope="module")
def results() -> Any:
    return in_interpreter(named_faults)


def test_nothing_is_wrong_with_the_corrections(results: Any) -> None:
    assert results["none"] == ("", {})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(results: Any, fault: str) -> None:
    method, faults = results[fault]
    assert method in {name for name, _ in faults}, faults


def test_kernels_show_what_is_not_corrected() -> None:
    results = in_interpreter(faults_of_planted_kernels)
    assert results.pop("none") == []
    corrected = {method for method, faults in results.items() if not faults}
    assert corrected <= {"get_bf16", "create_clampf"}  # 3.9 has these two


def test_what_is_not_proven_is_refused_and_nothing_else() -> None:
    narrow, wide = in_interpreter(refusals)
    assert narrow.startswith("no-interpreter")
    assert "its proof failed: planted" in narrow
    assert wide == "2.0"
