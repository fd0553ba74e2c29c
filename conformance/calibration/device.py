"""Calibrates the current device through the catalogue's own kernels: ``conformance calibrate``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
from torch import Tensor

from conformance import targets
from conformance.calibration.probes import (
    EXPONENTS,
    PROBE_K,
    Dots,
    ExponentRange,
    Product,
    UnitProbe,
    compare,
    merged,
    prove,
    text,
)
from conformance.execution.device.executor import DeviceExecutor
from conformance.execution.trial.trial import trial
from conformance.families.gemm.problem import Gemm, mm, scaled_mm
from conformance.heuristics.configs import Config
from conformance.kernels import catalogue
from conformance.kernels.kernel import Kernel, NotApplicable, Plan
from conformance.kernels.launch import Executor
from conformance.machine.gpus import find_gpus
from conformance.numerics.measured_units import Calibration, UnitEvidence, evidence
from conformance.problems import DTYPES, FNUZ, FP8, Layout, Operand
from conformance.targets import Target

#: Edge of the products: so many probes run in one launch.
EDGE = 256
#: BLOCK_K of the probes; fp8 is also probed with a shorter block, as a promotion happens at the end of each block.
BLOCK_K, SHORT_BLOCK_K = 128, 64
#: BLOCK_M of the probes: units for whole warpgroups take the first only, and smaller tiles run on another unit.
LARGE_TILE, SMALL_TILE = 64, 32


@dataclass(frozen=True)
class DeviceProbe:
    """One row of the report. It is about a kernel's product with operands in ``forms``, on the unit of ``instruction``
    (None: no tensor core), and what the contract says."""

    probe: UnitProbe
    product: Product
    forms: tuple[str, str]
    instruction: str | None


def device_probes(executor: Executor, target: Target) -> Iterator[DeviceProbe]:
    """Probes of every operand dtype and of both units that a tile may run on. What the device or the kernel cannot take
    is left out and printed."""
    seen = set()
    for label, problem, block_k in _cases():
        for tile in (LARGE_TILE, SMALL_TILE):
            name = problem.dtype if problem.dtype != "fp32" else problem.precision
            capability = target.capability(name)
            if not capability.available:
                print(f"skip {label}: {capability.why}")
                break
            kernel = catalogue.get(problem.op)
            try:
                plan = kernel.plan(problem, Config(tile, 64, block_k, 2, 4), target)
            except NotApplicable as refusal:
                print(f"skip {label}: {refusal}")
                break
            order = kernel.order(plan)
            instruction = None if order is None else order.instruction
            contract = kernel.contract(plan, executor.name).accumulator
            forms = (_form(problem, problem.dtype), _form(problem, problem.second_dtype))
            if (forms, instruction, contract.promote) in seen:
                continue
            seen.add((forms, instruction, contract.promote))
            product = _kernel_product(kernel, plan, executor)
            narrow = max((EXPONENTS[form] for form in forms), key=lambda e: e.low)
            both = ExponentRange(narrow.low, min(EXPONENTS[form].high for form in forms))
            probe = UnitProbe(f"{target.id} {instruction or 'fma'} {label}", both, _dots(product), contract)
            yield DeviceProbe(probe, product, forms, instruction)


def _cases() -> Iterator[tuple[str, Gemm, int]]:
    """Yields a label, a problem with fp32 results, and its BLOCK_K."""
    column = {"layout_b": Layout("col"), "out_dtype": "fp32"}
    for dtype in ("bf16", "fp16", "fp32"):
        yield dtype, mm(EDGE, EDGE, PROBE_K, dtype, **column), BLOCK_K
    yield "tf32", mm(EDGE, EDGE, PROBE_K, "fp32", precision="tf32", **column), BLOCK_K // 2
    for formats in (FP8, FNUZ):
        for first, second in itertools.product(formats, repeat=2):
            for fast, block_k in ((True, BLOCK_K), (False, BLOCK_K), (False, SHORT_BLOCK_K)):
                if first != second and not fast:
                    continue
                problem = scaled_mm(
                    EDGE, EDGE, PROBE_K, first, b_dtype=second, out_dtype="fp32", scaling="tensor", fast_accum=fast
                )
                name = first if first == second else f"{first}*{second}"
                yield f"{name} fast" if fast else f"{name} promoted, BLOCK_K {block_k}", problem, block_k


def _form(problem: Gemm, dtype: str) -> str:
    return problem.precision if (dtype, problem.precision) == ("fp32", "tf32") else dtype


def _kernel_product(kernel: Kernel, plan: Plan, executor: Executor) -> Product:
    """Returns the arithmetic of ``plan``, with scales of one."""
    problem: Gemm = plan.problem

    def filled(operand: Operand, values: Tensor | None) -> Tensor:
        if values is None:
            values = torch.full(operand.shape, float(operand.name.startswith("scale")))
        stored = values.to(executor.device).to(DTYPES[operand.dtype])
        return stored.t().contiguous().t() if operand.name == "b" else stored.contiguous()

    def product(a: Tensor, b: Tensor) -> Tensor:
        factors = {"a": a, "b": b}
        tensors = {operand.name: filled(operand, factors.get(operand.name)) for operand in problem.tensors}
        executor.run(kernel.launch(plan, tensors))
        return tensors["out"]

    return product


def _dots(product: Product) -> Dots:
    """Dot products as the diagonal of products of matrices."""

    def run(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
        sums: list[float] = []
        for first in range(0, len(pairs), EDGE):
            rows = torch.zeros(2, EDGE, PROBE_K, dtype=torch.float64)
            some = pairs[first : first + EDGE]
            rows[:, : len(some)] = torch.tensor(some, dtype=torch.float64).movedim(1, 0)
            sums += product(rows[0], rows[1].t()).diagonal()[: len(some)].tolist()
        return sums

    return run


def calibrated(probes: Iterator[DeviceProbe], target: Target) -> tuple[list[str], tuple[UnitEvidence, ...], bool]:
    """Lines of the report, the evidence, and whether all is as the contracts and the package's evidence say."""
    lines: list[str] = []
    proofs, agrees = [], True
    for one in probes:
        more, measured, good = compare(one.probe)
        lines += more
        agrees &= good
        if one.instruction is None:
            continue
        proof = prove(one.product, measured, one.forms, (EDGE, EDGE, PROBE_K), one.instruction)
        lines.append(f"     {text(proof)}")
        if proof is not None:
            proofs.append(proof)
    units = merged(proofs)
    published = evidence().get(target.id)
    for unit in units:
        before = None if published is None else published.unit(unit.instruction, unit.operands)
        if before is not None and before.proven and not (unit.proven and _figures(unit) == _figures(before)):
            agrees = False
            lines.append(
                f"FAIL {unit.instruction} with {unit.operands}: another {published.device} was proven to be "  # type: ignore[union-attr]
                f"{_figures(before)}, this one is {_figures(unit)}"
            )
    return lines, units, agrees


def _figures(unit: UnitEvidence) -> str:
    proven = "" if unit.proven else ", not proven"
    how = "cut" if unit.truncates else "rounded to nearest"
    return f"steps of {unit.products}, {unit.alignment_bits} bits aligned, {unit.result_bits} kept, {how}{proven}"


def conversions(executor: Executor, target: Target) -> tuple[list[str], bool]:
    """Compares the device's overflow to fp8 and its subnormal operands and results with the contracts."""
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
        lines.append(f"{'ok  ' if not wrong else 'FAIL'} {label}" + "".join(f"\n     {sentence}" for sentence in wrong))
    return lines, agrees


def main(output: Path | None = None) -> int:
    """``conformance calibrate``: 0 if the device keeps what the contracts promise, 1 if not. ``output``: the file to
    which the calibration is written. Raises :class:`conformance.execution.device.executor.NoDevice` without a device,
    OSError for a file that cannot be written."""
    executor, target = DeviceExecutor(), targets.devices()[0]
    lines, units, agrees = calibrated(device_probes(executor, target), target)
    more, converted = conversions(executor, target)
    print("\n".join(lines + more))
    if output is not None:
        calibration = Calibration(
            target.id,
            target.name,
            find_gpus(None).driver or "",
            torch.__version__,
            triton.__version__,
            f"conformance calibrate: products of {EDGE} x {EDGE} x {PROBE_K}",
            units,
        )
        output.write_text(json.dumps(calibration.to_dict(), indent=2) + "\n", encoding="utf-8")
    return 0 if agrees and converted else 1
