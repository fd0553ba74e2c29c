"""Asks the wrapper of a file about problems, and makes its kernel of what it launches."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.kernels.kernel import Plan, Variant
from conformance.plain_files.description import Described
from conformance.plain_files.device_functions import ForeignCode, device_functions
from conformance.plain_files.file_kernel import KERNELS, VARIABLE, FileGemm, Recorded, kernel_of, key
from conformance.plain_files.sandbox import SandboxError, run_apart
from conformance.plain_files.tape import Answer, Copied, Filled, Launched, Tape, decode
from conformance.problems import DTYPES, Layout
from conformance.targets import Target

#: Seconds that the code of a file may take for one target.
SECONDS = 120.0


@dataclass(frozen=True)
class Asked:
    """One case of a file: a problem with a config on a target."""

    problem: Any
    config: Any
    target: Target


def problems_of(kernel: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the problems of a file's kernel, each with its config: every shape class and dtype, every order of the
    operands that the description has, and every further config of a tuner."""
    fields = kernel.recorded.fields
    first, *others = kernel.configs

    def with_fields(problem: Any) -> Any:
        return dataclasses.replace(problem, **fields) if fields else problem

    for dtype in kernel.dtype_names():
        for shape in kernel.shapes:
            yield with_fields(kernel.example(dtype, first, shape)), first
        if isinstance(kernel, FileGemm):
            ragged = with_fields(kernel.example(dtype, first, "ragged"))
            for a, b in kernel.more_orders:
                yield dataclasses.replace(ragged, layout_a=Layout(a), layout_b=Layout(b)), first
    for config in others:
        yield with_fields(kernel.example(kernel.dtype_names()[0], config, "ragged")), config


def ask(path: Path, described: Described, asked: Sequence[Asked], folder: Path) -> Answer:
    """Returns the tapes of ``asked``, which are for one target. Raises SandboxError if the file gives none."""
    from conformance.plain_files.recording import Question, record

    questions = [
        Question(each.problem.operands, each.problem.outputs, _names(each.problem), each.config.number)
        for each in asked
    ]
    folder.mkdir(parents=True, exist_ok=True)
    target = asked[0].target
    data = run_apart(lambda: record(path, described.call, target, questions), folder, SECONDS)
    try:
        answer = decode(data)
    except (ValueError, msgspec.ValidationError) as error:
        raise SandboxError(f"the file's code sent what is no answer: {error}") from None
    if answer.fault:
        raise SandboxError(answer.fault)
    if len(answer.tapes) != len(asked):
        raise SandboxError(f"the file's code answered {len(answer.tapes)} of {len(asked)} questions")
    return dataclasses_checked(answer, asked, described)


def _names(problem: Any) -> dict[str, Any]:
    """Returns the numbers and words of a problem that a call may name."""
    names = {name: value for name, value in vars(problem).items() if isinstance(value, (int, float, str, bool))}
    if hasattr(problem, "softmax_scale"):
        names |= {"scale": problem.softmax_scale, "causal": problem.mask.kind == "causal"}
    return names


def dataclasses_checked(answer: Answer, asked: Sequence[Asked], described: Described) -> Answer:
    """Returns ``answer`` with a fault in each tape that cannot be what a wrapper of the problem did."""
    tapes = tuple(_checked(tape, each.problem, answer) for tape, each in zip(answer.tapes, asked, strict=True))
    return msgspec.structs.replace(answer, tapes=tapes)


def _checked(tape: Tape, problem: Any, answer: Answer) -> Tape:
    if tape.fault or tape.refused:
        return tape
    fault = _fault(tape, problem, answer)
    return msgspec.structs.replace(tape, fault=fault[1], check=fault[0]) if fault else tape


def _fault(tape: Tape, problem: Any, answer: Answer) -> tuple[str, str] | None:
    """Returns the check that fails and why; None if the tape can be replayed."""
    launches = [step for step in tape.steps if isinstance(step, Launched)]
    if not launches:
        return "launches", "the wrapper launches no kernel of the file: its result comes from elsewhere"
    operands = {operand.name for operand in problem.operands}
    for output in problem.outputs:
        view = tape.outputs.get(output.name)
        if view is None:
            return "outputs", f"the wrapper returns no {output.name}, and was given none"
        memory = tape.memories[view.memory]
        if memory.name in operands:
            return "outputs", f"the wrapper returns its operand {memory.name} as {output.name}"
        if view.dtype != str(DTYPES[output.dtype]) or view.shape != output.shape:
            got = f"{view.dtype} {list(view.shape)}"
            return "outputs", f"the wrapper returns {got} as {output.name}, {DTYPES[output.dtype]} {list(output.shape)} is due"
        strides = zip(output.shape, view.strides, output.strides, strict=True)
        if view.offset or any(size > 1 and got != due for size, got, due in strides):
            return "outputs", f"the wrapper returns {output.name} with strides {list(view.strides)}, {list(output.strides)} are due"
    seen = False
    names: set[int] = set()
    for step in tape.steps:
        if isinstance(step, Launched):
            seen = True
            if step.function in names:
                return "launches", f"the wrapper launches {answer.functions[step.function].name} twice, which is not judged yet"
            names.add(step.function)
            if not 1 <= len(step.grid) <= 3 or min(step.grid) < 0:
                return "launches", f"the wrapper launches the grid {list(step.grid)}: one to three sizes are required"
        elif isinstance(step, (Filled, Copied)):
            memory = tape.memories[step.view.memory]
            if memory.name in operands:
                return "inputs", f"the wrapper changes its operand {memory.name}"
            if seen:
                return "library-call", "the wrapper changes memory with torch after its kernels, which must make the result"
    return None


def recorded(path: Path, described: Described, targets: Sequence[Target], folder: Path) -> tuple[Recorded, list[Asked]]:
    """Returns the kernel of one operation of the file at ``path`` as data, with a tape for each of the cases that
    follow. Raises SandboxError, ForeignCode or DescriptionError."""
    name = described.name or f"{path.stem}.{described.operation}".replace("-", "_")
    plain = Recorded(described, name, 1, {})
    probe = kernel_of(plain, folder)
    tapes: dict[str, tuple[Tape, int]] = {}
    functions, cases = [], []
    for number, target in enumerate(targets):
        example = next(problems_of(probe))
        first = ask(path, described, [Asked(*example, target)], folder / "apart").tapes[0]
        one = msgspec.structs.replace(plain, configs=first.configs, tile=first.tile)
        kernel = kernel_of(one, folder)
        asked = [Asked(problem, config, target) for problem, config in problems_of(kernel)]
        answer = ask(path, described, asked, folder / "apart")
        device_functions(answer.functions, folder / f"{name}-{number}")
        functions.append(answer.functions)
        tapes |= {key(each.problem, each.config, target): (tape, number) for each, tape in zip(asked, answer.tapes, strict=True)}
        cases += asked
        plain = one
    return msgspec.structs.replace(plain, tapes=tapes, functions=tuple(functions)), cases


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


def draft(kernel: Any, case: Asked) -> Plan:
    """Returns the plan of a case, which the kernel may refuse."""
    return Plan(kernel.name, case.problem, case.config, Variant(), case.target)


__all__ = ["Asked", "ForeignCode", "SandboxError", "ask", "draft", "enter", "problems_of", "recorded"]
