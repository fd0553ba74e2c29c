"""A persistent product whose operands and result go through descriptors of the host, B as its transpose (tutorial 09).

It does not say that it takes one order and one variant: it refuses all others.
"""

import os

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from conformance import codegen_checks as codegen
from conformance.heuristics.configs import Config
from conformance.kernels import carveout
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Features, check_tensors
from conformance.kernels.launch import Launch
from conformance.problems import itemsize
from conformance.records import Reason, ReasonCode
from tutorial_kernels import arithmetic

#: Set by the test that plants a fault: the last block of K is left out.
SKIPPED = int(os.environ.get("TUTORIAL_SKIPPED_BLOCKS", "0"))


@triton.jit
def persistent_matmul(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr, FLATTEN: tl.constexpr,
    SKIPPED: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n, steps = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K) - SKIPPED
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=FLATTEN):
        band = tile // (BAND * tiles_n)
        rows = tl.minimum(tiles_m - band * BAND, BAND)
        inside = tile % (BAND * tiles_n)
        at_m, at_n = (band * BAND + inside % rows) * BLOCK_M, inside // rows * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            x = a.load([at_m, step * BLOCK_K])
            y = b.load([at_n, step * BLOCK_K])
            total = tl.dot(x, y.T, total)
        c.store([at_m, at_n], total.to(c.dtype))


class PersistentMatmul(GemmFamily):
    name = "tutorial_persistent"
    operations = frozenset({"mm"})
    dtypes = arithmetic.DTYPES
    configs = (Config(128, 64, 64, 3, 4), Config(64, 64, 64, 2, 4))
    persistent = True
    descriptors = True
    banded_tiles = True

    def refusal(self, plan):
        problem, variant, target = plan.problem, plan.variant, plan.target
        if reason := arithmetic.foreign(self, problem):
            return reason
        tma = target.capability("tma")
        if not tma.available:
            return Reason(ReasonCode.CAPABILITY, "tma", tma.why)
        if variant.descriptors != "host" or not variant.tma_store or variant.static or variant.epilogue_subtile > 1:
            return Reason(ReasonCode.CONFIG, "variant", f"{self.name} loads and stores by descriptors of the host only")
        if not problem.has_product:
            return Reason(ReasonCode.EXTENT, "a", "K is 0: a descriptor needs a column at least")
        for name, inner in (("a", 1), ("b", 0), ("out", 1)):
            if reason := self._described(problem.operand(name), inner):
                return reason
        return None

    def _described(self, operand, inner):
        size = itemsize(operand.dtype)
        outer = 1 - inner
        if operand.strides[inner] != 1 and operand.shape[inner] > 1:
            detail = f"{operand.name} has strides {operand.strides}: dimension {inner} must have unit stride"
            return Reason(ReasonCode.LAYOUT, operand.name, detail)
        if operand.offset * size % 16:
            detail = f"{operand.name} starts {operand.offset * size % 16} bytes past a 16-byte boundary"
            return Reason(ReasonCode.ALIGNMENT_BASE, operand.name, detail)
        if operand.strides[outer] * size % 16:
            detail = f"{operand.name} has a pitch of {operand.strides[outer] * size} bytes, which is no multiple of 16"
            return Reason(ReasonCode.ALIGNMENT_PITCH, operand.name, detail)
        if operand.name == "out" and operand.shape[inner] * size % 16:
            detail = f"rows of out end after {operand.shape[inner] * size} bytes: multiples of 16 bytes are stored"
            return Reason(ReasonCode.ALIGNMENT_EXTENT, operand.name, detail)
        if max(operand.shape) >= 2**31:
            return Reason(ReasonCode.EXTENT, operand.name, f"{operand.name} is {operand.shape}: below 2**31, please")
        return None

    def grid(self, plan):
        problem, config = plan.problem, plan.config
        tiles = triton.cdiv(problem.M, config.block_m) * triton.cdiv(problem.N, config.block_n)
        return (min(carveout.available_sms(plan), tiles),)

    def launch(self, plan, tensors):
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        a, b, out = (problem.operand(name) for name in ("a", "b", "out"))
        blocks = {"a": (config.block_m, config.block_k), "b": (config.block_n, config.block_k)}
        descriptors = dict.fromkeys("abc")
        if 0 not in plan.grid:
            descriptors = {
                "a": TensorDescriptor(tensors["a"], list(a.shape), [a.strides[0], 1], list(blocks["a"])),
                "b": TensorDescriptor(tensors["b"].T, list(b.shape[::-1]), [b.strides[1], 1], list(blocks["b"])),
                "c": TensorDescriptor(
                    tensors["out"], list(out.shape), [out.strides[0], 1], [config.block_m, config.block_n]
                ),
            }
        arguments = {
            **descriptors, "M": problem.M, "N": problem.N, "K": problem.K, "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n, "BLOCK_K": config.block_k, "BAND": config.group_m,
            "FLATTEN": plan.variant.flatten, "SKIPPED": SKIPPED,
        }  # fmt: skip
        return Launch(persistent_matmul, plan.grid, arguments, config.options)

    def contract(self, plan, executor):
        return arithmetic.contract(plan, executor, plan.problem.output_dtype)

    def features(self, plan):
        return Features(
            frozenset({codegen.TMA_LOAD, codegen.TMA_STORE, codegen.TENSOR_DESCRIPTOR}),
            frozenset({codegen.POINTER_STORE}),
        )


class ContiguousMatmul(PersistentMatmul):
    """Needs all three matrices without gaps, and says no more than that of what lies otherwise."""

    name = "tutorial_contiguous"

    def _described(self, operand, inner):
        line = operand.shape[inner]
        apart = operand.shape[1 - inner] > 1 and operand.strides[1 - inner] != line
        if apart or operand.offset or line * itemsize(operand.dtype) % 16:
            return Reason(ReasonCode.LAYOUT, operand.name, f"{operand.name} must be contiguous, in whole lines")
        return super()._described(operand, inner)
