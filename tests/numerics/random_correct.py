"""Random correct kernels: any unit that keeps a contract, any order, split and association, over random problems.

``python tests/numerics/random_correct.py FAMILY FIRST LAST`` judges the seeds of a range and prints how many judgements
there were, and each alarm. FAMILY is products, attention or convolution.
"""

from __future__ import annotations

import dataclasses
import random
import sys

import torch

from conformance.families.gemm.problem import BLOCK_SCALINGS, Gemm
from conformance.inputs.fills import fills
from conformance.kernels import catalogue
from conformance.kernels.families.draw import Draw
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge
from conformance.problems import FP8, itemsize
from conformance.records import ExecutorName
from conformance.targets import known_targets

#: Kernels whose problems are drawn: one of each operation.
KERNELS = (
    *("mm", "addmm", "scaled_mm", "scaled_mm_blockwise", "mm_plus_mm", "bmm", "baddbmm", "fused_mm"),
    *("mixed_mm", "decompose_k_mm", "int_mm"),
)


def fp32(values):
    return round_to(values.double(), "fp32").double()


@dataclasses.dataclass
class Unit:
    """An accumulator of a contract, or a better one. A step has ``chunk`` products, aligned with ``alignment`` bits or
    exactly (None). Results have ``result`` bits, truncated or rounded."""

    chunk: int
    alignment: int | None
    result: int
    truncates: bool
    promote: int | None

    def sum(self, a, b):
        """The sum of a (M, k) times b (k, N) over k in its order."""
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
        length = self.promote or max(1, a.shape[1])
        for start in range(0, a.shape[1], length):
            part = torch.zeros_like(total)
            for first in range(start, min(start + length, a.shape[1]), self.chunk):
                last = min(first + self.chunk, start + length, a.shape[1])
                part = self._step(part, a[:, first:last, None] * b[None, first:last])
            total = fp32(total + part) if self.promote else part
        return fp32(total)

    def _step(self, total, terms):
        everything = torch.cat([terms, total[:, None]], 1)
        cut = everything
        if self.alignment is not None:
            unit = self._unit(everything.abs().amax(1), self.alignment)[:, None]
            cut = torch.trunc(everything / unit) * unit
        result = cut.sum(1)
        unit = self._unit(result.abs(), self.result)
        kept = (torch.trunc(result / unit) if self.truncates else torch.round(result / unit)) * unit
        exact = everything.sum(1)
        return torch.where(exact.isfinite(), kept, exact)

    @staticmethod
    def _unit(size, bits):
        # fp32's subnormals have a unit of their own
        exponent = torch.frexp(size)[1].clamp(min=-125) - 1
        return torch.where(size > 0, torch.ldexp(torch.ones_like(size), exponent - bits), 1.0)


def unit_of(accumulator: Accumulator, choice: random.Random) -> Unit:
    """A unit that keeps what ``accumulator`` promises."""
    if accumulator.kind == "fma":
        return Unit(1, None, 23, False, None)
    chunk = choice.choice([size for size in (4, 8, 16, 32) if size <= max(4, accumulator.chunk)])
    better = choice.choice((0, 0, 1))
    if accumulator.result_bits < 23 and choice.random() < 0.2:
        return Unit(chunk, 25, 23, True, accumulator.promote)
    alignment = accumulator.alignment_bits + better
    return Unit(
        chunk,
        choice.choice((alignment, alignment, None)),
        accumulator.result_bits,
        choice.random() < 0.7,
        choice.choice((accumulator.promote, accumulator.promote, accumulator.promote and 32)),
    )


class RandomKernel:
    """A correct kernel of ``problem``, with one choice of everything that the contract leaves open."""

    def __init__(self, problem: Gemm, contract: Contract, choice: random.Random):
        self.problem, self.contract, self.choice = problem, contract, choice
        self.unit = unit_of(contract.accumulator, choice)
        self.splits = choice.choice((1, 1, 2, 3))
        self.order = choice.choice(("ascending", "descending", "shuffled"))
        self.association = choice.randrange(4)
        self.contracted = choice.random() < 0.5

    def dot(self, a, b):
        """One sum of products: in any order of k, where nothing is promoted, and in any number of parts."""
        a, b = a.double(), b.double()
        if self.contract.accumulator.kind == "int":
            return a @ b
        k = torch.arange(a.shape[1])
        if self.order == "descending":
            k = k.flip(0)
        elif self.order == "shuffled" and not self.unit.promote:
            k = k[torch.randperm(len(k), generator=torch.Generator().manual_seed(self.choice.randrange(2**31)))]
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
        for part in k.tensor_split(self.splits):
            total = fp32(total + self.unit.sum(a[:, part], b[part]))
        return total

    def __call__(self, inputs):
        problem = self.problem
        if not problem.has_product:
            raw = torch.zeros(problem.output.shape, dtype=torch.float64)
        elif problem.op == "mm_plus_mm":
            a, b = torch.cat([inputs["a"], inputs["c"]], 1), torch.cat([inputs["b"], inputs["d"]], 0)
            raw = self.dot(a, b)
        elif problem.batch is not None:
            raw = torch.zeros(problem.output.shape, dtype=torch.float64)
            for matrix, (a, b) in enumerate(zip(inputs["a"], inputs["b"], strict=True)):
                raw[matrix] = self.dot(a, b)
        elif problem.scaling in BLOCK_SCALINGS:
            raw = self.blocks(inputs)
        else:
            raw = self.dot(self.prologue(inputs), inputs["b"])
        return round_to(self.epilogue(inputs, raw), self.contract.out_dtype, overflow=self.contract.overflow)

    def blocks(self, inputs):
        total = torch.zeros(self.problem.output.shape, dtype=torch.float64)
        kind_a, kind_b = self.problem.scaling.split("/")
        rows = torch.arange(self.problem.M) // (128 if kind_a == "128x128" else 1)
        columns = torch.arange(self.problem.N) // (128 if kind_b == "128x128" else 1)
        for index, start in enumerate(range(0, self.problem.K, 128)):
            part = self.dot(inputs["a"][:, start : start + 128], inputs["b"][start : start + 128])
            total = fp32(
                total + self.scaled(part, inputs["scale_a"][rows, index, None], inputs["scale_b"][index, columns])
            )
        return total

    def scaled(self, values, scale_a, scale_b):
        one, other = scale_a.double(), scale_b.double()
        if self.association == 0:
            return fp32(fp32(values * one) * other)
        return fp32(fp32(values * other) * one) if self.association == 1 else fp32(values * fp32(one * other))

    def prologue(self, inputs):
        problem, a = self.problem, inputs["a"]
        kind = problem.fusion.prologue if problem.fusion is not None else None
        if kind == "gather":
            return a[inputs["rows"].long()]
        if kind == "scale":
            return round_to(fp32(a.double() * inputs["row_scale"].double()[:, None]), problem.dtype)
        return round_to(a.double(), problem.dtype) if kind == "cast" else a

    def epilogue(self, inputs, raw):
        problem = self.problem
        if problem.op == "int_mm":
            return raw
        if problem.fusion is not None:
            return self.fused(inputs, raw)
        if problem.scaling in ("tensor", "row"):
            raw = self.scaled(raw, inputs["scale_a"], inputs["scale_b"])
        alpha, beta = (float(torch.tensor(factor, dtype=torch.float32)) for factor in (problem.alpha, problem.beta))
        scaled = raw * alpha if problem.has_product else raw
        if not problem.reads_bias:
            return fp32(scaled)
        bias = inputs["bias"].double() * beta
        if self.contracted:  # one of both products is not rounded before it is added
            return fp32(scaled + fp32(bias)) if self.association % 2 else fp32(fp32(scaled) + bias)
        return fp32(fp32(scaled) + fp32(bias))

    def fused(self, inputs, value):
        for step in self.problem.fusion.epilogue:
            if step in ("bias", "residual"):
                value = fp32(value + inputs[step].double())
            elif step == "relu":
                value = torch.where(value < 0, 0.0, value)
            elif step == "gelu":
                x = value.float()
                value = (0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))).double()
            else:
                value = torch.where(inputs["mask"] != 0, value * 2, 0.0)
        return value


def judged(seed: int) -> tuple[int, list[str]]:
    """Returns the number of judgements that the problem and the kernel of ``seed`` gave, and the alarms among them."""
    choice = random.Random(f"correct {seed}")
    kernel = catalogue.get(choice.choice(KERNELS))
    problem = kernel.draw_problem(Draw(kernel.name, seed, large=False))
    if choice.random() < 0.3 and problem.K > 8 and problem.op != "decompose_k_mm":
        problem = dataclasses.replace(problem, K=choice.choice((200, 264, 390, 520)))
    rows, columns = min(problem.M, 33), min(problem.N, 40)
    problem = dataclasses.replace(problem, M=rows, N=columns)
    target = choice.choice(list(known_targets()))
    unit = target.matrix_unit
    contract = Contract(problem.output_dtype, FMA)
    if problem.op == "int_mm":
        contract = kernel.contract(kernel.draft(problem, kernel.configs[0], target), ExecutorName.INTERPRETER)
    elif choice.random() < 0.75:
        contract = device_contract(problem, unit, choice)
    if problem.dtype == "fp32" and problem.precision == "tf32":
        contract = dataclasses.replace(contract, operand="tf32")
    if contract.accumulator.kind == "fma":
        contract = dataclasses.replace(contract, zero_sign="ieee")
    emulated = RandomKernel(problem, contract, choice)
    alarms = []
    every_fill = fills(problem, contract, choice.randrange(4))
    for fill in every_fill:
        verdict = judge(problem, contract, fill, emulated(fill.inputs))
        if not verdict.passed:
            alarms.append(f"seed {seed}: {problem.id}, {contract}, {emulated.unit}, {emulated.order}: {verdict.text}")
    return len(every_fill), alarms


def device_contract(problem: Gemm, unit, choice: random.Random) -> Contract:
    """Returns the contract of a kernel on a target with this matrix unit; see ``kernels/gemm.py``."""
    overflow = "saturate" if problem.output_dtype in FP8 else "ieee"
    if problem.dtype == "fp32" and problem.precision == "ieee":
        return Contract(problem.output_dtype, FMA, overflow=overflow)
    if problem.dtype in FP8 and unit.fp8_bits is not None:
        bits, promote = unit.fp8_bits, choice.choice((None, 32, 64, 128))
        narrow = Accumulator(alignment_bits=bits, result_bits=bits, chunk=32, promote=promote, assumed=unit.assumed)
        return Contract(problem.output_dtype, narrow, overflow=overflow)
    size = itemsize(problem.dtype)
    wide = Accumulator(alignment_bits=unit.alignment_bits, chunk=unit.products[size], assumed=unit.assumed)
    return Contract(problem.output_dtype, wide, overflow=overflow)


def _attention(seed: int) -> tuple[int, list[str]]:
    from test_attention_bounds import verdicts
    from test_attention_samples import drawn

    problem, style = drawn(seed)
    every = verdicts(problem, style, seed=seed)
    return len(every), [f"seed {seed}: {problem.id}, {style}: {each.text}" for each in every if not each.passed]


def main(family: str, first: int, last: int) -> None:
    """Judges the seeds from ``first`` up to ``last``, and prints what became of them."""
    from convolution_emulation import judged as convolution

    judge_seed = {"products": judged, "attention": _attention, "convolution": convolution}[family]
    torch.set_num_threads(1)
    count = 0
    for number in range(first, last):
        judgements, alarms = judge_seed(number)
        count += judgements
        print(*alarms, sep="\n", end="\n" if alarms else "", flush=True)
        if number % 20 == 19 or number == last - 1:
            print(f"{family}, seeds {first} to {number}: {count} judgements", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
