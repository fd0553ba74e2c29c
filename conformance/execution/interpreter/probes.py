"""Kernels run in the corrected interpreter: what its methods give together, compared with other arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from conformance.execution.interpreter import probe
from conformance.execution.interpreter.proof import Faults, cut, pairs, rounded, same_numbers
from conformance.kernels.launch import Launch
from conformance.numerics.rounding import FORMATS
from conformance.problems import DTYPES

#: Triton's names of the formats of problems.DTYPES that differ.
_OF_TRITON = {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}
_SIZE = 256


@dataclass(frozen=True)
class KernelProbe:
    """A kernel over x and y in format ``name``, as problems.DTYPES has it, and what it must store in ``output``, a
    format. ``method`` is refused for the format if it stores something else."""

    kernel: Any
    name: str
    expected: np.ndarray
    method: str
    output: str = ""


def faults_of_kernels(run: Callable[[Launch], object]) -> Faults:
    """Returns the faults of the numbers that :data:`probes` store when ``run`` runs them."""
    faults: Faults = {}
    for probed in probes():
        text = _fault(probed, run)
        if text:
            faults.setdefault((probed.method, _OF_TRITON.get(probed.name, probed.name)), text)
    return faults


def _operands(kernel: Any) -> tuple[np.ndarray, np.ndarray]:
    """Special values of bf16, each with each, and zeros behind them. For sums: zeros, and a number next to three that
    are half a unit of it."""
    if kernel is probe.added_tiles:
        return np.zeros(_SIZE), np.arange(1.0, _SIZE + 1)
    if kernel in (probe.sums, probe.atomic_sums):
        return np.zeros(_SIZE), np.array([256.0, 1.0, 1.0, 1.0] + [0.0] * (_SIZE - 4))
    x, y = (np.concatenate([values, np.zeros(_SIZE - len(values))]) for values in pairs())
    return x, y


def probes() -> Iterator[KernelProbe]:
    """The kernels with what they must store."""
    x, y = _operands(None)
    with np.errstate(all="ignore"):
        stepwise = rounded(rounded(x * 2.5, "bf16") + rounded(np.array(0.2), "bf16"), "bf16")
        yield KernelProbe(probe.constants, "bf16", stepwise, "get_bf16")
        yield KernelProbe(probe.comparisons, "bf16", (x > y) + 2.0 * (x == y), "binary_op")
        zeros = (x == 0) & (y == 0)
        larger = np.where(np.isnan(y) | (x > y) | (zeros & np.signbit(y)), x, y)
        smaller = np.where(np.isnan(x) | (x < y) | (zeros & np.signbit(x)), x, y)
        for name in ("bf16", "fp32"):
            yield KernelProbe(probe.larger_numbers, name, larger, "create_maxnumf")
            yield KernelProbe(probe.smaller_or_nan, name, smaller, "create_minimumf")
        yield KernelProbe(probe.clamped, "bf16", np.where(x > -1, np.where(x < 1, x, 1.0), -1.0), "create_clampf")
        yield KernelProbe(probe.fused_products, "bf16", rounded(x * y + x, "bf16"), "create_fma")
        for output in ("bf16", "fp16", "e5m2"):
            finite = np.arange(FORMATS[output].largest_code + 1, dtype=np.uint16 if output != "e5m2" else np.uint8)
            values = (
                torch.from_numpy(finite.view(np.dtype(f"i{finite.itemsize}"))).view(DTYPES[output]).double().numpy()
            )
            yield KernelProbe(probe.truncated, "bf16", cut(x * 1.00390625, values), "create_fp_to_fp", output)
    yield KernelProbe(probe.sums, "bf16", np.full_like(x, 258.0), "sum")
    yield KernelProbe(probe.atomic_sums, "bf16", np.where(np.arange(len(x)) == 0, 256.0, 0.0), "create_atomic_rmw")
    if hasattr(triton.language, "make_tensor_descriptor"):
        added, tile = np.zeros((_SIZE // 16, 16)), _operands(probe.added_tiles)[1].reshape(-1, 16)
        added[2:14, 4:12] = 2 * tile[:12, :8]
        yield KernelProbe(probe.added_tiles, "fp32", added.ravel(), "create_descriptor_reduce")


def _fault(probed: KernelProbe, run: Callable[[Launch], object]) -> str:
    x, y = _operands(probed.kernel)
    dtype = DTYPES[probed.name]
    out = torch.zeros(len(x), dtype=DTYPES[probed.output or probed.name])
    tensors = {"x": torch.from_numpy(x).to(dtype), "y": torch.from_numpy(y).to(dtype), "out": out}
    kernel = probed.kernel.fn.__name__
    try:
        run(Launch(probed.kernel, (1,), {**tensors, "SIZE": len(x)}))
    except Exception as error:  # whatever the interpreter raises, or that it refuses
        return f"kernel {kernel} ends in {error}"
    stored = out.double().numpy()
    if same_numbers(stored, probed.expected):
        return ""
    first = int(
        np.flatnonzero(~((stored == probed.expected) | (np.isnan(stored) & np.isnan(probed.expected)))).min(initial=0)
    )
    return f"kernel {kernel} stores {stored[first]} where {probed.expected[first]} is right"
