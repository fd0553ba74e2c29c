"""Runs every planted fault through a trial and prints what caught it: ``python -m tests.planted.table``.

On a machine without an accelerator, or with TRITON_INTERPRET=1, kernels run in the interpreter, else on the device. The
work is done in child processes, because a mutant may take its process down: that, too, is being caught.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
#: Seconds after which a mutant counts as hanging.
PATIENCE = 300
#: What Triton says of a kernel that its passes do not compile.
COMPILER_FAILURE = "PassManager::run failed"
#: Exit status of a child whose device may have been left in a bad state.
SPOILED = 3


@dataclass(frozen=True)
class Row:
    """One fault: the checks that failed ("crash" and the like where the process did not survive) and the diagnosis. The
    last field is what the unchanged kernel failed on the same case: nothing, or the row is void. ``not_compiled``: why
    Triton does not compile the unchanged kernel here, so that nothing was run."""

    fault: str
    caught_by: tuple[str, ...]
    diagnosis: str = ""
    baseline: tuple[str, ...] = ()
    seconds: float = 0.0
    not_compiled: str = ""

    @property
    def cause(self) -> str:
        return "; ".join(
            part.removeprefix("CAUSE ")
            for part in self.diagnosis.split("\n")[0].split(" | ")
            if part.startswith("CAUSE ")
        )


def has_device() -> bool:
    """Returns True if kernels will run on an accelerator here."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return False
    import torch

    return torch.accelerator.is_available()


def run(names: Sequence[str], device: bool, *, compare: bool = False, brief: bool = False) -> Iterator[Row]:
    """One row per fault called in ``names``, as they come. With ``compare`` each trial is judged where it ran and on
    the CPU, and the row says if they differ. With ``brief`` a fault without a cause runs up to the first fill that
    fails, and has no diagnosis; the unchanged kernel runs that fill alone."""
    waiting = list(names)
    while waiting:
        for row in _rows(waiting, device, compare, brief):
            waiting.remove(row.fault)
            yield row


@functools.cache
def _child(device: bool, compare: bool, brief: bool) -> subprocess.Popen[str]:
    """The child process, which takes one list of names per line. It ends with this process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment.pop("TRITON_INTERPRET", None)
    if not device:
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
        environment.setdefault("OMP_NUM_THREADS", "1")
    options = [*["--compare"] * compare, *["--brief"] * brief]
    command = [sys.executable, "-m", "tests.planted.table", "--child", *options]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)
    return process


def _rows(names: Sequence[str], device: bool, compare: bool, brief: bool) -> Iterator[Row]:
    """Rows from one process; the last is about the fault that ended it, if one did."""
    process, started = _child(device, compare, brief), ""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps(list(names))}\n")
    process.stdin.flush()
    for line in process.stdout:
        if not line.startswith("@"):
            continue
        data = json.loads(line[1:])
        if "finished" in data:
            return
        if "started" in data:
            started = data["started"]
            continue
        started = ""
        yield Row(**{**data, "caught_by": tuple(data["caught_by"]), "baseline": tuple(data["baseline"])})
    _child.cache_clear()
    code = process.wait()
    if started and code == -signal.SIGALRM:
        yield Row(started, (f"timeout after {PATIENCE} s",))
    elif started and code < 0:  # a signal; anything else is an error of ours, which catches no fault
        yield Row(started, (f"crash ({signal.Signals(-code).name})",))
    elif code != SPOILED:
        raise RuntimeError(f"the table's child process ended with {code} at {started or 'its start'}: see its stderr")


# In the child: torch and triton are imported only here, after the parent has set the environment.


def child(compare: bool, brief: bool) -> int:
    """Runs the faults of each line of names, each announced before and reported after; SPOILED if the process is not
    fit for more."""
    from tests.planted.faults import FAULTS

    executor, target = _executor()
    for line in sys.stdin:
        names = json.loads(line)
        for fault in (fault for fault in FAULTS if fault.name in names):
            _say({"started": fault.name})
            signal.alarm(PATIENCE)  # ends the process, whatever it is doing
            row, spoiled = _row(fault, executor, target, compare, brief)
            signal.alarm(0)
            _say(asdict(row))
            if spoiled:
                return SPOILED
        _say({"finished": True})
    return 0


def _say(data: dict[str, Any]) -> None:
    print("@" + json.dumps(data), flush=True)


def _executor() -> tuple[Any, Any]:
    import torch

    from conformance import targets

    torch.set_num_threads(1)
    if os.environ.get("TRITON_INTERPRET") == "1":
        from conformance.execution.interpreter.executor import InterpreterExecutor

        return InterpreterExecutor(), None
    from conformance.execution.device.executor import DeviceExecutor

    return DeviceExecutor(0), targets.devices()[0]


def _row(fault: Any, executor: Any, target: Any, compare: bool, brief: bool) -> tuple[Row, bool]:
    """The row of ``fault``, judged twice if ``compare`` is set, and whether this process may be spoiled by it."""
    import time

    from tests.planted.planted_kernels import planted

    started = time.perf_counter()
    # all fills must run for a diagnosis, and to say that none of them fails or none has wrong numbers
    stops = brief and not (fault.cause or fault.equivalent or fault.memory)
    spoiled, case, baseline = False, fault.case, ()
    judged = functools.partial(_judged, executor=executor, compare=compare)
    fills = _fills(case, executor, target) if brief else []
    try:
        with planted(fault) as kernel:
            for number in range(len(fills)) if stops else (None,):
                later = number is None and fills and not executor.on_device  # a device may be spoiled then
                if not later:
                    baseline = _baseline(case, executor, target, compare, number)
                try:
                    plan = kernel.plan(case.problem, case.config, _target(case, target), case.variant, unchecked=True)
                    verdicts, diagnosis = judged(kernel, plan, number=number)
                    caught = tuple(verdict.check for verdict in verdicts if not verdict.passed)
                except Exception as error:
                    # the device's own errors are RuntimeErrors, and so far a mutant has no other way to raise one
                    spoiled, diagnosis = executor.on_device and isinstance(error, RuntimeError), ""
                    what = "device fault" if spoiled else "exception"
                    caught = (f"{what} {type(error).__name__}: {str(error).partition(chr(10))[0]}"[:120],)
                if later:
                    failing = {part for check in caught for part in check.split("/")}
                    first = next((place for place, name in enumerate(fills) if name in failing), 0)
                    baseline = _baseline(case, executor, target, compare, first)
                if baseline or caught:
                    break
    except RuntimeError as error:
        if executor.on_device and COMPILER_FAILURE in str(error):
            return Row(fault.name, (), not_compiled=str(error).partition("\n")[0]), False
        raise
    return Row(fault.name, caught, diagnosis, baseline, time.perf_counter() - started), spoiled


def _judged(kernel: Any, plan: Any, *, executor: Any, compare: bool, number: int | None) -> tuple[list[Any], str]:
    """The verdicts of the trial of ``plan``, and its diagnosis; with the ``number`` of a fill, those of this fill alone
    and no diagnosis."""
    from conformance.execution.trial import trial as trials
    from conformance.inputs.fills import applicable_fills

    if number is None:
        result = trials.trial(kernel, plan, executor, compare=compare)
        return result.verdicts, result.diagnosis
    names = [list(applicable_fills(plan.problem, kernel.contract(plan, executor.name)))[number]]
    with mock.patch.object(trials, "explain", return_value=""):
        result = trials.trial(kernel, plan, executor, compare=compare, names=names, place_in_case=number)
    return result.verdicts, ""


def _fills(case: Any, executor: Any, target: Any) -> list[str]:
    """The names of the fills of ``case``."""
    from conformance.inputs.fills import applicable_fills
    from conformance.kernels import catalogue

    kernel = catalogue.get(case.kernel)
    plan = kernel.plan(case.problem, case.config, _target(case, target), case.variant)
    return list(applicable_fills(plan.problem, kernel.contract(plan, executor.name)))


def _target(case: Any, device: Any) -> Any:
    """The device, or without one the target that the case asks for."""
    from conformance import targets

    return device or targets.find(case.target or "sm_90")


@functools.cache
def _baseline(case: Any, executor: Any, target: Any, compare: bool, number: int | None) -> tuple[str, ...]:
    """Returns the checks that the unchanged kernel fails on ``case``, or on the fill of this ``number``."""
    from conformance.kernels import catalogue

    kernel = catalogue.get(case.kernel)
    plan = kernel.plan(case.problem, case.config, _target(case, target), case.variant)
    verdicts, _ = _judged(kernel, plan, executor=executor, compare=compare, number=number)
    return tuple(f"{verdict.check}: {verdict.text}" for verdict in verdicts if not verdict.passed)


# Presentation


def summary(caught_by: Iterable[str]) -> str:
    """Failed checks by kind, each with its fills: "numerics (wide-A, wide-B), repeat (6 fills)"."""
    kinds: dict[str, list[str]] = {}
    for check in caught_by:
        kind, _, fill = (
            check.partition("/")
            if not check.startswith(("crash", "exception", "device fault", "timeout"))
            else (check, "", "")
        )
        kinds.setdefault(kind, [])
        if fill and fill not in kinds[kind]:
            kinds[kind].append(fill)
    texts = []
    for kind, fills in kinds.items():
        listed = ", ".join(fills) if len(fills) < 6 else f"all {len(fills)} fills"
        texts.append(f"{kind} ({listed})" if fills else kind)
    return ", ".join(texts)


def complaints(rows: Iterable[Row], device: bool) -> list[str]:
    """Returns the deviations from the table: a baseline that fails, a fault that is not caught, a cause that is not
    named."""
    from tests.planted.faults import FAULTS

    faults = {fault.name: fault for fault in FAULTS}
    texts = []
    for row in rows:
        fault = faults[row.fault]
        if row.not_compiled:
            continue
        if row.baseline:
            texts.append(f"{row.fault}: the unchanged kernel fails {fault.case.id}: {row.baseline}")
        if fault.equivalent and row.caught_by:
            texts.append(f"{row.fault} is said to change nothing ({fault.equivalent}), but {row.caught_by} failed")
        if not fault.equivalent and not row.caught_by:
            texts.append(f"{row.fault} was NOT CAUGHT on {fault.case.id}")
        if fault.memory and any(check.startswith("numerics/") for check in row.caught_by):
            texts.append(f"{row.fault} is said to leave the numbers alone, but {row.caught_by} failed")
        if any(check.startswith("exception") for check in row.caught_by):
            texts.append(f"{row.fault}: {row.caught_by} is not a finding: the changed source must run")
        if not device and fault.cause not in row.cause:
            texts.append(f"{row.fault}: cause {fault.cause!r} is expected, named was {row.cause!r}:\n{row.diagnosis}")
    return texts


def markdown(rows: Iterable[Row], names: Iterable[str]) -> str:
    """The table: fault | kernel and problem | caught by | named cause."""
    from tests.planted.faults import FAULTS

    done = {row.fault: row for row in rows}
    chosen = set(names)
    lines = ["| fault | group | case | caught by | named cause |", "|---|---|---|---|---|"]
    for fault in FAULTS:
        if fault.name not in chosen:
            continue
        row = done.get(fault.name)
        if row is None:
            here = "the interpreter" if fault.watch_only else "a device"
            needs = "another Triton" if fault.defect else fault.case.target or here
            caught, cause = f"not run: needs {needs}", ""
        elif row.not_compiled:
            caught, cause = f"not run: Triton does not compile the unchanged kernel ({row.not_compiled})", ""
        elif fault.equivalent:
            caught, cause = summary(row.caught_by) or "passes", f"equivalent: {fault.equivalent}"
        else:
            caught, cause = summary(row.caught_by) or "**NOT CAUGHT**", row.cause.replace("|", "\\|")
        lines.append(f"| {fault.name} | {fault.group} | {fault.case.id} | {caught} | {cause} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="faults or groups to run (default: all)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--brief", action="store_true", help="stop at the first fill that catches a fault without a cause"
    )
    parser.add_argument("--output", type=Path, help="write the Markdown table here too")
    parser.add_argument("--compare", action="store_true", help="judge on the device and on the CPU, which must agree")
    parser.add_argument("--verbose", action="store_true", help="print each diagnosis")
    options = parser.parse_args(arguments)
    if options.child:
        return child(options.compare, options.brief)
    from tests.planted.faults import FAULTS

    chosen = [f for f in FAULTS if not options.names or f.name in options.names or f.group in options.names]
    device = has_device()
    rows = []
    names = [fault.name for fault in chosen if fault.runs(device)]
    for row in run(names, device, compare=options.compare, brief=options.brief):
        rows.append(row)
        if options.verbose:
            print(
                f"== {row.fault} {row.seconds:.1f} s: {summary(row.caught_by) or 'not caught'}\n{row.diagnosis}\n",
                flush=True,
            )
    table = markdown(rows, [fault.name for fault in chosen])
    wrong = complaints(rows, device)
    killed, ran = sum(bool(row.caught_by) for row in rows), [row for row in rows if not row.not_compiled]
    table += f"\n\n{killed} of {len(ran)} runs failed a check; {len(wrong)} differ from what the table says."
    print(table)
    for complaint in wrong:
        print(f"\n- {complaint}")
    if options.output:
        options.output.write_text(table + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
