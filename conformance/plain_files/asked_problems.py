"""Asks the wrapper of a file about problems, and makes its kernel of what it launches."""

from __future__ import annotations

import ast
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.families.attention.problem import Mask
from conformance.plain_files.answer_check import MOST_BYTES, MOST_PROGRAMS, bytes_made, check_answer, grid_size
from conformance.plain_files.description import Described, DescriptionError, root_of
from conformance.plain_files.device_functions import Taken, device_functions, taken
from conformance.plain_files.device_steps import MOST_DIMENSIONS
from conformance.plain_files.file_kernel import KERNELS, VARIABLE, FileGemm, Recorded, kernel_of, key
from conformance.plain_files.replayable import Replayable, called_again, first_launch
from conformance.plain_files.sandbox import SandboxError, run_apart
from conformance.plain_files.tape import Added, Answer, Launched, Tape, View, decode, parts
from conformance.problems import DTYPES, Layout
from conformance.targets import Target

#: Seconds that the code of a file may take for one target.
SECONDS = 120.0
#: Launches, copies, fills and sums of one call, from its first launch on.
MOST_STEPS = 16
#: Partial results that torch may add: those of a split K.
MOST_PARTS = 64
#: Configs that the tuner of one kernel may have.
MOST_CONFIGS = 4096


@dataclass(frozen=True)
class Asked:
    """One case of a file: a problem with a config on a target."""

    problem: Any
    config: Any
    target: Target


def problems_of(kernel: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the problems of a file's kernel, each with its config. They have every shape class and dtype, the other
    orders of a product's operands, and every further config of a tuner."""
    described, fields = kernel.recorded.described, kernel.recorded.fields
    first, *others = kernel.configs
    named = {each.id for each in ast.walk(ast.parse(described.call)) if isinstance(each, ast.Name)}
    # a factor or mask that the call does not name is that of a function without it
    usual: dict[str, Any] = {name: 1.0 for name in ("alpha", "beta") if name not in named}
    if "causal" not in named:
        usual["mask"] = Mask("full")

    def asked(dtype: str, config: Any, shape: str) -> Any:
        try:
            problem = kernel.example(dtype, config, shape)
            unnamed = {name: value for name, value in usual.items() if hasattr(problem, name)}
            return dataclasses.replace(problem, **{**unnamed, **fields})
        except (TypeError, ValueError) as error:
            raise DescriptionError(f"{described.operation} of {dtype} with fields {fields}: {error}") from None

    for dtype in kernel.dtype_names():
        for shape in described.shapes or kernel.shapes:
            yield asked(dtype, first, shape), first
        if isinstance(kernel, FileGemm) and not described.shapes:
            ragged = asked(dtype, first, "ragged")
            for a, b in kernel.more_orders:
                yield dataclasses.replace(ragged, layout_a=Layout(a), layout_b=Layout(b)), first
    for config in others:
        yield asked(kernel.dtype_names()[0], config, (*described.shapes, "ragged")[0]), config


def ask(path: Path, described: Described, asked: Sequence[Asked], folder: Path) -> Answer:
    """Returns the tapes of ``asked``, which are for one target. Raises SandboxError if the file gives none."""
    from conformance.plain_files.recording import Question, prepare, record

    questions = [
        Question(each.problem.operands, each.problem.outputs, _names(each.problem), each.config.number)
        for each in asked
    ]
    folder.mkdir(parents=True, exist_ok=True)
    prepare()
    target = asked[0].target
    data = run_apart(lambda: record(path, described.call, target, questions), folder, SECONDS)
    try:
        answer = decode(data)
        check_answer(answer)
    except ValueError as error:
        raise SandboxError(f"the file's code sent what is no answer: {error}") from None
    if answer.fault:
        raise SandboxError(answer.fault)
    if len(answer.tapes) != len(asked):
        raise SandboxError(f"the file's code answered {len(answer.tapes)} of {len(asked)} questions")
    most = max((tape.configs for tape in answer.tapes), default=1)
    if most > MOST_CONFIGS:
        raise SandboxError(f"the file's code names {most} configs, and at most {MOST_CONFIGS} are judged; name fewer")
    tapes = tuple(_checked(tape, each.problem, answer) for tape, each in zip(answer.tapes, asked, strict=True))
    return msgspec.structs.replace(answer, tapes=tapes)


def _names(problem: Any) -> dict[str, Any]:
    """Returns the numbers and words of a problem that a call may name."""
    names = {name: value for name, value in vars(problem).items() if isinstance(value, (int, float, str, bool))}
    if hasattr(problem, "softmax_scale"):
        names |= {"scale": problem.softmax_scale, "causal": problem.mask.kind == "causal"}
    return names


def _checked(tape: Tape, problem: Any, answer: Answer) -> Tape:
    if tape.fault or tape.refused:
        return tape
    fault = _fault(tape, problem, answer)
    return msgspec.structs.replace(tape, fault=fault[1], check=fault[0]) if fault else tape


def _fault(tape: Tape, problem: Any, answer: Answer) -> tuple[str, str] | None:
    """Returns the check that fails and why; None if the tape can be replayed."""
    launches = [step for step in tape.steps if isinstance(step, Launched)]
    if not launches:
        return "launches", "the wrapper launches no kernel: its result has another source"
    if len(tape.steps) - first_launch(tape) > MOST_STEPS:
        return "launches", f"the wrapper does more than {MOST_STEPS} things from its first launch on: do fewer"
    for step in launches:
        if not 1 <= len(step.grid) <= 3 or min(step.grid) < 0:
            return "launches", f"the wrapper launches the grid {list(step.grid)}: one to three sizes are required"
        if grid_size(step) > MOST_PROGRAMS:
            return (
                "launches",
                f"the wrapper launches {grid_size(step)} programs, and at most {MOST_PROGRAMS} are judged",
            )
    if bytes_made(tape) > MOST_BYTES:
        return (
            "workspaces",
            f"the wrapper makes {bytes_made(tape)} bytes of memory, and at most {MOST_BYTES} are judged",
        )
    return _output_fault(tape, problem) or _step_fault(tape, problem)


def _output_fault(tape: Tape, problem: Any) -> tuple[str, str] | None:
    """Returns what is wrong with the tensors that the wrapper returns."""
    for output in problem.outputs:
        view = tape.outputs.get(output.name)
        if view is None or view.memory >= len(tape.memories):
            return "outputs", f"the wrapper returns no {output.name}, and was given none"
        memory = tape.memories[view.memory]
        if memory.kept:
            return "kept-tensor", f"the wrapper returns memory as {output.name} that it keeps from call to call"
        if memory.name in {operand.name for operand in problem.operands}:
            return "outputs", f"the wrapper returns its operand {memory.name} as {output.name}"
        due = DTYPES[output.dtype]
        if view.dtype != str(due) or view.shape != output.shape:
            got = f"{view.dtype} {list(view.shape)}"
            return "outputs", f"the wrapper returns {got} as {output.name}, {due} {list(output.shape)} is required"
        strides = zip(output.shape, view.strides, output.strides, strict=True)
        if view.offset or any(size > 1 and got != want for size, got, want in strides):
            got = f"strides {list(view.strides)} and offset {view.offset}"
            return "outputs", f"the wrapper returns {output.name} with {got}, {list(output.strides)} and 0 are required"
    return None


def _step_fault(tape: Tape, problem: Any) -> tuple[str, str] | None:
    """Returns what is wrong with the steps of the wrapper that are no launches."""
    operands = {operand.name for operand in problem.operands}
    launched: set[int] = set()
    first = first_launch(tape)
    for place, step in enumerate(tape.steps):
        if isinstance(step, Launched):
            launched |= {view.memory for view in parts(step.arguments) if isinstance(view, View)}
            continue
        target = tape.memories[step.view.memory]
        if target.name in operands:
            return "inputs", f"the wrapper changes its operand {target.name}"
        if place > first and len(step.view.shape) > MOST_DIMENSIONS:
            return "library-call", f"the wrapper changes a tensor of more than {MOST_DIMENSIONS} dimensions with torch"
        if isinstance(step, Added) and not _adds_partial_results(step, tape, launched, operands):
            text = f"calls torch's sum: at most {MOST_PARTS} partial results of a kernel may be added by it"
            return "library-call", f"the wrapper {text}"
    return None


def _adds_partial_results(step: Added, tape: Tape, launched: set[int], operands: set[str]) -> bool:
    source, count = step.source, len(step.source.shape)
    is_of_kernel = source.memory in launched and tape.memories[source.memory].name not in operands
    of_floats = {source.dtype, step.view.dtype} <= {"torch.float16", "torch.bfloat16", "torch.float32"}
    return is_of_kernel and of_floats and step.axis < count <= MOST_DIMENSIONS and source.shape[step.axis] <= MOST_PARTS


def recorded(
    path: Path, described: Described, targets: Sequence[Target], folder: Path
) -> list[tuple[Recorded, list[Asked]]]:
    """Returns one operation of the file at ``path`` as a kernel, and its cases, each of which has a tape. If the
    wrapper keeps memory from call to call, a second kernel is the same after another call.

    Raises SandboxError if the file's code gives no answer, ForeignCode for device functions that are none, and
    DescriptionError for an operation that files cannot have."""
    name, apart = described.name or f"{path.stem}.{described.operation}".replace("-", "_"), folder / "apart"
    tapes: dict[str, tuple[Tape, int]] = {}
    functions: list[tuple[Taken, ...]] = []
    later: dict[str, tuple[Tape, int]] = {}
    cases: list[Asked] = []
    later_cases: list[Asked] = []
    kernel = kernel_of(Recorded(described, name), folder)
    try:
        example, config = next(problems_of(kernel))
    except (TypeError, ValueError, LookupError) as error:
        raise DescriptionError(
            f"{described.operation} cannot have the dtypes or fields that are described: {error}"
        ) from None
    (first,) = ask(path, described, [Asked(example, config, targets[0])], apart).tapes
    numbers = described.configs or range(first.configs)
    if max(numbers) >= first.configs and not first.fault:
        raise DescriptionError(
            f"the configs {list(numbers)} are described, and the tuner has {first.configs}, from 0 on"
        )
    configs = [dataclasses.replace(config, number=number) for number in numbers]
    more = [Asked(example, other, targets[0]) for other in configs[1:]]
    others = ask(path, described, more, apart).tapes if more else ()
    # a wrapper may keep the kernel of the config that its tuner chose first
    keeps = any(not tape.fault and tape.configs <= number for number, tape in zip(numbers[1:], others, strict=True))
    if keeps:
        others = tuple(ask(path, described, [each], apart).tapes[0] for each in more)
    tiles = tuple(tape.tile for tape in (first, *others))
    kernel = kernel_of(msgspec.structs.replace(kernel.recorded, tiles=tiles), folder)
    for target in targets:
        every = [Asked(problem, config, target) for problem, config in problems_of(kernel)]
        for config in kernel.configs if keeps else [None]:
            asked = [each for each in every if config in (None, each.config)]
            answer = ask(path, described, asked, apart)
            number = len(functions)
            replayable = Replayable(taken(answer.functions, root_of(path), apart))
            for each, tape in zip(asked, answer.tapes, strict=True):
                place = key(each.problem, each.config, target)
                tapes[place] = (replayable.tape(tape), number)
                is_asked = any((each.config, target) == (other.config, other.target) for other in later_cases)
                if not is_asked and any(memory.kept for memory in tape.memories) and not tape.fault:
                    later[place] = (replayable.tape(called_again(tape)), number)
                    later_cases.append(each)
            functions.append(tuple(replayable.functions))
            device_functions(functions[-1], folder / f"{name}-{number}")
            cases += asked
    once = msgspec.structs.replace(kernel.recorded, tapes=tapes, functions=tuple(functions))
    again = msgspec.structs.replace(once, name=f"{name}.again", tapes=later)
    return [(once, cases), *([(again, later_cases)] if later_cases else [])]


def enter(kernels: Sequence[Recorded], folder: Path) -> None:
    """Has the catalogue of this process, and of its children, hold ``kernels``. Before it is read."""
    (folder / KERNELS).write_bytes(msgspec.json.encode(list(kernels)))
    package = folder / "judged_file-1.0.dist-info"
    package.mkdir(exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: judged-file\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[conformance.kernels]\njudged_file = conformance.plain_files.file_kernel:kernels\n"
    )
    os.environ[VARIABLE] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, str(folder))
