"""Runs one planned launch and judges it: every fill that its contract allows, in guarded memory."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from conformance.diagnosis.bit_orders import explain_bits
from conformance.execution.device.page_edges import Edge, NoEdge, PageEdges
from conformance.execution.interpreter.accesses import Footprints, Lanes
from conformance.execution.interpreter.lane_words import lane_words
from conformance.execution.interpreter.missing_reads import missing_reads
from conformance.execution.interpreter.repeated_reads import lost_stores, repeated_reads
from conformance.execution.trial.explained_failures import NOT_SET, explain, wrong_nan, wrong_tiles
from conformance.execution.trial.fill_groups import (
    FillGroup,
    Judgement,
    fills_at_once,
    fills_for,
    kept_group,
    moved,
    read_judgements,
    read_together,
    unit_model,
)
from conformance.families.family import family_of
from conformance.families.unit_verdict import UnitModel, with_bits, with_count
from conformance.heuristics.configs import Config
from conformance.inputs.fills import Fill, applicable_fills, fill_set
from conformance.inputs.guarded_memory import GuardedBatch, GuardedTensor, stored_values
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Executor, Ran, watching, workspaces_from
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Seen
from conformance.numerics.rounding import bits
from conformance.numerics.verdict import FillVerdict, judge, right
from conformance.problems import DTYPES, Operand, Problem
from conformance.records import Check, CheckKind, ExecutorName, Verdict

#: Each fill runs once per pattern, which chooses the operands' poison and the outputs' sentinel.
PATTERNS = (0, 1)
#: Of each pattern, whether integers that a load leaves undefined in the interpreter look like those that it reads.
PLAUSIBLE_INTEGERS = (False, True)

#: How what comes and goes may be as the author of a kernel meant it.
UNLESS_DECLARED = (
    "a kernel that rounds sums in an order that nothing fixes, as unordered fp32 atomics do, must say "
    "deterministic=False in its contract"
)

#: Bytes of a fill that is right up to which it is evidence about one that is wrong.
KEPT_BYTES = 16 << 20

#: What makes the launch over tensors by name, for the executor.
Launcher = Callable[[Mapping[str, Tensor]], Any]


class Launchable(Protocol):
    """The subject of a trial: a kernel of the catalogue, or a compiled function. The executor takes what ``launch``
    returns."""

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract: ...

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Any: ...


@dataclass
class Trial:
    """Verdicts of one plan on one executor.

    ``complete``: every fill that the problem has under the contract was judged. ``tiles``: how many tiles the output
    has in each direction, as its family counts. ``grid`` is the one that ran, ``outputs`` the dense first output
    of each fill, on the CPU. ``at_edges`` names the fills of which a run had its operands at an edge of mapped memory,
    or says why none had; empty where no memory can be mapped so, as in the interpreter.
    ``model``: the bits that the tensor core owes, None where they are not known. ``lanes``: those of masked loads for
    which the kernel names no value, in the interpreter.
    """

    plan: Plan
    contract: Contract
    executor: ExecutorName
    complete: bool
    tiles: tuple[int, int]
    verdicts: list[Verdict] = field(default_factory=list)
    grid: tuple[int, ...] | None = None
    programs: int | None = None
    outputs: dict[str, Tensor] = field(default_factory=dict)
    diagnosis: str = ""
    compiled: object = None
    at_edges: str = ""
    model: UnitModel | None = None
    lanes: Lanes = field(default_factory=Lanes)
    seen: list[Seen] = field(default_factory=list, repr=False)  # while it runs: what a diagnosis may rest on
    disturbed: list[str] = field(default_factory=list, repr=False)

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the bits of each fill's first output: equal ones are the same numbers on another stack. Fills in
        which the contract promises no equal bits have none."""
        exact = {kind.name for kind in fill_set(self.plan.problem).kinds if kind.exact}
        return {
            name: hashlib.sha256(bits(out).numpy().tobytes()).hexdigest()
            for name, out in self.outputs.items()
            if self.contract.deterministic or name in exact
        }

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    def saw(self, ran: Ran) -> None:
        """Takes what one run showed: the first grid that was observed, and the latest compiled kernel."""
        self.compiled = ran.compiled or self.compiled
        if self.grid is None:
            self.grid, self.programs = ran.grid, ran.programs


class JudgesDiffer(AssertionError):
    """The device and the CPU do not say the same of a run; always an error of the harness."""


def place(
    problem: Problem, inputs: Mapping[str, Tensor], pattern: int, device: torch.device
) -> dict[str, GuardedTensor]:
    """Returns every operand and output in guarded memory on ``device``, strided and aligned as the problem asks."""
    placed = {
        operand.name: GuardedTensor.place(inputs[operand.name], operand, device=device, pattern=pattern)
        for operand in problem.operands
    }
    for output in problem.outputs:
        placed[output.name] = GuardedTensor.place(None, output, device=device, pattern=pattern)
    return placed


def run_guarded(
    launcher: Launcher,
    problem: Problem,
    inputs: Mapping[str, Tensor],
    executor: Executor,
    pattern: int,
    *,
    observe: bool = False,
    stores_once: bool = True,
    lanes: Lanes | None = None,
) -> tuple[dict[str, Tensor], list[str], Ran]:
    """Runs once over guarded memory: the dense outputs on the CPU, what was disturbed around them, and what ran.

    ``pattern`` picks the poison (an element of PATTERNS), ``observe`` is the executor's, ``stores_once`` the
    contract's. ``lanes`` takes what the interpreter sees of masked loads."""
    placed = place(problem, inputs, pattern, executor.device)
    views = {name: tensor.view for name, tensor in placed.items()}
    written = [output.name for output in problem.outputs]
    rules = {"once": written if stores_once else [], "written": written, "plausible": PLAUSIBLE_INTEGERS[pattern]}
    rules["lanes"] = lanes
    with watching(executor, views, **rules) as accesses:
        ran = starter(executor)(launcher(views), observe=observe)
    changed = torch.stack([tensor.changed().any() for tensor in placed.values()])
    any_changed, *dense = read_together([changed, *(placed[output.name].view for output in problem.outputs)])
    disturbed: list[str] = []
    if any_changed.any():
        disturbed = [str(violation) for tensor in placed.values() for violation in tensor.violations()]
    if accesses is not None:
        disturbed += accesses.strays.values()
    return {output.name: out for output, out in zip(problem.outputs, dense, strict=True)}, disturbed, ran


def starter(executor: Executor) -> Callable[..., Ran]:
    """Returns the function that starts a launch on ``executor``, without waiting for it if the executor can do that."""
    start: Callable[..., Ran] = getattr(executor, "start", executor.run)
    return start


def trial(
    kernel: Launchable,
    plan: Plan,
    executor: Executor,
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    compare: bool = False,
    place_in_case: int = 0,
    zero_lanes: frozenset[str] = frozenset(),
) -> Trial:
    """Returns the verdicts about ``plan`` on ``executor``.

    Each fill runs twice, with different poison around the operands; in the interpreter the fills after the first run
    once, and their poison takes turns (see :func:`patterns_of`). On a device the second runs of two fills have their
    operands at the edges of mapped memory in place of poison. The trial judges the numbers of every output, the
    memory around every operand, and whether both runs agree bit by bit. One run is observed; its grid must be the
    plan's. ``names`` restricts the fills, ``seed`` picks their values. On a device several fills run and are judged
    together there, and the CPU judges what may be wrong; with ``compare`` it judges everything again.
    ``place_in_case`` is the number of the first of the fills among those of a case that is judged in parts. In the
    interpreter, lanes that a mask leaves without a value are 0 in loads on the lines ``zero_lanes``.

    Raises ValueError for a name that the problem's family does not know, and JudgesDiffer if the device and the CPU do.
    """
    problem, contract = plan.problem, kernel.contract(plan, executor.name)
    chosen = applicable_fills(problem, contract, names)
    complete = len(chosen) == len(applicable_fills(problem, contract))
    model = unit_model(kernel, plan, contract, executor)
    tiles = family_of(problem).judged_tiles(problem, plan.config)
    result = Trial(plan, contract, executor.name, complete, tiles, model=model, lanes=Lanes(zero_lanes))
    launcher = functools.partial(kernel.launch, plan)
    runs = len(chosen) * len(PATTERNS)
    fitting = 0 if executor.device.type == "cpu" and not compare else fills_at_once(problem)
    if fitting:
        for first in range(0, len(chosen), fitting):
            group = kept_group(problem, contract, seed, chosen[first : first + fitting], executor.device)
            _try_together(result, launcher, group, executor, compare=compare)
    else:
        if executor.on_device:
            result.at_edges = "none: the operands are too large for fills to run together"
        patterns = [patterns_of(executor, number) for number in range(place_in_case, place_in_case + len(chosen))]
        runs = sum(map(len, patterns))
        for fill, of_fill in zip(fills_for(problem, contract, seed, chosen), patterns, strict=True):
            _try_alone(result, launcher, fill, executor, of_fill)
    if not any(Check.parse(verdict.check).kind is CheckKind.MEMORY for verdict in result.verdicts):
        text = f"operands and surroundings untouched in {runs} runs"
        result.verdicts.append(Verdict(str(Check(CheckKind.MEMORY)), True, text))
    result.verdicts.append(_grid_verdict(result, names))
    failed = [verdict.check for verdict in result.verdicts if not verdict.passed]
    if failed:
        # what the tensor core's bits say counts where nothing else explains the failure
        unread = functools.partial(_unread, launcher, plan.problem, executor, [entry.fill for entry in result.seen])
        origins = functools.partial(_nan_origins, launcher, plan.problem, executor, Lanes(zero_lanes))
        overflows = functools.partial(_overflows, launcher, plan.problem, contract, executor, Lanes(zero_lanes))
        explained = explain(
            plan, contract, result.seen, result.disturbed, result.grid, failed, unread, origins, overflows
        )
        result.diagnosis = explained or result.diagnosis
    result.seen.clear()
    return result


def _unread(launcher: Launcher, problem: Problem, executor: Executor, fills: Sequence[Fill]) -> list[str]:
    """Runs the first of ``fills`` once more. Returns what the programs read twice of it, or did not read and should
    have; nothing if the executor watches no reads."""
    if executor.on_device or not fills:
        return []
    views = {name: tensor.view for name, tensor in place(problem, fills[0].inputs, 0, executor.device).items()}
    footprints = Footprints(views)
    with watching(executor, views, footprints=footprints) as accesses:
        if accesses is None:
            return []
        with workspaces_from(footprints.workspace):
            before = {output.name: bits(views[output.name]).clone() for output in problem.outputs}
            launch = launcher(views)
        kept = [name for name, held in before.items() if torch.equal(held, bits(views[name]))]
        starter(executor)(launch, observe=False)
    if never_set := [name for name in kept if name in footprints.added]:
        return [f"{name} is not set before atomic operations change it at {footprints.added[name]}: {NOT_SET}"
                for name in never_set]  # fmt: skip
    again = lost_stores(problem, footprints) or repeated_reads(problem, footprints)
    return again or missing_reads(problem, fills[0].inputs, footprints)


def _traced(
    method: str, launcher: Launcher, problem: Problem, executor: Executor, lanes: Lanes, fill: Fill
) -> tuple[Any, dict[str, Tensor]]:
    """Runs ``fill`` once more inside the ``method`` of the executor. Returns what that traced and the outputs; None and
    no outputs if the executor has no such method."""
    tracing_of = getattr(executor, method, None)
    if tracing_of is None:
        return None, {}
    views = {name: tensor.view for name, tensor in place(problem, fill.inputs, 0, executor.device).items()}
    outputs = {output.name: views[output.name] for output in problem.outputs}
    with tracing_of(views, list(outputs), lanes) as tracing:
        starter(executor)(launcher(views), observe=False)
    return tracing, outputs


def _nan_origins(launcher: Launcher, problem: Problem, executor: Executor, lanes: Lanes, fill: Fill) -> list[str]:
    """Runs ``fill`` once more, traces NaN, and returns where that of wrong elements begins; nothing if the executor
    traces none."""
    tracing, outputs = _traced("tracing_nan", launcher, problem, executor, lanes, fill)
    if tracing is None:
        return []
    seen = Seen(fill, outputs)
    numbers = [
        tracing.of_output(name, tuple(element))
        for name in outputs
        for element in wrong_nan(seen, name).nonzero().tolist()
    ]
    named = {line: lane_words(problem, of_operands) for line, of_operands in lanes.undefined.items()}
    sentences: list[str] = tracing.origins.words(filter(None, numbers), named)
    return sentences


def _overflows(
    launcher: Launcher, problem: Problem, contract: Contract, executor: Executor, lanes: Lanes, fill: Fill
) -> list[str]:
    """Runs ``fill`` once more, traces integers of 32 bits that overflow, and returns on which of them an address or a
    wrong element depends; nothing if the executor traces none."""
    tracing, outputs = _traced("tracing_overflow", launcher, problem, executor, lanes, fill)
    if tracing is None:
        return []
    numbers = []
    for name, output in outputs.items():
        bad = judge(problem, contract, fill, output, name).bad
        numbers += [tracing.of_output(name, tuple(each)) for each in bad.nonzero().tolist()] if bad is not None else []
    sentences: list[str] = tracing.sentences([number for number in numbers if number])
    return sentences


def patterns_of(executor: Executor, number: int) -> tuple[int, ...]:
    """Returns the patterns with which fill ``number`` of a case runs. In the interpreter each address is watched, and
    poison shows no more than what a kernel leaves unwritten or loads undefined. That gives wrong numbers in every fill:
    the first alone runs with all patterns, and for it both runs must agree."""
    watched = not executor.on_device and hasattr(executor, "watching")
    return PATTERNS if number == 0 or not watched else (PATTERNS[number % len(PATTERNS)],)


def _try_alone(
    result: Trial, launcher: Launcher, fill: Fill, executor: Executor, patterns: Sequence[int] = PATTERNS
) -> None:
    """Runs and judges one fill, once with each of ``patterns``."""
    outputs = []
    inputs = {name: moved(values, executor.device) for name, values in fill.inputs.items()}
    for pattern in patterns:
        observe = result.grid is None and pattern == patterns[-1]
        once = result.contract.stores_once
        dense, disturbed, ran = run_guarded(
            launcher,
            result.plan.problem,
            inputs,
            executor,
            pattern,
            observe=observe,
            stores_once=once,
            lanes=result.lanes,
        )
        result.saw(ran)
        if disturbed:
            result.verdicts.append(_disturbed_verdict(fill, pattern, disturbed))
            result.disturbed += disturbed
        outputs.append(dense)
    _judge_fill(result, fill, outputs)


def _try_together(result: Trial, launcher: Launcher, group: FillGroup, executor: Executor, *, compare: bool) -> None:
    """Runs and judges the fills of ``group``. What the device says of them is read back once; the CPU judges those
    that may be wrong."""
    problem = result.plan.problem
    for fill in group.fills:
        for operand in problem.operands:
            stored_values(fill.inputs[operand.name], operand)  # raises ValueError for what cannot be placed
    batch = GuardedBatch(problem, group.inputs, len(group.fills), executor.device)
    start, at_edges = starter(executor), _edges_of(result, problem, group.fills, executor)
    for number in range(len(group.fills)):
        for pattern in PATTERNS:
            observe = result.grid is None and pattern == PATTERNS[-1]
            views = batch.views(number, pattern)
            if number in at_edges and pattern == PATTERNS[-1]:
                ran = _start_at_edge(result, launcher, views, at_edges[number], executor, observe=observe)
            else:
                ran = start(launcher(views), observe=observe)
            result.saw(ran)
    repeats = [_must_repeat(result.contract, fill) for fill in group.fills]
    seen_of = read_judgements(problem, group, batch, repeats, result.model)
    for number, (fill, seen) in enumerate(zip(group.fills, seen_of, strict=True)):
        right = _right_verdicts(result, fill, seen)
        if seen.right:
            result.verdicts += right
            result.outputs[fill.name] = seen.output
            if len(problem.outputs) == 1:
                _keep(result, fill, {problem.output.name: seen.output}, passed=True)
        if seen.right and not compare:
            continue
        again = dataclasses.replace(result, verdicts=[], outputs={}, seen=[])
        _judge_in_batch(again, fill, batch, number)
        if not seen.right:
            result.verdicts += again.verdicts
            result.seen += again.seen
            result.outputs |= again.outputs
            result.diagnosis = result.diagnosis or again.diagnosis
        if compare:
            _check_agreement(again, fill, seen, right)


def _must_repeat(contract: Contract, fill: Fill) -> bool:
    """True if all runs of ``fill`` must agree bit by bit."""
    return contract.deterministic or fill.method == "exact"


def fills_at_edges(fills: Sequence[Fill]) -> dict[int, Edge]:
    """Returns by number the fills whose second run has its operands at an edge of mapped memory. They are the first
    exact one, and the next one if there is any."""
    first = next((number for number, fill in enumerate(fills) if fill.method == "exact"), 0)
    return {(first + 1) % len(fills): Edge.BEGIN, first: Edge.END}


def _edges_of(result: Trial, problem: Problem, fills: Sequence[Fill], executor: Executor) -> dict[int, Edge]:
    """:func:`fills_at_edges` of the first group of a trial; none where memory cannot be mapped so. ``result`` says
    which fills they are, or why there are none."""
    edges: PageEdges | NoEdge | None = getattr(executor, "page_edges", None)
    if edges is None or result.at_edges:
        return {}
    why = str(edges) if isinstance(edges, NoEdge) else edges.objection(problem)
    at_edges = {} if why else fills_at_edges(fills)
    result.at_edges = f"none: {why}" if why else ", ".join(fills[number].name for number in sorted(at_edges))
    return at_edges


def _start_at_edge(
    result: Trial, launcher: Launcher, views: Mapping[str, Tensor], edge: Edge, executor: Executor, *, observe: bool
) -> Ran:
    """Starts a launch whose operands, outputs and workspaces lie at ``edge``. It has the values of ``views`` of guarded
    memory, which get its outputs."""
    problem, edges = result.plan.problem, executor.page_edges  # type: ignore[attr-defined]  # it has edges

    def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        try:
            memory: Tensor = edges.workspace(shape, dtype, edge)
        except NoEdge as error:
            result.at_edges = f"none of a workspace: {error}"
            return torch.empty(shape, dtype=dtype, device=executor.device)
        return memory

    placed = edges.views(problem, views, edge)
    with workspaces_from(allocate):
        launch = launcher(placed)
    ran = starter(executor)(launch, observe=observe)
    edges.copy(problem.outputs, placed, views)
    return ran


def _judge_in_batch(result: Trial, fill: Fill, batch: GuardedBatch, number: int) -> None:
    """Judges the runs of ``fill`` on the CPU; it has this ``number`` in ``batch``."""
    for pattern in PATTERNS:
        disturbed = [str(violation) for violation in batch.violations(number, pattern)]
        if disturbed:
            result.verdicts.append(_disturbed_verdict(fill, pattern, disturbed))
            result.disturbed += disturbed
    outputs = {output.name: batch.outputs(output.name)[number].cpu() for output in result.plan.problem.outputs}
    dtypes = {output.name: DTYPES[output.dtype] for output in result.plan.problem.outputs}
    runs = [{name: out[pattern].view(dtypes[name]) for name, out in outputs.items()} for pattern in PATTERNS]
    _judge_fill(result, fill, runs)


def _right_verdicts(result: Trial, fill: Fill, seen: Judgement) -> list[Verdict]:
    """The verdicts about a fill of which every run is right."""
    problem, contract = result.plan.problem, result.contract
    used = seen.used
    verdicts = {output: right(problem, contract, fill, output.name, used[output.name]) for output in problem.outputs}
    if seen.right and result.model is not None and seen.other_bits is not None:
        verdicts[problem.output] = with_count(verdicts[problem.output], result.model, seen.other_bits)
    return [_numerics_verdict(problem, fill, output, verdict) for output, verdict in verdicts.items()]


def _check_agreement(by_cpu: Trial, fill: Fill, seen: Judgement, right: Sequence[Verdict]) -> None:
    """Raises JudgesDiffer if the CPU's verdicts about ``fill``, ``by_cpu``, are not what the device saw."""
    agree = not by_cpu.passed or by_cpu.contract.flushes_subnormals
    if seen.right:
        output = by_cpu.outputs[fill.name]
        agree = by_cpu.verdicts == list(right) and torch.equal(bits(output), bits(seen.output))
    if not agree:
        raise JudgesDiffer(
            f"{by_cpu.plan.problem.id}, fill {fill.name}: the device says {'right' if seen.right else 'wrong'}, "
            f"{list(right)}; the CPU says {by_cpu.verdicts}"
        )


def _disturbed_verdict(fill: Fill, pattern: int, disturbed: Sequence[str]) -> Verdict:
    text = f"{len(disturbed)} disturbed: " + "; ".join(disturbed[:4])
    return Verdict(str(Check(CheckKind.MEMORY, fill.name)), False, text, {"pattern": pattern})


def _judge_fill(result: Trial, fill: Fill, runs: list[dict[str, Tensor]]) -> None:
    """Every output of every run of one fill; those of the first output keep the fill's plain name."""
    problem = result.plan.problem
    result.outputs[fill.name] = runs[0][problem.output.name]
    failed: list[int] = []
    for output in problem.outputs:
        failed += _judge_output(result, fill, output, [run[output.name] for run in runs])
    _keep(result, fill, runs[min(failed, default=0)], passed=not failed)


def _keep(result: Trial, fill: Fill, outputs: dict[str, Tensor], *, passed: bool) -> None:
    """Keeps what ``fill`` gave until the trial is explained. A right one is evidence too, but not at any price."""
    if not passed or fill.nbytes <= KEPT_BYTES:
        result.seen.append(Seen(fill, outputs))


def _judge_output(result: Trial, fill: Fill, output: Operand, outputs: list[Tensor]) -> list[int]:
    """Judges ``output`` of every run; returns the numbers of those that are wrong."""
    problem, contract = result.plan.problem, result.contract
    verdicts = [judge(problem, contract, fill, out, output.name) for out in outputs]
    if result.model is not None and output == problem.output:
        pairs = zip(verdicts, outputs, strict=True)
        verdicts = [with_bits(verdict, result.model, fill, out) for verdict, out in pairs]
    worst = next((verdict for verdict in verdicts if not verdict.passed), verdicts[0])
    figures = {}
    if worst.bad is not None:
        config = result.plan.config
        block = (config.block_m, config.block_n) if isinstance(config, Config) else (64, 64)
        figures["tiles"] = wrong_tiles(worst.bad, block)
    result.verdicts.append(_numerics_verdict(problem, fill, output, worst, **figures))
    if _must_repeat(contract, fill) and not torch.equal(bits(outputs[0]), bits(outputs[-1])):
        differ = (bits(outputs[0]) != bits(outputs[-1])).nonzero()
        text = (
            f"two runs with different memory around the operands differ in {len(differ)} elements, first "
            f"{differ[0].tolist()}. An element was not written, memory outside an operand was read, or the kernel is "
            f"not deterministic; {UNLESS_DECLARED}"
        )
        result.verdicts.append(Verdict(str(Check(CheckKind.REPEAT, _name(problem, fill, output))), False, text))
    config = result.plan.config
    if worst.bits_only and result.model is not None and isinstance(config, Config) and not result.diagnosis:
        result.diagnosis = explain_bits(result.model, fill, outputs[verdicts.index(worst)], config.block_k)
    return [number for number, verdict in enumerate(verdicts) if not verdict.passed]


def _numerics_verdict(problem: Problem, fill: Fill, output: Operand, verdict: FillVerdict, **more: Any) -> Verdict:
    """``verdict`` about ``output``, with what its text does not say, or says for readers only, and ``more`` of that."""
    names = ["wrong", "total", "worst_ratio", "other_bits", *([] if verdict.passed else ["first", "got", "want"])]
    figures = {name: value for name, value in verdict.to_dict().items() if name in names and value is not None}
    check = str(Check(CheckKind.NUMERICS, _name(problem, fill, output)))
    return Verdict(check, verdict.passed, verdict.text, {**figures, **more})


def _name(problem: Problem, fill: Fill, output: Operand) -> str:
    """Returns the name of an output of a fill in verdicts."""
    return fill.name if output == problem.output else f"{fill.name}/{output.name}"


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
