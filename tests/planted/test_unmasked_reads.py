"""Each masked load of the kernels, without its mask, reads outside the operands: the interpreter's watch tells all."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass

import pytest

from tests.kernels.interpreter_runs import in_interpreter

#: So many cases at most run for one line of a load. A load of one text may stand in two places, and one stays inside.
TRIES = 4
#: Loads that no case of the planted faults reaches: of whole blocks of K, of documents backward, and the like.
UNREACHED = 8


@dataclass(frozen=True)
class Unmasked:
    """A load of the kernels' ``file``: its text, the text without mask, and its lines."""

    file: str
    old: str
    new: str
    count: int
    lines: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())}"


@functools.cache
def masked_loads() -> list[Unmasked]:
    """Every ``tl.load`` with a mask in the device code; those of one text in one file are one."""
    from tests.planted.planted_kernels import SOURCE

    loads: dict[tuple[str, str], Unmasked] = {}
    for path in sorted((SOURCE / "device").glob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "tl.load":
                continue
            old = ast.get_source_segment(text, node) or ""
            lines = {f"{path.name}:{line}" for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
            more = [keyword for keyword in node.keywords if keyword.arg not in ("mask", "other")]
            if len(more) < len(node.keywords):
                if (path.name, old) in loads:
                    lines |= loads[path.name, old].lines
                new = ast.unparse(ast.Call(node.func, node.args, more))
                loads[path.name, old] = Unmasked(path.name, old, new, text.count(old), frozenset(lines))
    return list(loads.values())


def results() -> tuple[list[str], dict[str, str]]:
    """Returns the findings about the unchanged kernels, and those about each masked load without its mask. The latter
    are empty if there are none, "unreached" if no case runs the load."""
    from unittest import mock

    import torch

    from conformance import targets
    from conformance.execution.interpreter import accesses as interpreter_accesses
    from conformance.execution.interpreter.executor import InterpreterExecutor
    from conformance.execution.trial.trial import trial
    from conformance.inputs.fills import applicable_fills
    from conformance.kernels import catalogue
    from tests.planted.cases import Case, Edit, Fault
    from tests.planted.faults import FAULTS
    from tests.planted.planted_kernels import planted

    torch.set_num_threads(1)
    executor = InterpreterExecutor()

    def strays(kernel, case: Case) -> list[str]:
        target = targets.find(case.target or "sm_90")
        plan = kernel.plan(case.problem, case.config, target, case.variant, unchecked=True)
        first, *_ = applicable_fills(case.problem, kernel.contract(plan, executor.name))
        verdicts = trial(kernel, plan, executor, names=[first], place_in_case=1).verdicts  # not the first: one run
        return [verdict.text for verdict in verdicts if verdict.check.startswith("memory/")]

    faults = [fault for fault in FAULTS if fault.runs(device=False)]
    cases = {(fault.case.kernel, fault.case.problem): fault.case for fault in faults}.values()
    reached: dict[str, list[Case]] = {}
    unchanged: list[str] = []
    judge = interpreter_accesses.Accesses.judge
    for case in cases:
        lines: set[str] = set()

        def traced(self, what, *arguments, lines=lines):
            lines.add(interpreter_accesses.kernel_line().split(" (called at")[0])
            return judge(self, what, *arguments)

        with (
            mock.patch.object(interpreter_accesses.Accesses, "judge", traced),
            mock.patch.object(interpreter_accesses, "_BETWEEN", (*interpreter_accesses._BETWEEN, __file__)),
        ):
            unchanged += strays(catalogue.get(case.kernel), case)
        for line in lines:
            reached.setdefault(line, []).append(case)
    told: dict[str, str] = {}
    for number, load in enumerate(masked_loads()):
        told[load.name] = "" if load.lines & reached.keys() else "unreached"
        for case in [case for line in sorted(load.lines) for case in reached.get(line, [])[:TRIES]]:
            edit = Edit(f"device/{load.file}", load.old, load.new, load.count)
            with planted(Fault(f"unmasked_{number}_{case.kernel}", edit, case)) as kernel:
                text = " ".join(text for text in strays(kernel, case) if f"{load.file}:" in text and " loads " in text)
            if text:
                told[load.name] = text
                break
    return unchanged, told


@pytest.mark.long(18)
def test_each_load_without_its_mask_is_told():
    unchanged, told = in_interpreter(results)
    assert unchanged == []
    assert [name for name, text in told.items() if not text] == []
    assert len([name for name, text in told.items() if text == "unreached"]) == UNREACHED
    assert len(told) == len(masked_loads())
