"""Attention with descriptors over all heads at once and no rests (as in tutorial 06)."""

import os

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from conformance.heuristics.configs import FlexConfig
from conformance.kernels.families.attention import AttentionFamily
from conformance.kernels.kernel import Features, Variant, check_tensors
from conformance.kernels.launch import Launch
from conformance.records import Reason, ReasonCode
from tutorial_kernels import arithmetic

#: Set by the test that plants a fault: the first so many blocks of keys are left out.
SKIPPED = int(os.environ.get("TUTORIAL_SKIPPED_KEYS", "0"))


@triton.jit
def over_keys(
    total, weight, largest, q, keys, values, row, first, last, scale, rows,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Adds the keys from ``first`` to ``last`` to the running sums; the diagonal blocks are masked."""
    for start in range(first, last, BLOCK_N):
        k = keys.load([row + start, 0])
        scores = tl.dot(q, k.T) * scale
        if DIAGONAL:
            scores = tl.where(rows[:, None] >= start + tl.arange(0, BLOCK_N)[None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        p = tl.math.exp2(scores - new[:, None])
        fade = tl.math.exp2(largest - new)
        weight = weight * fade + tl.sum(p, 1)
        v = values.load([row + start, 0])
        total = tl.dot(p.to(v.dtype), v, total * fade[:, None])
        largest = new
    return total, weight, largest


@triton.jit
def fused_attention(
    queries, keys, values, out, lse, length, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, SKIPPED: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of queries, batch * heads). All heads lie below one another: row r of head h is h * length + r."""
    block, head = tl.program_id(0), tl.program_id(1)
    row = head * length
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, HEAD), tl.float32)
    q = queries.load([row + block * BLOCK_M, 0])
    scale = scale * 1.44269504089
    before = block * BLOCK_M if CAUSAL else length
    total, weight, largest = over_keys(
        total, weight, largest, q, keys, values, row, SKIPPED * BLOCK_N, before, scale, rows, HEAD, BLOCK_N, False
    )
    if CAUSAL:
        total, weight, largest = over_keys(
            total, weight, largest, q, keys, values, row, before, before + BLOCK_M, scale, rows, HEAD, BLOCK_N, True
        )
    out.store([row + block * BLOCK_M, 0], (total / weight[:, None]).to(out.dtype))
    tl.store(lse + row + rows, largest * 0.69314718056 + tl.log(weight))


class FusedAttention(AttentionFamily):
    name = "tutorial_attention"
    operation = "attention"
    operations = frozenset({"attention"})
    dtypes = arithmetic.DTYPES
    configs = (FlexConfig(64, 32, 2, 4), FlexConfig(64, 64, 2, 4))

    def refusal(self, plan):
        problem, config, variant = plan.problem, plan.config, plan.variant
        if reason := arithmetic.foreign(self, problem):
            return reason
        if variant != Variant(descriptors="host"):
            return Reason(ReasonCode.CONFIG, "variant", f"{self.name} has descriptors of the host only")
        if problem.mask.kind not in ("full", "causal") or problem.score.kind != "none" or problem.block:
            return Reason(ReasonCode.OPERATION, "mask", f"{self.name} has a full or a causal mask, and plain scores")
        if (problem.key_heads, problem.key_batch) != (problem.heads, problem.batch):
            return Reason(ReasonCode.OPERATION, "heads", f"{self.name} has as many heads of keys as of queries")
        if problem.order != "bhsd" or problem.pad or problem.values_dim != problem.head_dim:
            return Reason(ReasonCode.LAYOUT, "q", f"{self.name} needs q, k and v alike and contiguous")
        if problem.head_dim not in (16, 32, 64, 128, 256):
            return Reason(ReasonCode.EXTENT, "head_dim", f"head_dim is {problem.head_dim}: 16, 32, 64, 128 or 256")
        if problem.queries != problem.keys or problem.keys % max(config.block_m, config.block_n):
            detail = f"{problem.queries} queries, {problem.keys} keys: as many of each, and whole blocks, are needed"
            return Reason(ReasonCode.EXTENT, "queries", detail)
        return None

    def grid(self, plan):
        problem = plan.problem
        return (problem.queries // plan.config.block_m, problem.batch * problem.heads)

    def launch(self, plan, tensors):
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        shape = [problem.batch * problem.heads * problem.queries, problem.head_dim]
        blocks = {"q": config.block_m, "k": config.block_n, "v": config.block_n, "out": config.block_m}
        q, k, v, out = (
            TensorDescriptor(tensors[name], shape, [problem.head_dim, 1], [block, problem.head_dim])
            for name, block in blocks.items()
        )
        arguments = {
            "queries": q, "keys": k, "values": v, "out": out, "lse": tensors["lse"],
            "length": problem.queries, "scale": problem.softmax_scale, "HEAD": problem.head_dim,
            "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "CAUSAL": problem.mask.kind == "causal",
            "SKIPPED": SKIPPED,
        }  # fmt: skip
        return Launch(fused_attention, plan.grid, arguments, config.options)

    def contract(self, plan, executor):
        return arithmetic.contract(plan, executor, plan.problem.dtype, intermediate=plan.problem.dtype)

    def features(self, plan):
        return Features()
