"""The limits of kernels that multiply matrices, and when which refusal is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK
from conformance.families.limits import (
    DESCRIPTOR_BYTES,
    GRID_LIMIT,
    Broken,
    KernelLimits,
    Rule,
    capabilities,
    lacks,
    memory_rules,
    statements,
    together,
    undescribed,
    unstored,
    variants,
)
from conformance.heuristics.configs import decompose_k_splits
from conformance.problems import EVERY_FP8, FNUZ, FP8, PRECISIONS, Operand, itemsize
from conformance.records import ReasonCode

#: Scales of a whole operand, and one scale per row of A and column of B.
WHOLE_SCALINGS = ("tensor", "row")
#: Each 32-bit column of tensor memory has this many rows.
TENSOR_MEMORY_ROWS = 128


@dataclass(frozen=True)
class GemmLimits(KernelLimits):
    """The limits of a kernel that multiplies matrices."""

    #: fields of Variant: see :class:`KernelLimits`. A kernel by pointers takes those that say nothing to it.
    variant: frozenset[str] = frozenset({"static", "flatten", "sms", "splits"})
    #: ways to multiply fp32 operands
    precisions: tuple[str, ...] = PRECISIONS
    #: the only dtype of the output; None for any
    output: str | None = None
    #: operands that are converted when they are loaded -> the dtypes in which they may be stored
    converts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    #: kinds of scales
    scalings: tuple[str, ...] = WHOLE_SCALINGS
    #: the only prologue, without an epilogue; None for any fusion
    prologue: str | None = None
    #: whether a bias is added
    bias: bool = True
    #: whether rows that a descriptor covers may lie apart
    pitch: bool = True
    #: the least bytes of a row of a block that a descriptor moves, by operand
    block_bytes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"out": DESCRIPTOR_BYTES}))
    #: operands that are copied first, which contiguous ones need not be
    copies: tuple[str, ...] = ()
    #: the least blocks of K, unless there is no K
    least_blocks: int = 1
    #: whether programs share K in as many parts as the variant says
    splits_k: bool = False


#: Fields of the variant that a persistent kernel with descriptors takes.
DESCRIBED_VARIANT = frozenset({"descriptors", "tma_store", "epilogue_subtile", "flatten", "static", "sms", "splits"})
#: The capability that each maker of descriptors needs.
MAKERS = MappingProxyType({"device": "tensor-descriptor", "host": "host-descriptor"})


def broken(plan: Any, limits: GemmLimits) -> Iterator[Broken]:
    """Yields what descriptors of A, B and the output cannot cover in the plan's memory."""
    problem, names = plan.problem, limits.described
    if "loop" in limits.states:
        names = getattr(plan.config, "described", names)
    for name in names:
        if name == "out":
            continue
        yield from _shared(plan, operand := problem.operand(name))
        if problem.has_product and operand.numel:
            yield from undescribed(operand)
            yield from _without_pitch(operand, limits)
    if plan.variant.tma_store or "out" in names:
        yield from unstored(problem.output)
        yield from _without_pitch(problem.output, limits)


def _without_pitch(operand: Operand, limits: GemmLimits) -> Iterator[Broken]:
    rows, columns = (-2, -1) if operand.strides[-1] == 1 else (-1, -2)
    apart, length = operand.strides[rows], operand.shape[columns]
    if not limits.pitch and operand.numel and operand.shape[rows] > 1 and apart != length:
        yield ReasonCode.LAYOUT, operand.name, f"rows of {length} elements that are {apart} apart"


def _shared(plan: Any, operand: Operand) -> Iterator[Broken]:
    """No tensor map of the host has a stride of 0."""
    if plan.variant.descriptors == "host" and len(operand.shape) == 3 and operand.strides[0] == 0:
        yield ReasonCode.LAYOUT, operand.name, "one matrix for the whole batch"


def fusions(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "fusion" for a kernel with one prologue, if another one or an epilogue is asked for."""
    fusion = plan.problem.fusion
    if limits.prologue is not None and (fusion.prologue != limits.prologue or fusion.epilogue):
        yield "fusion"


def dtypes(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields operands whose dtype is not taken, b if it has another dtype than a, and dtypes that the target lacks."""
    problem = plan.problem
    stored = {"a": problem.a_dtype, "b": problem.second_dtype}
    for name, accepted in limits.converts.items():
        if stored[name] not in accepted or (stored[name] in FP8 and lacks(plan.target, stored[name])):
            yield name
    computed = {name: problem.dtype if name in limits.converts else dtype for name, dtype in stored.items()}
    yield from (name for name, dtype in computed.items() if dtype not in limits.dtypes)
    both = set(computed.values())
    if len(both) > 1 and not (both <= set(FP8) or both <= set(FNUZ)):
        yield "b"
    if limits.output not in (None, problem.output_dtype):
        yield "out"
    names = {*both, problem.output_dtype} & {*EVERY_FP8, "bf16", "fp16", "fp64"}
    yield from (name for name in names if lacks(plan.target, name))


def precisions(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields the precision of fp32 operands that the kernel does not take or that the target lacks."""
    problem, target = plan.problem, plan.target
    if problem.dtype != "fp32":
        return
    unrolls = target.vendor == "amd" and problem.precision in PRECISIONS and lacks(target, "mfma")
    if problem.precision not in limits.precisions or unrolls or lacks(target, problem.precision):
        yield str(problem.precision)


def layouts(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields fp8 operands that do not lie along k, which matrix units of Hopper need; a gathered operand without whole
    rows; and operands that need no copy."""
    problem = plan.problem
    if problem.dtype in EVERY_FP8 and problem.a_dtype in EVERY_FP8:
        for name, layout, order, inner in (("a", problem.layout_a, "row", -1), ("b", problem.layout_b, "col", -2)):
            if layout.order != order or problem.operand(name).strides[inner] != 1:
                yield name
    if limits.prologue == "gather" and problem.operand("a").strides[1] != 1:
        yield "a"
    yield from (name for name in limits.copies if problem.operand(name).strides == (problem.N, 1))


def scales(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "scaling" for scales of another kind."""
    if plan.problem.scaling not in (None, *limits.scalings):
        yield "scaling"


def biases(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "bias" for a kernel that adds none."""
    if plan.problem.reads_bias and not limits.bias:
        yield "bias"


def block_bytes(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields operands of which a descriptor would move blocks with rows that are too short."""
    problem, config = plan.problem, plan.config
    inner = {"out": config.block_n // plan.variant.epilogue_subtile} if plan.variant.tma_store else {}
    if problem.has_product:
        inner["a"] = config.block_k if problem.operand("a").strides[-1] == 1 else config.block_m
        inner["b"] = config.block_n if problem.operand("b").strides[-1] == 1 else config.block_k
    for name, least in limits.block_bytes.items() if limits.described else ():
        if name in inner and inner[name] * itemsize(_operand(problem, name).dtype) < least:
            yield name


def _operand(problem: Any, name: str) -> Operand:
    return problem.output if name == "out" else problem.operand(name)  # type: ignore[no-any-return]


def block_size(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "block size" below the least tiles of matrix units: 16 in each direction, 32 k of one byte."""
    config, least = plan.config, 32 if itemsize(plan.problem.dtype) == 1 else 16
    if config.block_k < least or min(config.block_m, config.block_n) < 16:
        yield "block size"


def kpack(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "kpack" where AMD packs more k of tf32 operands than a block has."""
    packed = 16 * dict(plan.config.vendor).get("kpack", 1)
    if plan.target.vendor == "amd" and plan.problem.precision == "tf32" and plan.config.block_k < packed:
        yield "kpack"


def blocks(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "BLOCK_K" if scales are for parts of blocks, or K has too few blocks."""
    problem, block_k = plan.problem, plan.config.block_k
    few = 0 < problem.K <= (limits.least_blocks - 1) * block_k
    if few or (problem.scaling in BLOCK_SCALINGS and SCALE_BLOCK % block_k):
        yield "BLOCK_K"


def subtiles(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "epilogue_subtile" if a persistent kernel would store blocks of fewer than 16 columns."""
    if limits.makers and plan.config.block_n // plan.variant.epilogue_subtile < 16:
        yield "epilogue_subtile"


def loops(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "loop" for tiles, warps or stages with which a loop cannot be specialised."""
    config = plan.config
    if "loop" in limits.states and (config.block_m < 64 or config.num_warps % 4 or config.num_stages < 2):
        yield "loop"


def splits(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "splits" if K is not divided into 2 parts or more of one length."""
    problem, parts = plan.problem, plan.variant.splits
    if limits.splits_k:
        if parts is None:
            parts = next(iter(decompose_k_splits(problem.M, problem.N, problem.K)), 0)
        if not 2 <= parts <= GRID_LIMIT or problem.K % parts:
            yield "splits"


def tcgen05(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "tcgen05" for tiles and warps that it does not take, if the kernel needs it."""
    if "tcgen05" in limits.needs and (plan.config.block_m < 64 or plan.config.num_warps % 4):
        yield "tcgen05"


def tensor_memory(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "tensor memory" if it cannot hold the sums of a tile."""
    limit = plan.target.limits.tensor_memory
    columns = -(-plan.config.block_m // TENSOR_MEMORY_ROWS) * plan.config.block_n
    if "tcgen05" in limits.needs and limit is not None and columns > limit:
        yield "tensor memory"


#: What the matrix units ask of a product, for the families whose kernels compute one.
OF_PRODUCT: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        ReasonCode.DTYPE: dtypes,
        ReasonCode.PRECISION: precisions,
        ReasonCode.CONFIG: together(block_size, kpack),
    }
)

_MEMORY = memory_rules(broken)
REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        **_MEMORY,
        ReasonCode.OPERATION: fusions,
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.PRECISION: precisions,
        ReasonCode.LAYOUT: together(_MEMORY[ReasonCode.LAYOUT], layouts),
        ReasonCode.SCALE: scales,
        ReasonCode.BIAS: biases,
        ReasonCode.BLOCK_BYTES: block_bytes,
        ReasonCode.CONFIG: together(
            *(variants, statements, block_size, kpack, blocks, subtiles, loops, splits, tcgen05, tensor_memory)
        ),
    }
)


def as_product(rule: Rule) -> Rule:
    """Returns ``rule`` about the product that the plan's problem amounts to, its ``product``."""
    return lambda plan, limits: rule(dataclasses.replace(plan, problem=plan.problem.product), limits)
