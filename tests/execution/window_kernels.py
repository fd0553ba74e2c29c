"""A product whose grid has two dimensions, which says which program makes which tile; and one that says it wrongly."""

from __future__ import annotations

import triton
import triton.language as tl

from conformance import targets
from conformance.execution.device.window import window_of
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Features
from conformance.kernels.launch import Launch
from conformance.numerics.contract import FMA, Contract
from conformance.problems import Layout


@triton.jit
def columns_first(a, b, out, N, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Grid (tiles of N, tiles of M); whole tiles and one block of K."""
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, K)
    left = tl.load(a + rows[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] + columns[None, :] * K)
    place = rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(out + place, tl.dot(left, right).to(tl.float16))


class ColumnsFirst(GemmFamily):
    name = "columns_first"
    operations = frozenset({"mm"})
    dtypes = ("fp16",)
    configs = (Config(32, 64, 32, 1, 4),)

    def refusal(self, plan):
        return None

    def grid(self, plan):
        return plan.problem.N // plan.config.block_n, plan.problem.M // plan.config.block_m

    def tile_of(self, plan, program):
        return program[1], program[0]

    def launch(self, plan, tensors):
        problem, config = plan.problem, plan.config
        sizes = {"N": problem.N, "K": problem.K, "BLOCK_M": config.block_m, "BLOCK_N": config.block_n}
        return Launch(columns_first, plan.grid, {**tensors, **{name: tl.constexpr(sizes[name]) for name in sizes}})

    def contract(self, plan, executor):
        return Contract("fp16", FMA)

    def features(self, plan):
        return Features()


class SaysItWrongly(ColumnsFirst):
    def tile_of(self, plan, program):
        return program


def judged(wrongly: bool) -> dict[str, bool]:
    """Returns whether each check of four programs passed."""
    from tests.kernels.interpreter_runs import executor

    kernel = SaysItWrongly() if wrongly else ColumnsFirst()
    problem = mm(256, 512, 32, layout_b=Layout("col"))
    verdicts = window_of(kernel, problem, kernel.configs[0], targets.find("sm_90"), executor())
    return {verdict.check: verdict.passed for verdict in verdicts}
