"""Measures on a device the arithmetic that the contracts assume, and compares.

Each probe is one dot product whose exact value tells how much the unit kept. The probes follow Fasi, Higham, Mikaitis
and Pranesh, "Numerical behavior of NVIDIA tensor cores" (PeerJ CS 2021): a leading term that is cancelled inside one
step shows the alignment bits, one that stays shows the bits of the result, and where a small term survives shows how
many products one step holds.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from conformance.numerics.contract import Accumulator

#: k of every probe: several steps of the widest unit, and several promotion chunks.
PROBE_K = 512


class Unit(Protocol):
    """Computes ``sum_k a[k] * b[k]`` with the arithmetic under test, as an fp32 number."""

    def __call__(self, a: Sequence[float], b: Sequence[float]) -> float: ...


@dataclass(frozen=True)
class Format:
    """Exponents that one operand can take: products span 2**(2*low) to 2**(2*high)."""

    low: int
    high: int


#: Powers of two that each operand dtype holds as normal numbers, short of its limits.
FORMATS = {
    "fp32": Format(-60, 60),
    "tf32": Format(-60, 60),
    "fp16": Format(-14, 14),
    "bf16": Format(-60, 60),
    "e4m3": Format(-6, 8),
    "e5m2": Format(-14, 15),
}


@dataclass(frozen=True)
class Measured:
    """``alignment_bits`` and ``result_bits`` are lower bounds where the operands cannot express more (``limited``).

    ``truncates``: the result is cut, not rounded to nearest. ``chunk``: products in one step; None if none showed.
    """

    alignment_bits: int
    result_bits: int
    chunk: int | None
    truncates: bool
    limited: bool

    def text(self) -> str:
        at_least = ">= " if self.limited else ""
        rounding = "truncated" if self.truncates else "rounded to nearest"
        alignment = f"alignment {at_least}{self.alignment_bits} bits"
        return f"{alignment}, result {self.result_bits} bits, {rounding}, step {self.chunk or '-'}"


def _dot(unit: Unit, terms: Mapping[int, tuple[int, int]], form: Format) -> float:
    """A dot product of ``factor * 2**exponent`` at the given k, zero elsewhere, exponents split over both operands."""
    a, b = [0.0] * PROBE_K, [0.0] * PROBE_K
    for k, (factor, exponent) in terms.items():
        first = max(form.low, min(form.high, exponent // 2))
        a[k], b[k] = factor * 2.0**first, 2.0 ** (exponent - first)
    return unit(a, b)


def measure(unit: Unit, form: Format) -> Measured:
    """The figures of ``unit`` for operands of ``form``."""
    top = min(2 * form.high, 30)
    deepest = min(top - 2 * form.low, 40)
    aligned = _deepest(lambda j: _dot(unit, {0: (1, top), 1: (-1, top), 2: (1, top - j)}, form) != 0, deepest)
    # The small term comes in a later step than the large one, which stays.
    late = PROBE_K - 1
    kept = _deepest(lambda j: _dot(unit, {0: (1, top), late: (1, top - j)}, form) != 2.0**top, deepest)
    lost = [k for k in range(2, PROBE_K) if _lost(unit, form, top, min(deepest, aligned + 3), k)]
    chunk = len(lost) + 2 if aligned < deepest else None
    # One product of 3/4 of the last bit kept: truncation drops it, rounding to nearest carries.
    truncates = kept + 2 > deepest or _dot(unit, {0: (1, top), late: (3, top - kept - 2)}, form) == 2.0**top
    return Measured(aligned, kept, chunk, truncates, aligned >= deepest)


def _deepest(survives: Callable[[int], bool], limit: int) -> int:
    """The largest j up to ``limit`` for which 1 .. j all survive."""
    return next((j - 1 for j in range(1, limit + 1) if not survives(j)), limit)


def _lost(unit: Unit, form: Format, top: int, depth: int, k: int) -> bool:
    return _dot(unit, {0: (1, top), 1: (-1, top), k: (1, top - depth)}, form) == 0


def disagreements(measured: Measured, contract: Accumulator) -> list[str]:
    """Sentences where the device keeps less than the contract promises; empty if every bound and fill holds."""
    found = []
    # An accumulator that starts each step at a result of r bits cannot show more than r + 1 when nothing cancels.
    if measured.result_bits < contract.result_bits:
        found.append(f"the result keeps {measured.result_bits} bits, the contract says {contract.result_bits}")
    if not measured.limited and contract.kind == "tensor-core" and measured.alignment_bits < contract.alignment_bits:
        found.append(f"alignment keeps {measured.alignment_bits} bits, the contract says {contract.alignment_bits}")
    if measured.chunk is not None and contract.kind == "tensor-core" and measured.chunk > contract.chunk:
        found.append(f"one step holds {measured.chunk} products, the contract says {contract.chunk}")
    return found


def simulated_unit(alignment_bits: int, result_bits: int, chunk: int, *, truncates: bool = True) -> Unit:
    """A unit with these figures, for tests: exact integers in place of hardware."""

    def cut(value: float, unit: float) -> float:
        scaled = value / unit
        return (math.trunc(scaled) if truncates else round(scaled)) * unit

    def run(a: Sequence[float], b: Sequence[float]) -> float:
        total = 0.0
        for start in range(0, len(a), chunk):
            terms = [x * y for x, y in zip(a[start : start + chunk], b[start : start + chunk], strict=True)] + [total]
            largest = max(abs(term) for term in terms)
            if largest == 0:
                continue
            unit = 2.0 ** (math.frexp(largest)[1] - 1 - alignment_bits)
            total = sum(math.trunc(term / unit) * unit for term in terms)
            if total:
                total = cut(total, 2.0 ** (math.frexp(abs(total))[1] - 1 - result_bits))
        return total

    return run


@dataclass(frozen=True)
class Probe:
    """One row of the report: a kernel's unit and what its contract says of it."""

    name: str
    form: Format
    unit: Unit
    contract: Accumulator


def report(probes: Sequence[Probe]) -> tuple[list[str], bool]:
    """Lines of the report and whether every probe agrees with its contract."""
    lines, agrees = [], True
    for probe in probes:
        measured = measure(probe.unit, probe.form)
        wrong = disagreements(measured, probe.contract)
        agrees &= not wrong
        promised = (
            f"contract: alignment {probe.contract.alignment_bits}, result {probe.contract.result_bits}, "
            f"step {probe.contract.chunk}, promoted every {probe.contract.promote or '-'}"
        )
        lines.append(f"{'ok  ' if not wrong else 'FAIL'} {probe.name:28} {measured.text()} | {promised}")
        lines += [f"     {sentence}" for sentence in wrong]
    return lines, agrees


def device_probes() -> list[Probe]:
    """Probes of every operand dtype through the catalogue's own kernels on the current device."""
    import torch

    from conformance import targets
    from conformance.execution.device import DeviceExecutor
    from conformance.heuristics.configs import Config
    from conformance.kernels import catalogue
    from conformance.problems import DTYPES, Gemm, Layout, mm, scaled_mm

    executor = DeviceExecutor()
    target = targets.devices()[0]
    config = Config(64, 64, 128, 2, 4)

    def unit_of(kernel_name: str, problem: Gemm) -> tuple[Unit, Accumulator]:
        kernel = catalogue.get(kernel_name)
        plan = kernel.plan(problem, config, target)

        def run(a: Sequence[float], b: Sequence[float]) -> float:
            tensors = {operand.name: _empty(operand) for operand in (*problem.operands, problem.output)}
            tensors["a"][0] = torch.tensor(a).to(DTYPES[problem.a_dtype])
            tensors["b"].t()[0] = torch.tensor(b).to(DTYPES[problem.second_dtype])
            executor.run(kernel.launch(plan, tensors))
            return float(tensors["out"][0, 0])

        def _empty(operand: object) -> torch.Tensor:
            fill = 1.0 if operand.name.startswith("scale") else 0.0  # type: ignore[attr-defined]
            dense = torch.full(operand.shape, fill, device=executor.device)  # type: ignore[attr-defined]
            held = dense.to(DTYPES[operand.dtype])  # type: ignore[attr-defined]
            return held.t().contiguous().t() if operand.name == "b" else held  # type: ignore[attr-defined]

        return run, kernel.contract(plan, "device").accumulator

    column = {"layout_b": Layout("col"), "out_dtype": "fp32"}
    wanted: list[tuple[str, str, str, Gemm]] = [
        (dtype, dtype, "mm", mm(64, 64, PROBE_K, dtype, **column)) for dtype in ("bf16", "fp16", "fp32")
    ]
    wanted.append(("tf32", "tf32", "mm", mm(64, 64, PROBE_K, "fp32", precision="tf32", layout_b=Layout("col"))))
    for dtype in ("e4m3", "e5m2"):
        for fast in (True, False):
            problem = scaled_mm(64, 64, PROBE_K, dtype, out_dtype="fp32", scaling="tensor", fast_accum=fast)
            wanted.append((f"{dtype} {'fast' if fast else 'promoted'}", dtype, "scaled_mm", problem))
    probes = []
    for label, form, kernel_name, problem in wanted:
        capability = target.capability(problem.dtype if problem.dtype != "fp32" else problem.precision)
        if not capability.available:
            print(f"skip {label}: {capability.why}")
            continue
        unit, contract = unit_of(kernel_name, problem)
        probes.append(Probe(f"{target.id} {label}", FORMATS[form], unit, contract))
    return probes


def conversions() -> tuple[list[str], bool]:
    """What the device makes of overflow to fp8 and of subnormal operands and results, against the contracts."""
    from conformance import targets
    from conformance.execution.device import DeviceExecutor
    from conformance.execution.trial import trial
    from conformance.heuristics.configs import Config
    from conformance.kernels import catalogue
    from conformance.problems import Gemm, mm, scaled_mm

    executor, target = DeviceExecutor(), targets.devices()[0]
    config = Config(64, 64, 64, 2, 4)
    cases: list[tuple[str, Gemm]] = [
        (f"special values, subnormals and overflow: {dtype}", mm(80, 72, 96, dtype))
        for dtype in ("bf16", "fp16", "fp32")
    ]
    cases += [
        (f"overflow of scaled mm to {dtype}", scaled_mm(80, 80, 96, "e4m3", out_dtype=dtype))
        for dtype in ("e4m3", "e5m2")
    ]
    lines, agrees = [], True
    for label, problem in cases:
        kernel = catalogue.get(problem.op)
        judged = trial(kernel, kernel.plan(problem, config, target), executor, names=("special",))
        wrong = [verdict.text for verdict in judged.verdicts if not verdict.passed]
        agrees &= not wrong
        lines.append(f"{'ok  ' if not wrong else 'FAIL'} {label}" + "".join(f"\n     {text}" for text in wrong))
    return lines, agrees


def main(arguments: Sequence[str] | None = None) -> int:
    """``conformance calibrate``: 0 if the device keeps what the contracts promise, 1 if not, 2 without a device."""
    parser = argparse.ArgumentParser(prog="conformance calibrate", description=__doc__.split("\n", 1)[0])
    parser.parse_args(arguments)
    try:
        probes = device_probes()
    except RuntimeError as error:
        print(f"conformance calibrate: {error}", file=sys.stderr)
        return 2
    lines, agrees = report(probes)
    more, converted = conversions()
    print("\n".join(lines + more))
    return 0 if agrees and converted else 1
