"""A program whose choice is pinned, as something that a trial can launch and judge like a kernel of the catalogue."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from conformance.families.attention.problem import Attention
from conformance.families.gemm.problem import BLOCK_SCALINGS
from conformance.families.grouped.problem import GroupedGemm
from conformance.heuristics.configs import AnyConfig, Config, FlexConfig, FlexDecodeConfig
from conformance.inductor.compile.program import Choice, Launches
from conformance.kernels import catalogue
from conformance.kernels.kernel import Kernel, Plan
from conformance.kernels.launch import Executor, Programs, Ran, watching
from conformance.numerics.contract import Accumulator, Contract
from conformance.problems import FP8, Problem, itemsize
from conformance.records import ExecutorName
from conformance.targets import Target

#: Called with the operands in their order and whether to observe: the outputs, and what was launched if it was.
Call = Callable[[Sequence[Tensor], bool], tuple[tuple[Tensor, ...], Launches]]

_CONSTANT = r"^\s*{}\s*:\s*tl\.constexpr\s*=\s*(\d+)\s*$"


def constant(source: str, name: str) -> int | None:
    """Returns the number that a template's kernel assigns to its compile-time constant ``name``; None if it has
    none."""
    assignment = re.search(_CONSTANT.format(re.escape(name)), source, re.MULTILINE)
    return int(assignment[1]) if assignment else None


def option(source: str, name: str) -> int | None:
    """Returns the compile option ``name``, such as num_warps, in the decorator of a template's kernel; None if it has
    none."""
    # functions that the kernel calls may stand before it
    decorated = source[max(source.find("@triton_heuristics."), 0) :]
    keyword = re.search(rf"\b{name}\s*=\s*(\d+)", decorated.split("@triton.jit", 1)[0])
    return int(keyword[1]) if keyword else None


#: What a config consists of, as a template's kernel and the description of a choice name it: its class, and its blocks.
#: The first whose names are all there is meant. A head tells attention from products; where it splits the keys, its
#: other block follows from the queries.
BLOCKS: tuple[tuple[Callable[..., AnyConfig], tuple[str, ...]], ...] = (
    (Config, ("BLOCK_M", "BLOCK_N", "BLOCK_K")),
    (FlexConfig, ("BLOCK_M1", "BLOCK_N1")),
    (lambda splits, *sizes: FlexDecodeConfig(*sizes), ("SPLIT_KV", "BLOCK_N")),
    (lambda head, *sizes: FlexConfig(*sizes), ("QK_HEAD_DIM", "BLOCK_M", "BLOCK_N")),
)
OPTIONS = ("num_stages", "num_warps")


def _config(values: Callable[[str], int | None]) -> AnyConfig | None:
    """The config of the numbers that ``values`` has by name; None if there is none."""
    for make, names in BLOCKS:
        numbers = [number for name in (*names, *OPTIONS) if (number := values(name)) is not None]
        if len(numbers) == len(names) + len(OPTIONS):
            config = make(*numbers)
            return replace(config, group_m=values("GROUP_M") or 8) if isinstance(config, Config) else config
    return None


def config_of(source: str) -> AnyConfig:
    """Returns the config with which a template's kernel was rendered. Raises ValueError naming what its source
    lacks."""

    def value(name: str) -> int | None:
        return option(source, name) if name in OPTIONS else constant(source, name)

    config = _config(value)
    if config is None:
        missing = [name for name in (*BLOCKS[0][1], *OPTIONS) if value(name) is None]
        raise ValueError(f"the generated kernel does not say {', '.join(missing)}: it is no template of a product")
    return config


def described_config(choice: Choice) -> AnyConfig | None:
    """Returns the config in a choice's description; None without one."""
    return _config(choice.numbers.get)


@functools.singledispatch
def expected_grid(
    problem: Problem, config: AnyConfig, target: Target, sms: int | None, source: str = ""
) -> tuple[int, ...]:
    """Programs that a template launches: those of the catalogue's kernel for the same operation, one per tile. A batch
    is the template's second dimension.

    A class of problems registers its own formula. ``source`` is the kernel's. ``sms``: the template is persistent and
    launches at most so many programs.
    """
    kernel = catalogue.get(problem.op)
    x, y, z = (*kernel.grid(kernel.draft(problem, config, target)), 1, 1)[:3]
    batch = getattr(problem, "batch", None) if len(problem.output.shape) == 3 else None
    if batch:
        x, y = x // batch, batch
    return (x, y, z) if sms is None else (min(sms, x), y, z)


@expected_grid.register
def _(problem: GroupedGemm, config: AnyConfig, target: Target, sms: int | None, source: str = "") -> tuple[int, ...]:
    """Returns just ``sms`` programs of a persistent template: only the device knows the sizes of the groups."""
    formula = expected_grid.dispatch(object)
    return formula(problem, config, target, None, source) if sms is None else (sms, 1, 1)


@expected_grid.register
def _(problem: Attention, config: AnyConfig, target: Target, sms: int | None, source: str = "") -> tuple[int, ...]:
    """Returns the number of programs alone, for releases arrange them differently."""
    return (_attention_programs(problem, source),)


@functools.singledispatch
def arranged(problem: Problem, grid: tuple[int, ...]) -> tuple[int, ...]:
    """Returns ``grid`` as :func:`expected_grid` arranges it."""
    return grid


@arranged.register
def _(problem: Attention, grid: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(grid),)


def _catalogued(plan: Plan) -> Kernel:
    """The catalogue's kernel that computes what ``plan`` does."""
    if isinstance(plan.config, FlexDecodeConfig):
        return catalogue.get("attention_decode")
    blocks = getattr(plan.problem, "scaling", None) in BLOCK_SCALINGS
    return catalogue.get("scaled_mm_blockwise" if blocks else plan.problem.op)


def _attention_programs(problem: Attention, source: str) -> int:
    """One for each block of queries of each head. With few queries: one for each block of the queries of all heads that
    share a head of k, and each part of the keys. Backward: one for each block of keys of a head of k too."""

    def blocks(extent: int, name: str) -> int:
        return -(-extent // (constant(source, name) or 1))

    group, parts = problem.heads // problem.key_heads, constant(source, "SPLIT_KV")
    if problem.backward:
        each = blocks(problem.queries, "BLOCK_M2") * group + blocks(problem.keys, "BLOCK_N1")
        return problem.batch * problem.key_heads * each
    if parts is None:
        return problem.batch * problem.heads * blocks(problem.queries, "BLOCK_M")
    return problem.batch * problem.key_heads * blocks(problem.queries * group, "BLOCK_M") * parts


@dataclass(frozen=True)
class PinnedKernel:
    """The kernel of a trial of generated code: a compiled function, and the contract of what it computes."""

    call: Call

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """The contract of the catalogue's kernel for the same operation: the matrix unit is the same. Where fp8 partial
        sums are promoted, Inductor does so once per block of k. By scales of blocks it multiplies the operands, in
        fp32, and their product is one of tf32. What becomes of the sign of zero, Inductor does not say."""
        base = replace(_catalogued(plan).contract(plan, executor), zero_sign="any")
        if getattr(plan.problem, "scaling", None) in BLOCK_SCALINGS and base.accumulator.kind == "tensor-core":
            unit = plan.target.matrix_unit
            accumulator = Accumulator(
                alignment_bits=unit.alignment_bits, chunk=unit.products[itemsize("fp32")], assumed=unit.assumed
            )
            return replace(base, accumulator=accumulator, operand="tf32")
        if plan.problem.dtype in FP8 and base.accumulator.promote is not None:
            promoted = replace(base.accumulator, promote=plan.config.block_k)
            return replace(base, accumulator=promoted)
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
        self.page_edges = getattr(executor, "page_edges", None)
        self._executor = executor
        self._out = out

    def watching(self, operands: Mapping[str, Tensor], **rules: Any) -> AbstractContextManager[Any]:
        """Returns the accesses of the module's kernels. Lanes that a mask leaves undefined stay zero: the backward of
        flex attention multiplies those behind the last query by zero."""
        return watching(self._executor, operands, **rules, undefined_lanes=False)

    def run(self, launch: Any, programs: Programs | None = None, *, observe: bool = False) -> Ran:
        """Raises ValueError if ``programs`` is given: a compiled function runs whole, and AssertionError if an output
        has not the shape or dtype of the problem's."""
        if programs is not None:
            raise ValueError("a compiled function cannot run part of its grid")
        problem: Problem = launch.plan.problem
        tensors = launch.tensors
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
        return Ran(self.name, arranged(problem, grids[0]) if grids else None, None, 0.0)
