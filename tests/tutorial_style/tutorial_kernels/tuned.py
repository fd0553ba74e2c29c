"""A product whose programs walk the result in bands, with an activation, under the autotuner (as in tutorial 03)."""

import os

import triton
import triton.language as tl

from conformance import codegen_checks as codegen
from conformance.heuristics.configs import Config
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Features, check_tensors
from conformance.kernels.launch import Launch
from conformance.records import Reason, ReasonCode
from tutorial_kernels import arithmetic

CONFIGS = (Config(64, 64, 32, 3, 4), Config(32, 64, 32, 2, 4), Config(64, 32, 64, 2, 4, group_m=4))

#: Set by the test that plants a fault: an activation that mm does not have.
ACTIVATION = os.environ.get("TUTORIAL_ACTIVATION", "")


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.autotune(
    [
        triton.Config(
            {"BLOCK_M": c.block_m, "BLOCK_N": c.block_n, "BLOCK_K": c.block_k, "BAND": c.group_m},
            num_stages=c.num_stages,
            num_warps=c.num_warps,
        )
        for c in CONFIGS
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul(
    a, b, c, M, N, K, step_am, step_ak, step_bk, step_bn, step_cm, step_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    band = program // (BAND * tiles_n)
    rows = tl.minimum(tiles_m - band * BAND, BAND)
    inside = program % (BAND * tiles_n)
    tile_m, tile_n = band * BAND + inside % rows, inside // rows
    # rows and columns past the end wrap around: they are read within the operand, and not stored
    rm = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    rn = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    rk = tl.arange(0, BLOCK_K)
    a_at = a + rm[:, None] * step_am + rk[None, :] * step_ak
    b_at = b + rk[:, None] * step_bk + rn[None, :] * step_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        x = tl.load(a_at, mask=rk[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=rk[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
        a_at += BLOCK_K * step_ak
        b_at += BLOCK_K * step_bk
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    cm, cn = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside_c = (cm[:, None] < M) & (cn[None, :] < N)
    tl.store(c + cm[:, None] * step_cm + cn[None, :] * step_cn, total.to(c.dtype.element_ty), mask=inside_c)


class TunedMatmul(GemmFamily):
    name = "tutorial_matmul"
    operations = frozenset({"mm"})
    dtypes = arithmetic.DTYPES
    configs = CONFIGS
    banded_tiles = True
    function = matmul.fn  # what triton.jit made: the harness chooses the config

    def refusal(self, plan):
        problem, variant = plan.problem, plan.variant
        if reason := arithmetic.foreign(self, problem):
            return reason
        if variant.tma_store or variant.descriptors == "host" or variant.static or variant.epilogue_subtile > 1:
            return Reason(ReasonCode.CONFIG, "variant", f"{self.name} has pointers and sizes as arguments only")
        if max(operand.span for operand in problem.tensors) >= 2**31:
            return Reason(
                ReasonCode.EXTENT, "operand", f"an operand spans 2**31 elements: {self.name} counts in 32 bits"
            )
        return None

    def grid(self, plan):
        problem, config = plan.problem, plan.config
        return (triton.cdiv(problem.M, config.block_m) * triton.cdiv(problem.N, config.block_n),)

    def launch(self, plan, tensors):
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        steps = {
            f"step_{letter}{axis}": step
            for letter, name, axes in (("a", "a", "mk"), ("b", "b", "kn"), ("c", "out", "mn"))
            for axis, step in zip(axes, problem.operand(name).strides, strict=True)
        }
        blocks = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
        sizes = {"M": problem.M, "N": problem.N, "K": problem.K}
        tensors = {"a": tensors["a"], "b": tensors["b"], "c": tensors["out"]}
        more = {"BAND": config.group_m, "ACTIVATION": ACTIVATION}
        return Launch(self.function, plan.grid, {**tensors, **sizes, **steps, **blocks, **more}, config.options)

    def contract(self, plan, executor):
        return arithmetic.contract(plan, executor, plan.problem.output_dtype)

    def features(self, plan):
        return Features(frozenset({codegen.POINTER_STORE}), frozenset({codegen.TMA_LOAD, codegen.TMA_STORE}))


class WrappedMatmul(TunedMatmul):
    """The mistake that a reader of the tutorial makes: the launch has the function that the autotuner wraps."""

    name = "tutorial_wrapped"
    function = matmul


class OversizedMatmul(TunedMatmul):
    """Its list is that of a tuner: one config fits few targets, and it makes no estimate by which to refuse it."""

    name = "tutorial_oversized"
    configs = (CONFIGS[1], Config(64, 64, 64, 6, 4))


class GreedyMatmul(TunedMatmul):
    """A kernel that copies what it does not like, and so takes every product in every variant."""

    name = "tutorial_greedy"

    def refusal(self, plan):
        return arithmetic.foreign(self, plan.problem)


class RaisingMatmul(TunedMatmul):
    """A kernel with a mistake in what it answers."""

    name = "tutorial_raising"

    def refusal(self, plan):
        return plan.problem.no_such_field
