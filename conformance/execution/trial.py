"""Runs one planned launch and judges it: every fill that its contract allows, twice, in guarded memory."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from conformance.execution.observation import Executor, Ran
from conformance.execution.output_tiles import output_tiles
from conformance.heuristics.configs import Config
from conformance.inputs.fills import Fill, applicable_fills, fills
from conformance.inputs.guarded_memory import GuardedTensor
from conformance.kernels.kernel import Plan
from conformance.numerics.contract import Contract
from conformance.numerics.diagnosis.diagnose import diagnose
from conformance.numerics.rounding import bits
from conformance.numerics.tiles import wrong_tiles
from conformance.numerics.verdict import FillVerdict, judge
from conformance.problems import Gemm, Problem
from conformance.records import Check, CheckKind, ExecutorName, Verdict

#: Each fill runs once per pattern, which chooses the operands' poison and the outputs' sentinel.
PATTERNS = (0, 1)


class Launchable(Protocol):
    """What is judged: a kernel of the catalogue, or a compiled function. The executor takes what ``launch`` returns."""

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract: ...

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Any: ...


@dataclass
class Trial:
    """Verdicts of one plan on one executor.

    ``complete``: every fill that the problem has under the contract was judged. ``tiles``: how many tiles the output
    has in each direction (see :func:`output_tiles`). ``grid`` is the one that ran, ``outputs`` the dense first output
    of each fill, on the CPU.
    """

    plan: Plan
    contract: Contract
    complete: bool
    tiles: tuple[int, int]
    verdicts: list[Verdict] = field(default_factory=list)
    grid: tuple[int, ...] | None = None
    programs: int | None = None
    outputs: dict[str, Tensor] = field(default_factory=dict)
    diagnosis: str = ""
    compiled: object = None

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the bits of each fill's first output: equal ones are the same numbers on another stack."""
        return {name: hashlib.sha256(bits(out).numpy().tobytes()).hexdigest() for name, out in self.outputs.items()}

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)


@functools.lru_cache(maxsize=192)
def _cached_fill(problem: Problem, contract: Contract, seed: int, name: str) -> Fill:
    (fill,) = fills(problem, contract, seed, (name,))
    return fill


def fills_for(problem: Problem, contract: Contract, seed: int, names: Sequence[str] | None = None) -> tuple[Fill, ...]:
    """The fills of ``problem``, or those in ``names``, shared by all its layouts; raises as :func:`fills` does."""
    return tuple(
        _cached_fill(problem.dense, contract, seed, name) for name in applicable_fills(problem, contract, names)
    )


def place(
    problem: Problem, inputs: Mapping[str, Tensor], pattern: int, device: torch.device
) -> dict[str, GuardedTensor]:
    """Every operand and output in guarded memory on ``device``, strided and aligned as the problem asks."""
    placed = {
        operand.name: GuardedTensor.place(inputs[operand.name], operand, device=device, pattern=pattern)
        for operand in problem.operands
    }
    for output in problem.outputs:
        placed[output.name] = GuardedTensor.place(None, output, device=device, pattern=pattern)
    return placed


def run_guarded(
    launcher: Callable[[Mapping[str, Tensor]], Any],
    problem: Problem,
    inputs: Mapping[str, Tensor],
    executor: Executor,
    pattern: int,
    *,
    observe: bool = False,
) -> tuple[dict[str, Tensor], list[str], Ran]:
    """Runs once over guarded memory: the dense outputs on the CPU, what was disturbed around them, and what ran.

    ``pattern`` picks the poison (an element of PATTERNS), ``observe`` is the executor's."""
    placed = place(problem, inputs, pattern, executor.device)
    ran = executor.run(launcher({name: tensor.view for name, tensor in placed.items()}), observe=observe)
    disturbed = [str(violation) for tensor in placed.values() for violation in tensor.violations()]
    outputs = {output.name: placed[output.name].view.contiguous().cpu() for output in problem.outputs}
    return outputs, disturbed, ran


def trial(
    kernel: Launchable, plan: Plan, executor: Executor, *, seed: int = 0, names: Sequence[str] | None = None
) -> Trial:
    """The verdicts about ``plan`` on ``executor``.

    Each fill runs twice, with different poison around the operands. The trial judges the numbers of every output, the
    memory around every operand, and whether both runs agree bit by bit. The first run is observed; its grid must be
    the plan's. ``names`` restricts the fills, ``seed`` picks their values. Raises ValueError for a name that the
    problem's family does not know.
    """
    problem, contract = plan.problem, kernel.contract(plan, executor.name)
    chosen = fills_for(problem, contract, seed, names)
    complete = len(chosen) == len(applicable_fills(problem, contract))
    result = Trial(plan, contract, complete, output_tiles(problem, plan.config))
    for fill in chosen:
        outputs = []
        for pattern in PATTERNS:
            launcher = functools.partial(kernel.launch, plan)
            observe = result.grid is None
            dense, disturbed, ran = run_guarded(launcher, problem, fill.inputs, executor, pattern, observe=observe)
            result.compiled = ran.compiled or result.compiled
            if result.grid is None:
                result.grid, result.programs = ran.grid, ran.programs
            if disturbed:
                text = f"{len(disturbed)} disturbed: " + "; ".join(disturbed[:4])
                check = str(Check(CheckKind.MEMORY, fill.name))
                result.verdicts.append(Verdict(check, False, text, {"pattern": pattern}))
            outputs.append(dense)
        _judge_fill(result, fill, outputs)
    if not any(Check.parse(verdict.check).kind is CheckKind.MEMORY for verdict in result.verdicts):
        text = f"operands and surroundings untouched in {len(chosen) * len(PATTERNS)} runs"
        result.verdicts.append(Verdict(str(Check(CheckKind.MEMORY)), True, text))
    result.verdicts.append(_grid_verdict(result, names))
    return result


def _judge_fill(result: Trial, fill: Fill, runs: list[dict[str, Tensor]]) -> None:
    """Every output of every run of one fill; those of the first output keep the fill's plain name."""
    problem = result.plan.problem
    result.outputs[fill.name] = runs[0][problem.output.name]
    for output in problem.outputs:
        name = fill.name if output == problem.output else f"{fill.name}/{output.name}"
        _judge_output(result, fill, output.name, name, [run[output.name] for run in runs])


def _judge_output(result: Trial, fill: Fill, output: str, name: str, outputs: list[Tensor]) -> None:
    problem, contract = result.plan.problem, result.contract
    verdicts = [judge(problem, contract, fill, out, output) for out in outputs]
    worst = next((verdict for verdict in verdicts if not verdict.passed), verdicts[0])
    figures = _figures(worst)
    if worst.bad is not None:
        config = result.plan.config
        block = (config.block_m, config.block_n) if isinstance(config, Config) else (64, 64)
        figures["tiles"] = wrong_tiles(worst.bad, block)
    result.verdicts.append(Verdict(str(Check(CheckKind.NUMERICS, name)), worst.passed, worst.text, figures))
    if not torch.equal(bits(outputs[0]), bits(outputs[1])):
        differ = (bits(outputs[0]) != bits(outputs[1])).nonzero()
        text = (
            f"two runs with different poison around the operands differ in {len(differ)} elements, first "
            f"{differ[0].tolist()}: an element was not written, memory outside an operand was read, or the kernel is "
            f"not deterministic"
        )
        result.verdicts.append(Verdict(str(Check(CheckKind.REPEAT, name)), False, text))
    config = result.plan.config
    if not worst.passed and not result.diagnosis and isinstance(problem, Gemm) and isinstance(config, Config):
        failed = outputs[verdicts.index(worst)]
        blocks = (config.block_m, config.block_n, config.block_k)
        result.diagnosis = diagnose(problem, contract, fill, failed, block=blocks).text


def _figures(verdict: FillVerdict) -> dict[str, object]:
    """What the text of a verdict does not say, or says for readers only."""
    names = ["wrong", "total", "worst_ratio", *([] if verdict.passed else ["first", "got", "want"])]
    return {name: value for name, value in verdict.to_dict().items() if name in names and value is not None}


def _grid_verdict(result: Trial, names: Sequence[str] | None) -> Verdict:
    plan, check = result.plan, str(Check(CheckKind.GRID))
    if result.grid is None:
        applicable = ", ".join(applicable_fills(plan.problem, result.contract))
        text = f"no fill ran: of the fills of {plan.problem.id} ({applicable}) none is among {', '.join(names or ())}"
        return Verdict(check, False, text, {"grid": []})
    text = f"grid {result.grid} ran" + ("" if result.programs is None else f", {result.programs} programs")
    if result.grid == plan.grid:
        return Verdict(check, True, text, {"grid": list(plan.grid)})
    return Verdict(check, False, f"{text}, {plan.grid} was planned", {"grid": list(result.grid)})
