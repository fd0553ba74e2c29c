"""What a shipped kernel may refuse, and must: rules that are stated here and nowhere in a kernel.

The rules of descriptors are those of ``cuTensorMapEncodeTiled`` (CUDA driver API): a base on 16 bytes, a pitch that is
a multiple of 16 bytes and below 2**40, a unit inner stride; and, for a store, rows that end on 16 bytes, because the
copy unit writes whole ones. A refusal that no rule justifies is a failure: a case that a kernel does not take any more
must not leave a run green.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from conformance.families.attention.problem import Attention
from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK
from conformance.families.int4.problem import Int4Gemm
from conformance.families.microscaled.problem import BlockScaled
from conformance.kernels.kernel import Kernel, Plan, Variant
from conformance.problems import BASE_ALIGNMENT, DTYPES, EVERY_FP8, FNUZ, FP8, SPLIT_PRECISIONS, Operand, itemsize
from conformance.records import Reason, ReasonCode

#: Bytes of which a descriptor's base and pitch, and the rows of what it stores, are multiples.
DESCRIPTOR_BYTES = 16
#: A descriptor's pitch in bytes is below this, and its sizes below 2**31.
PITCH_LIMIT, SIZE_LIMIT = 2**40, 2**31
#: Programs along the second and third dimension of a grid, at most.
GRID_LIMIT = 65535
#: Families of problems of sequences that lie one behind the other, and all with a softmax.
PACKED = ("packed-attention", "paged-attention")
ATTENTION = ("attention", "fp8-attention", *PACKED)

Broken = tuple[ReasonCode, str, str]


def broken_by_descriptors(problem: Any, *, tma_store: bool) -> list[Broken]:
    """The rules that descriptors of A and B, or of q, k and v, and of the output if ``tma_store``, break: for each a
    code, the operand, and what is broken in bytes. Empty: a kernel with descriptors must take the problem's memory."""
    names = "qkv" if isinstance(problem, Attention) else "ab" if problem.has_product else ""
    described = [problem.operand(name) for name in names]
    described += [problem.output] if tma_store else []
    broken = [rule for operand in described if operand.numel for rule in _broken_by(operand)]
    if names == "ab" and getattr(problem, "ragged", None):
        broken += _broken_by_groups(problem)
    if tma_store and problem.output.numel:
        out = problem.output
        rest = out.shape[-1] * itemsize(out.dtype) % DESCRIPTOR_BYTES
        if out.strides[-1] != 1:
            broken.append((ReasonCode.LAYOUT, out.name, f"an inner stride of {out.strides[-1]} elements"))
        if rest:
            text = f"rows that end {rest} bytes past a multiple of {DESCRIPTOR_BYTES}"
            broken.append((ReasonCode.ALIGNMENT_EXTENT, out.name, text))
    return broken


def _broken_by(operand: Operand) -> Iterator[Broken]:
    size = itemsize(operand.dtype)
    if 1 not in operand.strides[-2:]:
        yield ReasonCode.LAYOUT, operand.name, f"strides of {operand.strides} elements, none of them 1"
        return
    base = operand.offset * size % BASE_ALIGNMENT % DESCRIPTOR_BYTES
    if base:
        yield ReasonCode.ALIGNMENT_BASE, operand.name, f"a base {base} bytes past a multiple of {DESCRIPTOR_BYTES}"
    rows = -2 if operand.strides[-1] == 1 else -1
    pitch = operand.strides[rows] * size
    if operand.shape[rows] > 1 and pitch % DESCRIPTOR_BYTES:
        yield ReasonCode.ALIGNMENT_PITCH, operand.name, f"a pitch of {pitch} bytes, no multiple of {DESCRIPTOR_BYTES}"
    apart = operand.strides[0] * size if len(operand.shape) == 3 and operand.shape[0] > 1 else 0
    if apart % DESCRIPTOR_BYTES:
        text = f"matrices {apart} bytes apart, no multiple of {DESCRIPTOR_BYTES}"
        yield ReasonCode.ALIGNMENT_PITCH, operand.name, text
    if len(operand.shape) == 4:  # a descriptor lies over the rows of one batch and head
        yield from (
            (ReasonCode.ALIGNMENT_PITCH, operand.name, f"matrices {stride * size} bytes apart")
            for extent, stride in zip(operand.shape[:2], operand.strides[:2], strict=True)
            if extent > 1 and stride * size % DESCRIPTOR_BYTES
        )
    if max(operand.shape) >= SIZE_LIMIT or apart >= PITCH_LIMIT or (operand.shape[rows] > 1 and pitch >= PITCH_LIMIT):
        yield ReasonCode.EXTENT, operand.name, f"sizes {operand.shape} and a pitch of {pitch} bytes"


def broken_by_gaps(plan: Plan) -> list[Broken]:
    """The rules of a descriptor with gaps (cuTensorMapEncodeTiled, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B) that the plan
    of a block-scaled product breaks: by it tcgen05 gets four-bit codes beside eight-bit ones. None where the unit
    multiplies without scales, and Triton converts the codes."""
    problem = plan.problem
    scaled = all(form.scale for form in problem.formats) and plan.config.block_m >= 128
    mixed = len({form.codes == "e2m1" for form in problem.formats}) == 2
    if not (scaled and mixed and problem.has_product and plan.target.capability("tcgen05").available):
        return []
    operand = problem.operand("a" if problem.formats[0].codes == "e2m1" else "b")
    rows = -2 if operand.strides[-1] == 1 else -1
    codes, pitch = 2 * operand.shape[-3 - rows], operand.strides[rows]
    broken = []
    if operand.offset % 32:
        broken.append((ReasonCode.ALIGNMENT_BASE, operand.name, f"a base {operand.offset % 32} bytes past 32"))
    if operand.shape[rows] > 1 and pitch % 32:
        broken.append((ReasonCode.ALIGNMENT_PITCH, operand.name, f"a pitch of {pitch} bytes, no multiple of 32"))
    apart = operand.strides[0] if len(operand.shape) == 3 and operand.shape[0] > 1 else 0
    if apart % 32:
        text = f"matrices {apart} bytes apart, no multiple of 32"
        broken.append((ReasonCode.ALIGNMENT_PITCH, operand.name, text))
    if codes % 128:
        broken.append((ReasonCode.ALIGNMENT_EXTENT, operand.name, f"rows of {codes} codes, no multiple of 128"))
    return broken


def _broken_by_groups(problem: Any) -> Iterator[Broken]:
    """Groups that begin within a unit of the copy engine along an operand's unit stride."""
    for name, rows, columns in (("a", "M", "K"), ("b", "K", "N")):
        operand = problem.operand(name)
        inner, axis = (columns, -1) if operand.strides[-1] == 1 else (rows, -2)
        if inner != problem.ragged:
            continue
        bits = 8 * operand.shape[axis] * itemsize(operand.dtype) // problem.extent(inner)
        begins = [sum(problem.sizes[:group]) for group, size in enumerate(problem.sizes) if size]
        yield from (
            (ReasonCode.ALIGNMENT_BASE, name, f"a group that begins at {inner} = {begin}")
            for begin in begins
            if begin * bits % (8 * DESCRIPTOR_BYTES)
        )


def accepted(kernel: Kernel, broken: Broken) -> str:
    """Returns what is said of a kernel that takes what it must refuse."""
    _, operand, what = broken
    return f"{kernel.name} accepted operand {operand} with {what}; it must refuse that"


def objection(kernel: Kernel, plan: Plan, reason: Reason) -> str | None:
    """Returns why ``reason`` is no reason for ``kernel`` to refuse ``plan``; None if a rule justifies it."""
    rule = _RULES.get((reason.code, reason.subject)) or _RULES.get((reason.code, ""))
    if rule is None:
        return f"{kernel.name} refuses {plan.problem.id}: {reason}. No rule of the suite says that it may"
    if rule(kernel, plan, reason.subject):
        return None
    return (
        f"{kernel.name} refuses {plan.problem.id} with {plan.config.id}: {reason}. By the suite's rule it must take it"
    )


# Each rule says whether the refusal is justified: (kernel, plan, subject of the reason) -> bool

Rule = Callable[[Any, Plan, str], bool]


def _operation(kernel: Any, plan: Plan, subject: str) -> bool:
    if plan.problem.op not in kernel.operations:
        return True
    # a convolution as a product: what is not one tap on every position
    plain = {"kernel": {1}, "stride": {1}, "padding": {0}, "groups": {1}}
    if getattr(kernel, "pointwise", False) and subject in plain:
        value = getattr(plan.problem, subject)
        return set(value if isinstance(value, tuple) else (value,)) != plain[subject]
    if getattr(kernel, "depthwise", False) and subject == "groups":
        return bool(plan.problem.groups != plan.problem.channels)
    return False


def _mask(kernel: Any, plan: Plan, subject: str) -> bool:
    return bool(plan.problem.mask.packed != (kernel.family in PACKED))


def _page(kernel: Any, plan: Plan, subject: str) -> bool:
    return bool(bool(plan.problem.page) != (kernel.family == "paged-attention"))


def _fusion(kernel: Any, plan: Plan, subject: str) -> bool:
    """A kernel with one prologue does nothing else beside the product."""
    fusion, prologue = plan.problem.fusion, getattr(kernel, "prologue", None)
    return bool(prologue and (fusion.prologue != prologue or fusion.epilogue))


def _lacks(plan: Plan, name: str) -> bool:
    try:
        return not plan.target.capability(name).available
    except ValueError:
        return False


def _capability(kernel: Any, plan: Plan, subject: str) -> bool:
    if getattr(kernel, "without_tma", False) and subject == "tma":
        return not _lacks(plan, "tma")
    return _lacks(plan, subject)


def _dtypes_of(plan: Plan) -> set[str]:
    problem = plan.problem
    names = {operand.dtype for operand in problem.tensors if operand.name in ("a", "b", "x", "w", "q", "k", "v")}
    return names | {problem.dtype}


def _dtype(kernel: Any, plan: Plan, subject: str) -> bool:
    if isinstance(plan.problem, BlockScaled):  # of codes and scales that the target lacks
        return subject in {name for form in plan.problem.formats for name in (form.codes, form.scale)} and _lacks(
            plan, subject
        )
    if isinstance(plan.problem, Int4Gemm):
        return subject in (plan.problem.dtype, plan.problem.out_dtype) and _lacks(plan, subject)
    names = _dtypes_of(plan)
    taken = {*kernel.dtypes, *getattr(kernel, "more_dtypes", ()), *getattr(kernel, "rare_dtypes", ())}
    if kernel.family in ("gemm", "loads") and plan.problem.op in ("mixed_mm", "fused_mm"):
        taken |= set(DTYPES) - set(FNUZ) if plan.problem.op == "fused_mm" else {"int8", "uint8"}
    one_kind = len(names) == 1 or names <= set(FP8) or names <= set(FNUZ)
    unlike = not one_kind and plan.problem.op not in ("mixed_mm", "fused_mm")
    missing = any(
        _lacks(plan, name) for name in {*names, plan.problem.output.dtype} & {*EVERY_FP8, "bf16", "fp16", "fp64"}
    )
    return bool(names - taken) or unlike or missing


def _output_dtype(kernel: Any, plan: Plan, subject: str) -> bool:
    """Sums that are added in memory are in the output's dtype; sums in fp16 hold no more, and those of fp64 stay."""
    sums = {"mm_atomic_split_k": "fp32", "mm_reduce_split_k": "fp32", "mm_fp16_acc": "fp16", "mm_fp64": "fp64"}
    return kernel.name in sums and bool(plan.problem.output.dtype != sums[kernel.name])


def _precision(kernel: Any, plan: Plan, subject: str) -> bool:
    if _dtypes_of(plan) != {"fp32"}:
        return False
    only = getattr(kernel, "matrix_unit_only", False) or getattr(plan.config, "specialised", False)
    if only and plan.problem.precision == "ieee":
        return True
    if plan.problem.precision in SPLIT_PRECISIONS and plan.problem.precision not in kernel.more_precisions:
        return True
    if getattr(kernel, "depthwise", False):  # it has no matrix unit
        return bool(plan.problem.precision != "ieee")
    return _lacks(plan, plan.problem.precision) or (plan.target.vendor == "amd" and _lacks(plan, "mfma"))


def _breaks(kernel: Any, plan: Plan, code: ReasonCode, subject: str) -> bool:
    """True if the memory of ``subject`` breaks the rule ``code`` of descriptors and is loaded or stored by one. Some
    configs say which operands are."""
    described = getattr(plan.config, "described", getattr(kernel, "described", ""))
    if not kernel.descriptors and subject not in described:
        return False
    broken = broken_by_descriptors(plan.problem, tma_store=plan.variant.tma_store or "out" in described)
    if isinstance(plan.problem, BlockScaled):
        broken += broken_by_gaps(plan)
    return any((known, name) == (code, subject) for known, name, _ in broken)


def _layout(kernel: Any, plan: Plan, subject: str) -> bool:
    problem = plan.problem
    if kernel.family == "conv":
        orders = {problem.order_x, problem.order_out} != {"channels-last"}
        return bool(kernel.pointwise) and (orders or (problem.batch_pad > 0 and problem.batch > 1))
    operand = problem.operand(subject)
    if kernel.family in ATTENTION:
        return subject in getattr(kernel, "described", ()) and bool(operand.strides[-1] != 1)
    if _breaks(kernel, plan, ReasonCode.LAYOUT, subject):
        return True
    if kernel.descriptors and plan.variant.descriptors == "host" and operand.strides[0] == 0:
        return True  # no tensor map has a stride of 0
    if getattr(kernel, "prologue", None) == "gather" and subject == "a":
        return bool(operand.strides[-1] != 1)
    if kernel.descriptors:
        if type(kernel).__name__.startswith("LegacyTma") and operand.strides[-1] == 1:
            return bool(operand.strides[-2] != operand.shape[-1])  # tensor maps without a pitch
        if type(kernel).__name__.startswith("LegacyTma"):
            return bool(operand.strides[-1] != operand.shape[-2])
    if problem.op in ("scaled_mm", "scaled_grouped_mm") or problem.dtype in EVERY_FP8:
        return bool(operand.strides[{"a": -1, "b": -2}.get(subject, -1)] != 1)
    return bool(kernel.name.startswith("contiguous_") and subject == "b" and operand.strides == (problem.N, 1))


def _alignment(code: ReasonCode) -> Rule:
    def rule(kernel: Any, plan: Plan, subject: str) -> bool:
        return _breaks(kernel, plan, code, subject)

    return rule


def _scale(kernel: Any, plan: Plan, subject: str) -> bool:
    if isinstance(plan.problem, BlockScaled):
        return "nvfp4" in (plan.problem.a_format, plan.problem.b_format) and len(set(plan.problem.formats)) > 1
    if kernel.family in ATTENTION:
        return bool(kernel.family != "fp8-attention")
    return (plan.problem.scaling in BLOCK_SCALINGS) != bool(getattr(kernel, "block_scaled", False))


#: Families whose kernels by pointers take their sizes as constants, too.
KNOW_SIZES = (
    *("gemm", "conv", "conv-gradient", "split-k", "loads", "grouped", "int4", "linear-attention"),
    *("microscaled", "microscaled-grouped"),
)


def _variant(kernel: Any, plan: Plan, subject: str) -> bool:
    """True if the variant asks for what no rule says that the kernel must have."""
    usual = Variant()
    names = [field.name for field in dataclasses.fields(Variant)]
    unusual = {name for name in names if getattr(plan.variant, name) != getattr(usual, name)}
    must = {"sms"}
    if kernel.descriptors:
        must |= {"descriptors", "tma_store", "static"}
        must |= set() if "legacy" in kernel.name else {"epilogue_subtile", "flatten"}
        must -= {"descriptors"} if "legacy_descriptor" in kernel.name else set()
        must -= {"static", "epilogue_subtile"} if kernel.family in ("microscaled", "grouped") else set()
        must -= {"flatten"} if kernel.family == "grouped" else set()
        must &= {"sms", "descriptors"} if kernel.family == "microscaled-grouped" else must
        whole = "bmm" in kernel.operations or getattr(kernel, "block_scaled", False)
        must -= {"flatten", "static", "epilogue_subtile"} if whole else set()
    elif kernel.family in KNOW_SIZES:
        must |= {"static"}
    elif "out" in getattr(kernel, "described", ()):
        must |= {"tma_store"}
    if "int_mm" in kernel.operations:
        must |= {"implied_dtype"}
    return bool(unusual - must)


def _subtile(kernel: Any, plan: Plan, subject: str) -> bool:
    return bool(plan.config.block_n // plan.variant.epilogue_subtile < 16)


def _group_store(kernel: Any, plan: Plan, subject: str) -> bool:
    """A stored block ends with its group only if the device makes a descriptor for each, and groups have rows."""
    ragged, host = plan.problem.ragged, plan.variant.descriptors == "host"
    return bool(plan.variant.tma_store and (ragged == "N" or (ragged == "M" and host)))


def _tiles_of_scales(kernel: Any, plan: Plan, subject: str) -> bool:
    """Scales that are loaded by descriptor come in tiles of 128 lines by 4 scales."""
    sides = zip((plan.config.block_m, plan.config.block_n), plan.problem.formats, strict=True)
    return any(form.scale and (lines % 128 or plan.config.block_k % (4 * form.block)) for lines, form in sides)


def _layout_of_scales(kernel: Any, plan: Plan, subject: str) -> bool:
    if not kernel.descriptors:
        return bool(_several_matrices(kernel) and plan.problem.swizzled)
    return not plan.problem.swizzled or plan.problem.operand(subject).offset % DESCRIPTOR_BYTES != 0


def _block_bytes(kernel: Any, plan: Plan, subject: str) -> bool:
    least = 32 if "legacy" in kernel.name else DESCRIPTOR_BYTES
    out = plan.config.block_n // plan.variant.epilogue_subtile * itemsize(plan.problem.output.dtype)
    size = itemsize(plan.problem.dtype)
    inner = [out] if plan.variant.tma_store else []
    if "legacy" in kernel.name:
        inner += [size * block for block in plan.config.tile]
    return any(size < least for size in inner)


def _block_size(kernel: Any, plan: Plan, subject: str) -> bool:
    """The least tiles of the matrix units: 16 in each direction, 32 k of operands of one byte."""
    if kernel.family in (*ATTENTION, "linear-attention"):
        least = 32 if plan.problem.dtype in EVERY_FP8 else 16  # of keys, which the second product sums over
        return any(size < 16 or size & (size - 1) for size in plan.config.tile) or plan.config.tile[-1] < least
    config = plan.config
    if isinstance(plan.problem, BlockScaled):
        return bool(config.block_k < 64 or min(config.block_m, config.block_n) < 32)
    depth = 32 if itemsize(plan.problem.dtype) == 1 else 16
    return bool(config.block_k < depth or min(config.block_m, config.block_n) < 16)


def _block_k(kernel: Any, plan: Plan, subject: str) -> bool:
    if kernel.name == "mm_plus_mm":
        return bool(0 < plan.problem.K <= plan.config.block_k)
    return plan.problem.scaling in BLOCK_SCALINGS and SCALE_BLOCK % plan.config.block_k != 0


def _several_matrices(kernel: Any) -> bool:
    """True if a tile of the kernel has several matrices of a batch."""
    return bool(getattr(kernel, "batched", False) and not kernel.descriptors)


def _matrices(kernel: Any, plan: Plan, subject: str) -> bool:
    return not hasattr(plan.config, "matrices")


def _chain(kernel: Any, plan: Plan, subject: str) -> bool:
    return not hasattr(plan.config, "chain")


def _loop(kernel: Any, plan: Plan, subject: str) -> bool:
    config = plan.config
    if not hasattr(config, "loop") and not getattr(config, "specialised", False):
        return kernel.family not in ATTENTION
    return bool(config.block_m < 64 or config.num_warps % 4 or config.num_stages < 2)


def _chunk(kernel: Any, plan: Plan, subject: str) -> bool:
    return plan.problem.chunk % plan.config.block_t != 0  # type: ignore[no-any-return]


def _kpack(kernel: Any, plan: Plan, subject: str) -> bool:
    packed = 16 * dict(plan.config.vendor).get("kpack", 1)
    return plan.target.vendor == "amd" and plan.problem.precision == "tf32" and plan.config.block_k < packed


def _splits(kernel: Any, plan: Plan, subject: str) -> bool:
    splits = plan.variant.splits
    if kernel.family in ATTENTION:
        return splits is not None
    return splits is None or not 2 <= splits <= GRID_LIMIT or plan.problem.K % splits != 0


def _list_block(kernel: Any, plan: Plan, subject: str) -> bool:
    block = plan.problem.block
    if not block:
        return False
    if getattr(plan.config, "merged", False):  # one loop, over a range
        return True
    return any(block % size for size in plan.config.tile) or plan.problem.queries > block


def _tcgen05(kernel: Any, plan: Plan, subject: str) -> bool:
    return bool(plan.config.block_m < 64 or plan.config.num_warps % 4)


def _tensor_memory(kernel: Any, plan: Plan, subject: str) -> bool:
    limit = plan.target.limits.tensor_memory
    return limit is not None and -(-plan.config.block_m // 128) * plan.config.block_n > limit


def _bias(kernel: Any, plan: Plan, subject: str) -> bool:
    return bool("legacy" in kernel.name and plan.problem.reads_bias)


def _extent(kernel: Any, plan: Plan, subject: str) -> bool:
    """Sizes past an index or a grid, and those for which another kernel is meant."""
    problem = plan.problem
    if kernel.family in ATTENTION:
        group = problem.heads // problem.key_heads
        depth = 32 if problem.dtype in EVERY_FP8 else 16
        least = {"head_dim": problem.head_dim < depth, "value_dim": problem.values_dim < 16}
        matrices = problem.mask.size if problem.mask.packed else problem.batch
        most = {"batch": matrices > GRID_LIMIT, "heads": problem.heads > GRID_LIMIT}
        decode = {"queries": problem.queries >= 128, "rows": problem.queries * group > 128}
        rows = problem.batch * max(problem.queries, problem.keys, problem.heads)
        far = {"positions": max(problem.queries + problem.keys + problem.mask.size, rows) >= 2**31 - 2**16}
        known = {**least, **most, **far, **(decode if "decode" in kernel.name else {})}
        return bool(known.get(subject, False))
    if kernel.family == "linear-attention":
        most = {"batch": problem.batch > GRID_LIMIT, "heads": problem.heads > GRID_LIMIT}
        return bool({**most, "head_dim": problem.head_dim < 16}.get(subject, False))
    if kernel.family == "conv":
        if getattr(kernel, "depthwise", False):
            return bool(-(-problem.out_channels // plan.config.block_n) > GRID_LIMIT)
        columns = -(-problem.out_channels // problem.groups // plan.config.block_n)
        return bool(problem.batch == 0 if subject == "batch" else max(problem.groups, columns) > GRID_LIMIT)
    if kernel.family == "conv-gradient":
        return bool(max(problem.groups, -(-problem.product.N // plan.config.block_n)) > GRID_LIMIT)
    if isinstance(problem, BlockScaled) and subject == "batch":
        batch = getattr(problem, "batch", None)
        if getattr(kernel, "batched", False):
            return batch is None
        return batch is not None if kernel.descriptors else (batch or 0) > GRID_LIMIT
    return _breaks(kernel, plan, ReasonCode.EXTENT, subject)


#: (code, subject) -> rule; the subject "" stands for any that has no rule of its own.
_RULES: dict[tuple[ReasonCode, str], Rule] = {
    (ReasonCode.OPERATION, ""): _operation,
    (ReasonCode.OPERATION, "fusion"): _fusion,
    (ReasonCode.OPERATION, "mask"): _mask,
    (ReasonCode.OPERATION, "page"): _page,
    (ReasonCode.CAPABILITY, ""): _capability,
    (ReasonCode.DTYPE, ""): _dtype,
    (ReasonCode.DTYPE, "out"): _output_dtype,
    (ReasonCode.PRECISION, ""): _precision,
    (ReasonCode.LAYOUT, ""): _layout,
    (ReasonCode.SCALE, ""): _scale,
    (ReasonCode.BIAS, ""): _bias,
    (ReasonCode.EXTENT, ""): _extent,
    (ReasonCode.BLOCK_BYTES, ""): _block_bytes,
    (ReasonCode.CONFIG, "variant"): _variant,
    (ReasonCode.CONFIG, "epilogue_subtile"): _subtile,
    (ReasonCode.CONFIG, "tiles of scales"): _tiles_of_scales,
    **{(ReasonCode.LAYOUT, name): _layout_of_scales for name in ("scale_a", "scale_b")},
    (ReasonCode.CONFIG, "tma_store"): _group_store,
    (ReasonCode.CONFIG, "block size"): _block_size,
    (ReasonCode.CONFIG, "BLOCK_K"): _block_k,
    (ReasonCode.CONFIG, "chain"): _chain,
    (ReasonCode.CONFIG, "matrices"): _matrices,
    (ReasonCode.CONFIG, "loop"): _loop,
    (ReasonCode.CONFIG, "chunk"): _chunk,
    (ReasonCode.CONFIG, "kpack"): _kpack,
    (ReasonCode.CONFIG, "splits"): _splits,
    (ReasonCode.CONFIG, "block"): _list_block,
    (ReasonCode.CONFIG, "tcgen05"): _tcgen05,
    (ReasonCode.CONFIG, "tensor memory"): _tensor_memory,
    **{
        (code, ""): _alignment(code)
        for code in (ReasonCode.ALIGNMENT_BASE, ReasonCode.ALIGNMENT_PITCH, ReasonCode.ALIGNMENT_EXTENT)
    },
}
