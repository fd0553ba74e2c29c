"""The attention kernels of the catalogue: forward, backward, and forward for few queries (decode)."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.heuristics.base import FLEX_BWD, FLEX_DECODE, FLEX_FWD
from conformance.heuristics.configs import AnyConfig, Config, FlexConfig, FlexDecodeConfig
from conformance.kernels import carveout, gemm
from conformance.kernels.block_mask import block_lists
from conformance.kernels.device.attention_backward import (
    attention_backward_keys,
    attention_backward_queries,
    attention_delta,
)
from conformance.kernels.device.attention_decode import attention_decode, attention_decode_merge
from conformance.kernels.device.attention_forward import attention_forward
from conformance.kernels.kernel import Kernel, Plan, Variant, check_tensors
from conformance.kernels.launch import Launch, workspace
from conformance.numerics.contract import Contract
from conformance.problems import Attention, Operand, itemsize, mm
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: From this many queries on, splitting the keys is not worth merging the parts.
DECODE_QUERIES = 128

#: Rows (queries of all heads that share a head of k) that one decode program holds.
DECODE_ROWS = 128

#: Programs along the second and third axis of a CUDA grid.
GRID_LIMIT = 65_535

#: Smallest extent of a tile that every matrix unit takes.
LEAST_TILE = 16

#: fp32 numbers that reductions over rows keep in shared memory, at most.
SUMS = 512

#: Rows of the launch that sums out * grad_out, and parts that the merge of decode adds up at a time.
DELTA_ROWS, MERGED_PARTS = 64, 16

#: The kernel of the products inside: it says what they ask of dtype and target, and what their arithmetic is.
_PRODUCT = next(kernel for kernel in gemm.KERNELS if kernel.name == "mm")


def _power_of_two(extent: int) -> int:
    """The next power of two, at least the smallest tile."""
    return max(1 << (extent - 1).bit_length(), LEAST_TILE)


def _blocks(extent: int, block: int) -> int:
    return -(-extent // block)


class AttentionKernel(Kernel):
    """What the three share: requirements, the contract of the products inside, arguments."""

    family = "attention"
    dtypes = ("bf16", "fp16", "fp32")
    operation: ClassVar[str]

    def __init__(self, name: str, table: str, configs: tuple[AnyConfig, ...]) -> None:
        self.name = name
        self.operations = frozenset({self.operation})
        self.table = table
        self.configs = configs

    # What each of them answers

    @abc.abstractmethod
    def _tiles(self, problem: Attention, config: Any) -> tuple[int, ...]:
        """Extents of the blocks of queries and keys: each must divide the block of the lists."""

    @abc.abstractmethod
    def _rows(self, problem: Attention, config: Any) -> int:
        """Rows of the products of the main launch, which choose the matrix instruction."""

    @abc.abstractmethod
    def _resident(self, problem: Attention, config: Any) -> tuple[int, int]:
        """Elements of the tiles that stay in shared memory, and of those that one stage of the pipeline loads."""

    def _shape(self, problem: Attention) -> Reason | None:
        """Why this kernel does not take the sizes, beyond what all of them ask."""
        return None

    # Requirements

    def refusal(self, problem: Any, config: Any, target: Target, variant: Variant) -> Reason | None:
        if problem.op not in self.operations:
            detail = f"{self.name} computes {self.operation}, not {problem.op}"
            return Reason(ReasonCode.OPERATION, problem.op, detail)
        if problem.dtype not in self.dtypes:
            detail = f"q, k and v are {problem.dtype}, {self.name} takes {', '.join(self.dtypes)}: convert them"
            return Reason(ReasonCode.DTYPE, "q", detail)
        return (
            self._extents(problem)
            or self._shape(problem)
            or self._variant(variant)
            or self._config(problem, config)
            or _PRODUCT.refusal(*self._product(problem, config), target, Variant())
            or self._shared_memory(problem, config, target)
        )

    def _extents(self, problem: Attention) -> Reason | None:
        for name, extent in (("head_dim", problem.head_dim), ("value_dim", problem.values_dim)):
            if extent < LEAST_TILE:
                detail = f"{name} is {extent}: the matrix units need {LEAST_TILE} at least. Pad q, k and v with zeros"
                return Reason(ReasonCode.EXTENT, name, detail)
        for name, extent in (("batch", problem.batch), ("heads", problem.heads)):
            if extent > GRID_LIMIT:
                detail = f"{name} is {extent}: it is a dimension of the grid, at most {GRID_LIMIT}. Split the problem"
                return Reason(ReasonCode.EXTENT, name, detail)
        positions = problem.queries + problem.keys + problem.mask.size
        numbers = problem.batch * max(problem.queries, problem.keys, problem.heads)
        if max(positions, numbers) >= 2**31 - 2**10:
            detail = (
                f"{problem.queries} queries, {problem.keys} keys and a window of {problem.mask.size} in a batch of "
                f"{problem.batch}: positions and row numbers are 32-bit integers. Split the problem"
            )
            return Reason(ReasonCode.EXTENT, "positions", detail)
        return None

    def _variant(self, variant: Variant) -> Reason | None:
        plain = dataclasses.replace(variant, sms=None, splits=None)
        if plain != Variant():
            detail = f"{self.name} has no descriptors, subtiles or static sizes, '{plain.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        if variant.splits is not None and not isinstance(self, Decode):
            detail = f"{self.name} does not split the keys, {variant.splits} parts were asked for"
            return Reason(ReasonCode.CONFIG, "splits", detail)
        return None

    def _config(self, problem: Attention, config: Any) -> Reason | None:
        tiles = self._tiles(problem, config)
        if any(tile < LEAST_TILE or tile & (tile - 1) for tile in tiles):
            detail = f"{config.id}: blocks of queries and keys must be powers of two, {LEAST_TILE} at least"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        if problem.block and any(problem.block % tile for tile in tiles):
            detail = (
                f"{config.id}: the lists are of blocks of {problem.block} queries and keys, which tiles of "
                f"{' and '.join(map(str, tiles))} must divide. Use another config or larger blocks"
            )
            return Reason(ReasonCode.CONFIG, "block", detail)
        return None

    def _shared_memory(self, problem: Attention, config: Any, target: Target) -> Reason | None:
        """An estimate from below: warpgroup instructions read every stage and what stays from shared memory, smaller
        ones have one stage in registers, and AMD's keep there what stays."""
        resident, loaded = self._resident(problem, config)
        plan = Plan(self.name, problem, config, Variant(), target, ())
        warpgroup = bool({codegen.WGMMA, codegen.TCGEN05} & self.features(plan)[0])
        stages = config.num_stages if warpgroup else max(config.num_stages - 1, 1)
        kept = 0 if target.vendor == "amd" else resident
        needed = (kept + loaded * stages) * itemsize(problem.dtype)
        limit = target.limits.shared_memory
        if needed <= limit:
            return None
        detail = (
            f"{config.id}: the tiles of head dims {problem.head_dim} and {problem.values_dim} in {problem.dtype} need "
            f"{needed} bytes of shared memory at least, {target.id} has {limit} per block: use fewer stages or smaller "
            "blocks"
        )
        return Reason(ReasonCode.SHARED_MEMORY, config.id, detail)

    def _product(self, problem: Attention, config: Any) -> tuple[Any, Config]:
        """The product of a block of rows by a block of columns, as a problem and config of the kernel of products.
        One stage of the smallest tile: memory is counted here."""
        rows = self._rows(problem, config)
        product = mm(rows, LEAST_TILE, problem.head_dim, problem.dtype, precision=problem.precision)
        return product, Config(rows, LEAST_TILE, LEAST_TILE, 1, config.num_warps)

    def _product_plan(self, plan: Plan) -> Plan:
        problem, config = self._product(plan.problem, plan.config)
        return Plan(_PRODUCT.name, problem, config, Variant(), plan.target, (1,))

    # Arithmetic and code

    def contract(self, plan: Plan, executor: str) -> Contract:
        contract = _PRODUCT.contract(self._product_plan(plan), executor)
        intermediate = "tf32" if contract.operand == "tf32" and executor != "interpreter" else plan.problem.dtype
        return dataclasses.replace(contract, intermediate=intermediate)

    def features(self, plan: Plan) -> tuple[frozenset[codegen.Feature], frozenset[codegen.Feature]]:
        return _PRODUCT.features(self._product_plan(plan))

    # Launch arguments

    def _common_arguments(self, problem: Attention, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Arguments that every launch with scores in it takes: q, k and v, mask, score, sizes, constexpr switches."""
        return {
            **_pointer(problem.operand("q"), tensors, "q", "bhmd"),
            **_pointer(_shared(problem, "k"), tensors, "k", "bhnd"),
            **_pointer(_shared(problem, "v"), tensors, "v", "bhnd"),
            "slopes_ptr": tensors.get("slopes"),
            "query_document_ptr": tensors.get("query_document"),
            "key_document_ptr": tensors.get("key_document"),
            "queries": problem.queries,
            "keys": problem.keys,
            "window": problem.mask.size,
            "scale": float(problem.softmax_scale),
            "cap": float(problem.score.cap),
            "GROUP": problem.heads // problem.key_heads,
            "HEAD_DIM": problem.head_dim,
            "BLOCK_D": _power_of_two(problem.head_dim),
            "VALUE_DIM": problem.values_dim,
            "BLOCK_V": _power_of_two(problem.values_dim),
            "LIST_BLOCK": problem.block or 0,
            "MASK": problem.mask.kind,
            "SCORE": problem.score.kind,
            "PRECISION": problem.precision if problem.dtype == "fp32" else "ieee",
            "WIDE_INDEX": _spans_wide(problem),
        }

    def _lists(self, problem: Attention, tensors: Mapping[str, Tensor], *, transposed: bool = False) -> dict[str, Any]:
        if problem.block:
            return block_lists(problem, tensors, transposed=transposed).arguments
        names = ("partial_count", "partial_index", "full_count", "full_index")
        return {**{f"{name}_ptr": None for name in names}, "stride_list": 0}


def _pointer(operand: Operand, tensors: Mapping[str, Tensor], name: str, axes: str) -> dict[str, Any]:
    """A tensor and its strides as the kernels name them: ``q_ptr``, ``stride_qb`` ..."""
    strides = {f"stride_{name}{axis}": stride for axis, stride in zip(axes, operand.strides, strict=True)}
    return {f"{name}_ptr": tensors[operand.name], **strides}


def _output(operand: Operand, tensors: Mapping[str, Tensor], name: str, axes: str) -> dict[str, Any]:
    """Like :func:`_pointer` for a tensor whose strides are named by an abbreviation."""
    found = _pointer(operand, tensors, name, axes)
    return {f"{operand.name}_ptr": found.pop(f"{name}_ptr"), **found}


def _shared(problem: Attention, name: str) -> Operand:
    """k or v, with stride 0 along the batch if the batch shares it."""
    operand = problem.operand(name)
    if problem.key_batch == problem.batch:
        return operand
    return dataclasses.replace(operand, strides=(0, *operand.strides[1:]))


def _spans_wide(problem: Attention) -> bool:
    """Whether the rows of one batch (of all its heads, for decode) are out of reach of 32-bit offsets."""
    tensors = [operand for operand in problem.tensors if len(operand.shape) == 4]
    return any(dataclasses.replace(operand, shape=(1, *operand.shape[1:])).span >= 2**31 for operand in tensors)


def _in_fp32(problem: Attention) -> bool:
    """Whether products are sums of fp32 multiplications, which read P and dS from shared memory too."""
    return problem.dtype == "fp32" and problem.precision == "ieee"


def _unscaled(problem: Attention) -> bool:
    """Whether the softmax can work on raw products: nothing modifies them, and the largest score is the largest one."""
    return problem.score.kind == "none" and problem.softmax_scale > 0


class Forward(AttentionKernel):
    """One block of queries of one batch and head per program."""

    operation = "attention"

    def _tiles(self, problem: Attention, config: FlexConfig) -> tuple[int, ...]:
        return (config.block_m, config.block_n)

    def _rows(self, problem: Attention, config: FlexConfig) -> int:
        return config.block_m

    def _resident(self, problem: Attention, config: FlexConfig) -> tuple[int, int]:
        dim = _power_of_two(problem.head_dim)
        staged = config.block_m * config.block_n if _in_fp32(problem) else 0
        return config.block_m * dim + staged, config.block_n * (dim + _power_of_two(problem.values_dim))

    def grid(self, problem: Attention, config: FlexConfig, target: Target, variant: Variant) -> tuple[int, ...]:
        return (_blocks(problem.queries, config.block_m), problem.batch, problem.heads)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        assert isinstance(problem, Attention)
        assert isinstance(config, FlexConfig)
        check_tensors(self.name, problem, tensors)
        arguments = {
            **self._common_arguments(problem, tensors),
            **self._lists(problem, tensors),
            **_output(problem.operand("out"), tensors, "o", "bhmd"),
            "lse_ptr": tensors["lse"],
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "RAW": _unscaled(problem),
        }
        return Launch(attention_forward, plan.grid, arguments, config.options)


class Backward(AttentionKernel):
    """Gradients of k and v in the main launch, one block of keys per program; row sums before, those of q after."""

    operation = "attention_backward"

    def _tiles(self, problem: Attention, config: FlexConfig) -> tuple[int, ...]:
        return (config.block_m, config.block_n)

    def _rows(self, problem: Attention, config: FlexConfig) -> int:
        return config.block_n

    def _resident(self, problem: Attention, config: FlexConfig) -> tuple[int, int]:
        dims = _power_of_two(problem.head_dim) + _power_of_two(problem.values_dim)
        # P and dS are operands of further products: in fp32 they pass through shared memory
        staged = 2 * config.block_m * config.block_n + SUMS if problem.dtype == "fp32" else 0
        return config.block_n * dims + staged, config.block_m * dims

    def grid(self, problem: Attention, config: FlexConfig, target: Target, variant: Variant) -> tuple[int, ...]:
        return (_blocks(problem.keys, config.block_n), problem.key_batch, problem.key_heads)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        assert isinstance(problem, Attention)
        assert isinstance(config, FlexConfig)
        check_tensors(self.name, problem, tensors)
        delta = workspace((problem.batch, problem.heads, problem.queries), torch.float32, tensors["q"])
        read = {
            **self._common_arguments(problem, tensors),
            **_output(problem.operand("grad_out"), tensors, "g", "bhmd"),
            "lse_ptr": tensors["lse"],
            "delta_ptr": delta,
        }
        of_keys = {
            **read,
            **self._lists(problem, tensors, transposed=True),
            **_pointer(problem.operand("k"), tensors, "k", "bhnd"),  # a program of its own per batch of k
            **_pointer(problem.operand("v"), tensors, "v", "bhnd"),
            **_output(problem.operand("grad_k"), tensors, "gk", "bhnd"),
            **_output(problem.operand("grad_v"), tensors, "gv", "bhnd"),
            "batches": problem.batch // problem.key_batch,
            "heads": problem.heads,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
        }
        of_queries = {
            **read,
            **self._lists(problem, tensors),
            **_output(problem.operand("grad_q"), tensors, "gq", "bhmd"),
            "BLOCK_M": config.block_n,
            "BLOCK_N": config.block_m,
        }
        grid = (_blocks(problem.queries, config.block_n), problem.batch, problem.heads)
        after = Launch(attention_backward_queries, grid, of_queries, config.options)
        before = self._delta(problem, tensors, delta)
        function = attention_backward_keys
        return Launch(function, plan.grid, of_keys, config.options, before=(before,), after=(after,))

    def _delta(self, problem: Attention, tensors: Mapping[str, Tensor], delta: Tensor) -> Launch:
        arguments = {
            **_output(problem.operand("out"), tensors, "o", "bhmd"),
            **_output(problem.operand("grad_out"), tensors, "g", "bhmd"),
            "delta_ptr": delta,
            "queries": problem.queries,
            "VALUE_DIM": problem.values_dim,
            "BLOCK_V": _power_of_two(problem.values_dim),
            "BLOCK_M": DELTA_ROWS,
            "WIDE_INDEX": _spans_wide(problem),
        }
        grid = (_blocks(problem.queries, DELTA_ROWS), problem.batch, problem.heads)
        return Launch(attention_delta, grid, arguments)


class Decode(AttentionKernel):
    """All queries of the heads that share a head of k in one program per part of the keys; then the parts merge."""

    operation = "attention"

    def _tiles(self, problem: Attention, config: FlexDecodeConfig) -> tuple[int, ...]:
        return (config.block_n,)

    def _rows(self, problem: Attention, config: FlexDecodeConfig) -> int:
        return _power_of_two(problem.queries * problem.heads // problem.key_heads)

    def _resident(self, problem: Attention, config: FlexDecodeConfig) -> tuple[int, int]:
        dim = _power_of_two(problem.head_dim)
        return self._rows(problem, config) * dim, config.block_n * (dim + _power_of_two(problem.values_dim))

    def _shape(self, problem: Attention) -> Reason | None:
        if problem.queries >= DECODE_QUERIES:
            detail = f"{problem.queries} queries: {self.name} takes fewer than {DECODE_QUERIES}. Use attention"
            return Reason(ReasonCode.EXTENT, "queries", detail)
        group = problem.heads // problem.key_heads
        if problem.queries * group > DECODE_ROWS:
            detail = (
                f"{problem.queries} queries of {group} heads that share one of k are {problem.queries * group} rows: "
                f"{self.name} holds {DECODE_ROWS} in one program. Use attention"
            )
            return Reason(ReasonCode.EXTENT, "rows", detail)
        if problem.block and problem.queries > problem.block:
            detail = f"{problem.queries} queries are more than one block of {problem.block}: {self.name} reads one list"
            return Reason(ReasonCode.CONFIG, "block", detail)
        return None

    def splits(self, problem: Attention, target: Target, variant: Variant) -> int:
        """Parts of the keys: about two programs for each SM that is not set aside."""
        if variant.splits is not None:
            return variant.splits
        available = max((variant.sms or target.limits.multiprocessors or 1) - carveout.current(), 1)
        return max(1, available // (problem.batch * problem.key_heads) * 2)

    def grid(self, problem: Attention, config: FlexDecodeConfig, target: Target, variant: Variant) -> tuple[int, ...]:
        return (problem.batch * problem.key_heads, self.splits(problem, target, variant), 1)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        assert isinstance(problem, Attention)
        assert isinstance(config, FlexDecodeConfig)
        check_tensors(self.name, problem, tensors)
        pairs, splits, _ = plan.grid
        rows, columns = self._rows(problem, config), _power_of_two(problem.values_dim)
        parts = {
            "acc_ptr": workspace((pairs, splits, rows, columns), torch.float32, tensors["q"]),
            "total_ptr": workspace((pairs, splits, rows), torch.float32, tensors["q"]),
            "largest_ptr": workspace((pairs, splits, rows), torch.float32, tensors["q"]),
            "key_heads": problem.key_heads,
            "SPLITS": splits,
            "BLOCK_M": rows,
            "RAW": _unscaled(problem),
        }
        common = self._common_arguments(problem, tensors)
        arguments = {**common, **self._lists(problem, tensors), **parts, "BLOCK_N": config.block_n}
        shared = ("queries", "scale", "GROUP", "VALUE_DIM", "BLOCK_V")
        merged = {
            **parts,
            **{name: common[name] for name in shared},
            **_output(problem.operand("out"), tensors, "o", "bhmd"),
            "lse_ptr": tensors["lse"],
            "BLOCK_SPLITS": MERGED_PARTS,
        }
        grid = (pairs, problem.queries * problem.heads // problem.key_heads)
        merge = Launch(attention_decode_merge, grid, merged)
        return Launch(attention_decode, plan.grid, arguments, config.options, after=(merge,))


KERNELS: tuple[AttentionKernel, ...] = (
    Forward("attention", "flex_fwd", FLEX_FWD),
    Backward("attention_backward", "flex_bwd", FLEX_BWD),
    Decode("attention_decode", "flex_decode", FLEX_DECODE),
)
