"""Random correct kernels: any unit that keeps a contract, any order, split and association, over random problems.

``python tests/numerics/random_correct.py FAMILY FIRST LAST`` judges the seeds of a range and prints how many judgements
there were, and each alarm. FAMILY is products, attention or convolution.
"""

from __future__ import annotations

import dataclasses
import random
import sys

import torch
from gemm_emulation import EmulatedProduct, Unit, fp32

from conformance.families.draw import Draw
from conformance.families.gemm.problem import Gemm
from conformance.inputs.fills import fills
from conformance.kernels import catalogue
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.verdict import judge
from conformance.problems import FP8, itemsize
from conformance.records import ExecutorName
from conformance.targets import known_targets

#: Kernels whose problems are drawn: one of each operation.
KERNELS = (
    *("mm", "addmm", "scaled_mm", "scaled_mm_blockwise", "mm_plus_mm", "bmm", "baddbmm", "fused_mm"),
    *("mixed_mm", "decompose_k_mm", "int_mm"),
)


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


class RandomKernel(EmulatedProduct):
    """A correct kernel of ``problem``, with one choice of everything that the contract leaves open."""

    def __init__(self, problem: Gemm, contract: Contract, choice: random.Random):
        super().__init__(problem, contract)
        self.choice, self.unit = choice, unit_of(contract.accumulator, choice)
        self.splits = choice.choice((1, 1, 2, 3))
        self.order = choice.choice(("ascending", "descending", "shuffled"))
        self.association = choice.randrange(4)
        self.contracted = choice.random() < 0.5

    def dot(self, a, b):
        """One sum of products: in any order of k, where nothing is promoted, and in any number of parts."""
        if self.contract.accumulator.kind == "int":
            return super().dot(a, b)
        a, b, k = a.double(), b.double(), torch.arange(a.shape[1])
        if self.order == "descending":
            k = k.flip(0)
        elif self.order == "shuffled" and not self.unit.promote:
            k = k[torch.randperm(len(k), generator=torch.Generator().manual_seed(self.choice.randrange(2**31)))]
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
        for part in k.tensor_split(self.splits):
            total = fp32(total + self.unit.sum(a[:, part], b[part]))
        return total


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
