"""Results too large to be judged like others: whole on a device, panel by panel, or a window of them without one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm.problem import Gemm
from conformance.heuristics.configs import Config
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.launch import Executor, watching
from conformance.numerics.rounding import bits, round_to
from conformance.problems import DTYPES
from conformance.records import Check, CheckKind, Verdict
from conformance.targets import Target

#: Rows of the result that are recomputed in fp64 at a time.
PANEL = 1024


def _small_integers(shape: tuple[int, int], seed: int) -> Tensor:
    """Integers from -3 to 3: products and sums over a few hundred k are exact in fp32 and in an fp16 result."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-3, 4, shape, dtype=np.int8))


def _operands(problem: Gemm, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    if problem.K * 9 > 2**11:
        raise ValueError(f"K is {problem.K}: at most {2**11 // 9} keep sums of small integers exact in fp16")
    a = _small_integers((problem.M, problem.K), seed).to(device).to(DTYPES[problem.a_dtype])
    b = _small_integers((problem.N, problem.K), seed + 1).to(device).to(DTYPES[problem.second_dtype]).t()
    return a, b


def _expected(problem: Gemm, a: Tensor, b: Tensor) -> Tensor:
    return round_to(a.double() @ b.double(), problem.output_dtype)


def whole_in_panels(
    kernel: GemmFamily, problem: Gemm, config: Config, target: Target, executor: Executor, seed: int = 0
) -> list[Verdict]:
    """Every element of an exact product on a device, compared bitwise. B must be column-major, A and C row-major."""
    a, b = _operands(problem, executor.device, seed)
    out = torch.full((problem.M, problem.N), float("nan"), dtype=DTYPES[problem.output_dtype], device=executor.device)
    plan = kernel.plan(problem, config, target)
    executor.run(kernel.launch(plan, {"a": a, "b": b, "out": out}))
    wrong = 0
    first: list[int] | None = None
    for start in range(0, problem.M, PANEL):
        rows = slice(start, start + PANEL)
        differ = bits(out[rows] + 0) != bits(_expected(problem, a[rows], b) + 0)  # -0 + 0 is +0
        count = int(differ.sum())
        if count and first is None:
            first = (differ.nonzero()[0] + torch.tensor([start, 0], device=executor.device)).tolist()
        wrong += count
    text = f"{wrong} of {out.numel()} elements wrong" + (f", first {first}" if first else "")
    return [Verdict(str(Check(CheckKind.NUMERICS, "whole")), wrong == 0, text)]


def window_of(
    kernel: GemmFamily, problem: Gemm, config: Config, target: Target, executor: Executor, seed: int = 0
) -> list[Verdict]:
    """The tiles of the first, two middle and the last programs of a grid with one tile each, run one by one. The kernel
    says which tiles these are.

    The result's memory is reserved, not touched: only the tiles that these programs write become real.
    """
    a, b = _operands(problem, executor.device, seed)
    out = torch.empty((problem.M, problem.N), dtype=DTYPES[problem.output_dtype])
    tiles = -(-problem.M // config.block_m) * -(-problem.N // config.block_n)
    one_each = dataclasses.replace(kernel.usual_variant, sms=tiles if kernel.persistent else None)
    plan = kernel.plan(problem, config, target, one_each)
    programs = math.prod(plan.grid)
    numbers = [0, programs // 2 - 1, programs // 2, programs - 1]
    chosen = [_index(number, plan.grid) for number in numbers]
    places = [kernel.tile_of(plan, program) for program in chosen]
    windows = [_window(place, config) for place in places]
    for rows, columns in windows:
        out[rows, columns] = float("nan")
    tensors = {"a": a, "b": b, "out": out}
    with watching(executor, tensors) as accesses:
        ran = executor.run(kernel.launch(plan, tensors), programs=chosen)
    text = f"grid {ran.grid}, {ran.programs} programs of it"
    verdicts = [Verdict(str(Check(CheckKind.GRID)), ran.grid == plan.grid and programs == tiles, text)]
    if accesses is not None:
        strays = "; ".join(accesses.strays.values())
        verdicts.append(Verdict(str(Check(CheckKind.MEMORY)), not strays, strays or "no access outside the operands"))
    for tile, (rows, columns) in zip(numbers, windows, strict=True):
        same = torch.equal(bits(out[rows, columns] + 0), bits(_expected(problem, a[rows], b[:, columns]) + 0))
        text = f"rows {rows.start}.., columns {columns.start}.."
        verdicts.append(Verdict(str(Check(CheckKind.NUMERICS, f"tile-{tile}")), same, text))
    return verdicts


def _index(number: int, grid: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the index of program ``number`` of ``grid``, whose first dimension runs fastest."""
    index = []
    for extent in grid:
        number, place = divmod(number, extent)
        index.append(place)
    return tuple(index)


def _window(tile: tuple[int, int], config: Config) -> tuple[slice, slice]:
    """Returns the rows and columns of a tile."""
    m, n = tile
    return (
        slice(m * config.block_m, (m + 1) * config.block_m),
        slice(n * config.block_n, (n + 1) * config.block_n),
    )
