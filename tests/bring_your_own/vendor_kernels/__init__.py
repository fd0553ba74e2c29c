"""A vendor's own kernel and target, as small as they can be: what docs/kernel.md and docs/device.md describe."""

import os
from pathlib import Path

import triton
import triton.language as tl

from conformance import codegen_checks as codegen
from conformance.heuristics.base import SPACES, TABLES
from conformance.heuristics.configs import Config
from conformance.heuristics.device_class import DeviceClass
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Features, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: Set by the test that plants a fault: the kernel then leaves out its last block of K.
SKIPPED_BLOCKS = int(os.environ.get("VENDOR_SKIPPED_BLOCKS", "0"))
#: Set by the test of known defects: the file that lists them.
EXPECTED_FAILURES = Path(os.environ["VENDOR_EXPECTED"]) if "VENDOR_EXPECTED" in os.environ else None
#: Its products spill where no wait follows them: a comparison of two runs calls fewer bytes more a warning.
THRESHOLDS = {"MORE_SPILLS": {"regression_bytes": 128}}

MASKED_STORE = codegen.register_feature(
    codegen.Feature(
        "VENDOR_MASKED_STORE",
        "stores under a mask",
        {"nvidia": (codegen.Evidence("ttir", r"CHECK: {{\btt\.store %\w+, %\w+, %\w+}}"),)},
    )
)


@triton.jit
def vendor_mm(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK: tl.constexpr, SKIPPED: tl.constexpr,
):  # fmt: skip
    rm = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rn = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK) - SKIPPED):
        rk = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(
            a + rm[:, None] * stride_am + rk[None, :] * stride_ak, (rm < M)[:, None] & (rk < K)[None, :], other=0.0
        )
        y = tl.load(
            b + rk[:, None] * stride_bk + rn[None, :] * stride_bn, (rk < K)[:, None] & (rn < N)[None, :], other=0.0
        )
        acc = tl.dot(x, y, acc, input_precision="ieee")
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    tl.store(c + rm[:, None] * stride_cm + rn[None, :] * stride_cn, acc.to(c.dtype.element_ty), inside)


class VendorMm(GemmFamily):
    name = "vendor_mm"
    operations = frozenset({"mm"})
    dtypes = ("bf16",)
    configs = (Config(32, 32, 32, 2, 4),)
    expected_failures = EXPECTED_FAILURES
    thresholds = THRESHOLDS

    def refusal(self, plan):
        problem, variant = plan.problem, plan.variant
        if problem.op != "mm":
            return Reason(ReasonCode.OPERATION, problem.op, "vendor_mm computes mm only")
        if problem.dtype != "bf16":
            return Reason(ReasonCode.DTYPE, "a", f"a is {problem.dtype}, vendor_mm takes bf16: convert it")
        if variant.tma_store or variant.descriptors == "host":
            return Reason(ReasonCode.CONFIG, "variant", "vendor_mm has no descriptors")
        if max(operand.span for operand in (*problem.operands, problem.output)) >= 2**31:
            return Reason(ReasonCode.EXTENT, "operand", "an operand spans 2**31 elements: vendor_mm counts in 32 bits")
        return None

    def grid(self, plan):
        return (triton.cdiv(plan.problem.M, plan.config.block_m), triton.cdiv(plan.problem.N, plan.config.block_n))

    def launch(self, plan, tensors):
        check_tensors(self.name, plan.problem, tensors)
        problem = plan.problem
        strides = {
            f"stride_{letter}{dim}": stride
            for letter, name, dims in (("a", "a", "mk"), ("b", "b", "kn"), ("c", "out", "mn"))
            for dim, stride in zip(dims, problem.operand(name).strides, strict=True)
        }
        sizes = {"M": problem.M, "N": problem.N, "K": problem.K}
        if plan.variant.static:
            sizes = {name: tl.constexpr(size) for name, size in sizes.items()}
        arguments = {"a": tensors["a"], "b": tensors["b"], "c": tensors["out"], **sizes, **strides}
        return Launch(vendor_mm, plan.grid, {**arguments, "BLOCK": 32, "SKIPPED": SKIPPED_BLOCKS}, plan.config.options)

    def contract(self, plan, executor):
        return Contract("bf16", FMA if executor == "interpreter" else Accumulator(alignment_bits=24, assumed=True))

    def features(self, plan):
        return Features(
            required=frozenset({codegen.POINTER_STORE, MASKED_STORE}),
            forbidden=frozenset({codegen.TMA_LOAD, codegen.TMA_STORE}),
        )


VENDOR_MM = VendorMm()


class Board(Target):
    """A board with an Ampere GPU of a size of its own, and configs of its own for plain products."""

    @property
    def device_class(self):
        return VENDOR


VENDOR = DeviceClass("vendor", {**TABLES, "mm": (Config(32, 32, 32, 2, 4),)}, SPACES)


def board():
    return Board("cuda", 86, 32, name="Vendor board", shared_memory=99 * 1024, multiprocessors=16)
