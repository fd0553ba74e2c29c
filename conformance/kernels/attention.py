"""The attention kernels of the catalogue: forward, backward, and forward for few queries (decode)."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.attention.problem import SCALES, Attention
from conformance.families.attention.refusals import AttentionLimits
from conformance.families.draw import Draw
from conformance.families.examples import SPLITS
from conformance.families.family import LEAST, whole
from conformance.families.gemm.problem import Gemm, mm
from conformance.heuristics.base import FLEX_BWD, FLEX_DECODE, FLEX_FWD
from conformance.heuristics.configs import AnyConfig, Config, FlexBackwardConfig
from conformance.kernels import carveout
from conformance.kernels.block_mask import block_lists
from conformance.kernels.device.attention_backward import (
    attention_backward_keys,
    attention_backward_queries,
    attention_delta,
)
from conformance.kernels.device.attention_decode import attention_decode, attention_decode_merge
from conformance.kernels.device.attention_forward import attention_forward
from conformance.kernels.families.attention import AttentionFamily
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Plan, Variant, check_tensors
from conformance.kernels.launch import GRID_LIMIT, INDEX_LIMIT, Launch, dot_precision, pointer_arguments, workspace
from conformance.numerics.contract import Contract
from conformance.problems import Operand, itemsize
from conformance.records import ExecutorName, Reason, ReasonCode

#: From this many queries on, splitting the keys is not worth merging the parts.
DECODE_QUERIES = 128

#: Rows (queries of all heads that share a head of k) that one decode program holds.
DECODE_ROWS = 128

#: Positions past the last query or key that the last tile may reach, at most.
LONGEST_TILE = 2**10

#: fp32 numbers that reductions over rows keep in shared memory, at most.
SUMS = 512

#: Rows of the launch that sums out * grad_out, and parts that the merge of decode adds up at a time.
DELTA_ROWS, MERGED_PARTS = 64, 16


class AttentionKernel(AttentionFamily):
    """Base of the three attention kernels: requirements, the contract of the products inside, arguments."""

    limits: AttentionLimits = AttentionLimits()

    #: the kernel of the products inside: it says what they ask of dtype and target, and what their arithmetic is
    product: ClassVar[PointerGemm] = PointerGemm("mm", "mm", "mm")

    def __init__(self, name: str, table: str | None, configs: tuple[AnyConfig, ...]) -> None:
        self.name = name
        self.operations = frozenset({self.operation})
        self.table = table
        self.configs = configs

    # What each of them answers

    def _tiles(self, plan: Plan) -> tuple[int, ...]:
        """Extents of the blocks of queries and keys: each must divide the block of the lists."""
        return plan.config.tile  # type: ignore[no-any-return]

    @abc.abstractmethod
    def _rows(self, plan: Plan) -> int:
        """Rows of the products of the main launch, which choose the matrix instruction."""

    @abc.abstractmethod
    def _resident(self, plan: Plan) -> tuple[int, int]:
        """Elements of the tiles that stay in shared memory, and of those that one stage of the pipeline loads."""

    def _shape(self, plan: Plan) -> Reason | None:
        """Returns the reason for which this kernel does not take the sizes, beyond what all of them ask."""
        return None

    def _splits(self, plan: Plan) -> Reason | None:
        """Returns the reason for which this kernel does not split the keys as the variant says."""
        if plan.variant.splits is None or self.limits.splits_keys:
            return None
        detail = f"{self.name} does not split the keys, {plan.variant.splits} parts were asked for"
        return Reason(ReasonCode.CONFIG, "splits", detail)

    # Requirements

    def refusal(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        limits = self.limits
        if reason := self.foreign(plan):
            return reason
        if problem.mask.packed != limits.packed:
            takes = "only" if limits.packed else "no"
            detail = f"the mask is {problem.mask.id}, and {self.name} takes {takes} packed ones"
            return Reason(ReasonCode.OPERATION, "mask", detail)
        if problem.scaled and not limits.scales:
            return Reason(ReasonCode.SCALE, "scaled", f"{self.name} takes no scales of q, k and v: multiply by them")
        if bool(problem.page) != limits.paged:
            detail = f"{self.name} takes keys {'only' if limits.paged else 'not'} in pages, the problem is {problem.id}"
            return Reason(ReasonCode.OPERATION, "page", detail)
        if problem.dtype not in (accepted := (*self.dtypes, *self.rare_dtypes)):
            detail = f"q, k and v are {problem.dtype}, {self.name} takes {', '.join(accepted)}: convert them"
            return Reason(ReasonCode.DTYPE, "q", detail)
        return (
            self._extents(problem)
            or self._shape(plan)
            or self._variant(plan)
            or self._config(plan)
            or self.product.refusal(self._product_plan(plan))
        )

    def _extents(self, problem: Attention) -> Reason | None:
        dims = (("head_dim", problem.head_dim, self.limits.depth), ("value_dim", problem.values_dim, LEAST))
        for name, extent, least in dims:
            if extent < least:
                detail = f"{name} is {extent}: the matrix units need {least} at least. Pad q, k and v with zeros"
                return Reason(ReasonCode.EXTENT, name, detail)
        for name, extent in (
            ("batch", problem.mask.size if self.limits.packed else problem.batch),
            ("heads", problem.heads),
        ):
            if extent > GRID_LIMIT:
                detail = f"{name} is {extent}: it is a dimension of the grid, at most {GRID_LIMIT}. Split the problem"
                return Reason(ReasonCode.EXTENT, name, detail)
        positions = problem.queries + problem.keys + problem.mask.size
        numbers = problem.batch * max(problem.queries, problem.keys, problem.heads)
        if max(positions, numbers) >= INDEX_LIMIT - LONGEST_TILE:
            detail = (
                f"{problem.queries} queries, {problem.keys} keys and a window of {problem.mask.size} in a batch of "
                f"{problem.batch}: positions and row numbers are 32-bit integers. Split the problem"
            )
            return Reason(ReasonCode.EXTENT, "positions", detail)
        return None

    def _variant(self, plan: Plan) -> Reason | None:
        return self.other_variant(plan) or self._splits(plan)

    def _config(self, plan: Plan) -> Reason | None:
        problem, config, tiles = plan.problem, plan.config, self._tiles(plan)
        if any(tile < LEAST or tile & (tile - 1) for tile in tiles):
            detail = f"{config.id}: blocks of queries and keys must be powers of two, {LEAST} at least"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        if problem.block and any(problem.block % tile for tile in tiles):
            detail = (
                f"{config.id}: the lists are of blocks of {problem.block} queries and keys, which tiles of "
                f"{' and '.join(map(str, tiles))} must divide. Use another config or larger blocks"
            )
            return Reason(ReasonCode.CONFIG, "block", detail)
        return None

    def _multiplies_by_warpgroup(self, plan: Plan) -> bool:
        """True if the products use instructions that read both operands from shared memory."""
        return bool({codegen.WGMMA, codegen.TCGEN05} & self.features(plan).required)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`Kernel`: a least estimate. Warpgroup instructions read all stages and resident tiles from shared
        memory; others hold one stage in registers, AMD the resident tiles, too."""
        stages: int = plan.config.num_stages
        resident, loaded = self._resident(plan)
        if not self._multiplies_by_warpgroup(plan):
            stages = max(stages - 1, 1)
        lasting = 0 if plan.target.vendor == "amd" else resident
        return (lasting + loaded * stages) * itemsize(plan.problem.dtype)

    def _product_plan(self, plan: Plan) -> Plan:
        """Returns the product of a block of rows by a block of columns, as a plan of the kernel of products.

        One stage of the smallest tile: :meth:`shared_memory` counts the memory.
        """
        problem, rows = plan.problem, self._rows(plan)
        config = Config(rows, LEAST, self.limits.depth, 1, plan.config.num_warps)
        return Plan(self.product.name, self._product_of(problem, rows), config, Variant(), plan.target, (1,))

    def _product_of(self, problem: Attention, rows: int) -> Gemm:
        return mm(
            rows, LEAST, problem.head_dim, problem.dtype, out_dtype=problem.out_dtype, precision=problem.precision
        )

    # Arithmetic and code

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of the products, and how P is rounded between them."""
        contract = self.product.contract(self._product_plan(plan), executor)
        intermediate = (
            "tf32" if contract.operand == "tf32" and executor != ExecutorName.INTERPRETER else plan.problem.dtype
        )
        return dataclasses.replace(contract, intermediate=intermediate)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the products."""
        return self.product.features(self._product_plan(plan))

    # Launch arguments

    def _common_arguments(self, problem: Attention, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Arguments that every launch with scores in it takes: q, k and v, mask, score, sizes, constexpr switches."""
        return {
            **pointer_arguments("q", tensors["q"], problem.operand("q"), "bhmd"),
            **pointer_arguments("k", tensors["k"], _shared(problem, "k"), "bhnd"),
            **pointer_arguments("v", tensors["v"], _shared(problem, "v"), "bhnd"),
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
            "BLOCK_D": whole(problem.head_dim),
            "VALUE_DIM": problem.values_dim,
            "BLOCK_V": whole(problem.values_dim),
            "LIST_BLOCK": problem.block or 0,
            "MASK": problem.mask.kind,
            "SCORE": problem.score.kind,
            "PRECISION": dot_precision(problem),
            "WIDE_INDEX": _spans_wide(problem),
        }

    def _lists(self, problem: Attention, tensors: Mapping[str, Tensor], *, transposed: bool = False) -> dict[str, Any]:
        if problem.block:
            return block_lists(problem, tensors, transposed=transposed).arguments
        names = ("partial_count", "partial_index", "full_count", "full_index")
        return {**{f"{name}_ptr": None for name in names}, "stride_list": 0}


def _output(operand: Operand, tensors: Mapping[str, Tensor], short: str, axes: str) -> dict[str, Any]:
    """Returns a tensor, and its strides, which the kernels name by ``short``: ``out_ptr``, ``stride_ob``."""
    arguments = pointer_arguments(short, tensors[operand.name], operand, axes)
    return {f"{operand.name}_ptr": arguments.pop(f"{short}_ptr"), **arguments}


def _shared(problem: Attention, name: str) -> Operand:
    """k or v, with stride 0 along the batch if the batch shares it."""
    operand = problem.operand(name)
    if problem.key_batch == problem.batch:
        return operand
    return dataclasses.replace(operand, strides=(0, *operand.strides[1:]))


def _spans_wide(problem: Attention) -> bool:
    """True if the rows of one batch (of all its heads, for decode) are out of reach of 32-bit offsets."""
    problems = (problem, problem.contiguous) if problem.page else (problem,)
    tensors = [operand for each in problems for operand in each.tensors if len(operand.shape) == 4]
    return any(dataclasses.replace(operand, shape=(1, *operand.shape[1:])).span >= INDEX_LIMIT for operand in tensors)


def _unscaled(problem: Attention) -> bool:
    """True if the softmax can work on raw products: no score is modified, and the largest product scores highest."""
    return problem.score.kind == "none" and problem.softmax_scale > 0


class Forward(AttentionKernel):
    """One block of queries of one batch and head per program."""

    operation = "attention"

    def _rows(self, plan: Plan) -> int:
        return int(plan.config.block_m)

    def _resident(self, plan: Plan) -> tuple[int, int]:
        problem, config = plan.problem, plan.config
        dim, value_dim = whole(problem.head_dim), whole(problem.values_dim)
        # The warps of a product lie along its longer side. P is exchanged between them if that is the columns of P @ V.
        exchanged = config.block_m < value_dim and not self._multiplies_by_warpgroup(plan)
        # Sums of fp32 multiplications read it from shared memory, too.
        in_fp32 = problem.dtype == "fp32" and problem.precision == "ieee"
        staged = config.block_m * config.block_n if exchanged or in_fp32 else 0
        return config.block_m * dim + staged, config.block_n * (dim + value_dim)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (blocks of queries, batch, heads)."""
        problem = plan.problem
        return (triton.cdiv(problem.queries, plan.config.block_m), problem.batch, problem.heads)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        arguments = {
            **self._common_arguments(problem, tensors),
            **self._lists(problem, tensors),
            **_output(problem.operand("out"), tensors, "o", "bhmd"),
            "lse_ptr": tensors["lse"],
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "RAW": _unscaled(problem),
            "DESCRIBED": False,
            "STORED": False,
            "SPECIALISED": False,
            "MERGED": False,
            "PACKED": False,
            "query_starts_ptr": None,
            "key_starts_ptr": None,
            "SCALED": problem.scaled,
            **{f"{name}_ptr": tensors.get(name) for name in SCALES},
            "key_lengths_ptr": None,
            "page_table_ptr": None,
            "stride_kp": 0,
            "stride_vp": 0,
            "stride_table": 0,
            "PAGE": 0,
        }
        return Launch(attention_forward, plan.grid, arguments, config.options)


class Backward(AttentionKernel):
    """Gradients of k and v in the main launch, one block of keys per program; row sums before, those of q after."""

    operation = "attention_backward"
    products = 8  # scores and gradients of values, weights and keys

    def _rows(self, plan: Plan) -> int:
        return int(plan.config.block_n)

    def _resident(self, plan: Plan) -> tuple[int, int]:
        problem, config = plan.problem, plan.config
        dims = whole(problem.head_dim) + whole(problem.values_dim)
        # P and dS are operands of further products: in fp32 they pass through shared memory
        if problem.dtype == "fp32":
            staged = 2 * config.block_m * config.block_n + SUMS
        elif codegen.TCGEN05 in self.features(plan).required and config.num_stages > 1:
            staged = config.block_m * dims  # as compiled: one block of q and grad_out more than the stages hold
        else:
            staged = 0
        return config.block_n * dims + staged, config.block_m * dims

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (blocks of keys, batch of k, heads of k)."""
        problem = plan.problem
        return (triton.cdiv(problem.keys, plan.config.block_n), problem.key_batch, problem.key_heads)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: row sums before the main launch, the gradients of q after it."""
        problem, config = plan.problem, plan.config
        own_blocks = isinstance(config, FlexBackwardConfig)
        query_block, key_block = config.tile[2:] if own_blocks else (config.block_n, config.block_m)
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
            **pointer_arguments("k", tensors["k"], problem.operand("k"), "bhnd"),  # a program of its own per batch of k
            **pointer_arguments("v", tensors["v"], problem.operand("v"), "bhnd"),
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
            "BLOCK_M": query_block,
            "BLOCK_N": key_block,
        }
        grid = (triton.cdiv(problem.queries, query_block), problem.batch, problem.heads)
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
            "BLOCK_V": whole(problem.values_dim),
            "BLOCK_M": DELTA_ROWS,
            "WIDE_INDEX": _spans_wide(problem),
        }
        grid = (triton.cdiv(problem.queries, DELTA_ROWS), problem.batch, problem.heads)
        return Launch(attention_delta, grid, arguments)


class Decode(AttentionKernel):
    """All queries of the heads that share a head of k in one program per part of the keys; then the parts merge."""

    limits = AttentionLimits(splits_keys=True, rows=DECODE_ROWS)
    operation = "attention"
    few_queries = True

    def example_variant(self) -> Variant:
        """See :class:`Kernel`: few parts of the keys, so that the interpreter is done with them soon."""
        return Variant(splits=SPLITS)

    def draw_variant(self, draw: Draw) -> Variant:
        return Variant(splits=draw.pick((1, 2, 5, *((None,) if draw.large else ()))))

    def _rows(self, plan: Plan) -> int:
        problem = plan.problem
        return whole(problem.queries * problem.heads // problem.key_heads)

    def _resident(self, plan: Plan) -> tuple[int, int]:
        dim = whole(plan.problem.head_dim)
        return self._rows(plan) * dim, plan.config.block_n * (dim + whole(plan.problem.values_dim))

    def _shape(self, plan: Plan) -> Reason | None:
        problem = plan.problem
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

    def splits(self, plan: Plan) -> int:
        """Parts of the keys: the variant's number, or about two programs for each SM that is not set aside."""
        if plan.variant.splits is not None:
            return plan.variant.splits
        pairs: int = plan.problem.batch * plan.problem.key_heads
        return max(1, carveout.available_sms(plan) // pairs * 2)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (batch * heads of k, parts of the keys, 1)."""
        return (plan.problem.batch * plan.problem.key_heads, self.splits(plan), 1)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the launch after the main one merges the parts."""
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        pairs, splits, _ = plan.grid
        rows, columns = self._rows(plan), whole(problem.values_dim)
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
