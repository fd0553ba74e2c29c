"""A program whose choice is pinned, as something that a trial can launch and judge like a kernel of the catalogue."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from conformance.execution.observation import Executor, Ran
from conformance.heuristics.configs import Config
from conformance.inductor.compile.program import Choice, Launches
from conformance.kernels import catalogue
from conformance.kernels.kernel import Plan
from conformance.numerics.contract import Contract
from conformance.problems import FP8, Problem
from conformance.records import ExecutorName
from conformance.targets import Target

#: Called with the operands in their order and whether to observe: the outputs, and what was launched if it was.
Call = Callable[[Sequence[Tensor], bool], tuple[tuple[Tensor, ...], Launches]]

_CONSTANT = r"^\s*{}\s*:\s*tl\.constexpr\s*=\s*(\d+)\s*$"


def constant(source: str, name: str) -> int | None:
    """The number that a template's kernel assigns to its compile-time constant ``name``; None if it has none."""
    assignment = re.search(_CONSTANT.format(re.escape(name)), source, re.MULTILINE)
    return int(assignment[1]) if assignment else None


def option(source: str, name: str) -> int | None:
    """The compile option ``name``, such as num_warps, in the decorator of a template's kernel; None if it has none."""
    keyword = re.search(rf"\b{name}\s*=\s*(\d+)", source.split("@triton.jit", 1)[0])
    return int(keyword[1]) if keyword else None


#: What a config consists of, as a template's kernel and the description of a choice name it.
BLOCKS, OPTIONS = ("BLOCK_M", "BLOCK_N", "BLOCK_K"), ("num_stages", "num_warps")


def config_of(source: str) -> Config:
    """The config with which a template's kernel was rendered. Raises ValueError naming what its source lacks."""
    values = {name: constant(source, name) for name in BLOCKS} | {name: option(source, name) for name in OPTIONS}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise ValueError(f"the generated kernel does not say {', '.join(missing)}: it is no template of a product")
    numbers = [value for value in values.values() if value is not None]
    return Config(*numbers, group_m=constant(source, "GROUP_M") or 8)


def described_config(choice: Choice) -> Config | None:
    """The config in a choice's description; None without one."""
    numbers = choice.numbers
    if not {*BLOCKS, *OPTIONS} <= set(numbers):
        return None
    return Config(*(numbers[name] for name in (*BLOCKS, *OPTIONS)), group_m=numbers.get("GROUP_M", 8))


def expected_grid(problem: Problem, config: Config, target: Target, sms: int | None) -> tuple[int, int, int]:
    """Programs that a template launches: those of the catalogue's kernel for the same operation, one per tile.

    ``sms``: the template is persistent and launches at most so many programs.
    """
    kernel = catalogue.get(problem.op)
    x, y, z = (*kernel.grid(kernel.draft(problem, config, target)), 1, 1)[:3]
    return (x, y, z) if sms is None else (min(sms, x), y, z)


@dataclass(frozen=True)
class PinnedKernel:
    """What a trial takes as its kernel: a compiled function, and the contract of what it computes."""

    call: Call

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """The contract of the catalogue's kernel for the same operation: the matrix unit is the same. Where fp8 partial
        sums are promoted, Inductor does so once per block of k."""
        base = catalogue.get(plan.problem.op).contract(plan, executor)
        if plan.problem.dtype in FP8 and base.accumulator.promote is not None:
            promoted = dataclasses.replace(base.accumulator, promote=plan.config.block_k)
            return dataclasses.replace(base, accumulator=promoted)
        return base

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> PinnedLaunch:
        return PinnedLaunch(self.call, plan, tensors)


@dataclass(frozen=True)
class PinnedLaunch:
    """One call of a compiled function over a problem's tensors."""

    call: Call
    plan: Plan
    tensors: Mapping[str, Tensor]


class CallExecutor:
    """Runs a :class:`PinnedLaunch`: calls the compiled function and copies its results to the guarded outputs.

    ``out``: the function takes the outputs as its last operands and writes them itself.
    """

    def __init__(self, executor: Executor, *, out: bool = False) -> None:
        self.name = executor.name
        self.device = executor.device
        self.on_device = executor.on_device
        self._out = out

    def run(self, launch: Any, programs: Sequence[int] | None = None, *, observe: bool = False) -> Ran:
        """Raises ValueError if ``programs`` is given: a compiled function runs whole, and AssertionError if an output
        has not the shape or dtype of the problem's."""
        if programs is not None:
            raise ValueError("a compiled function cannot run part of its grid")
        problem, tensors = launch.plan.problem, launch.tensors
        operands = [*problem.operands, *(problem.outputs if self._out else ())]
        outputs, launches = launch.call([tensors[operand.name] for operand in operands], observe)
        for operand, output in zip(problem.outputs, outputs, strict=True):
            place = tensors[operand.name]
            if output.shape != place.shape or output.dtype != place.dtype:
                text = f"{tuple(output.shape)} {output.dtype}"
                raise AssertionError(f"{operand.name} is {text}, {tuple(place.shape)} {place.dtype} is required")
            if output.data_ptr() != place.data_ptr():
                place.copy_(output)
        grids = [grid for name, grid in launches if name.startswith("triton_tem_")]
        return Ran(self.name, grids[0] if grids else None, None, 0.0)
