"""Faults planted in generated code: each must be caught by the checks that the fixture ``inductor`` runs.

A child process with Triton's interpreter drives the suites' own tests. What they compile is edited in the compile
process before it is compiled to a binary, so that source, binary and numbers all have the fault.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.inductor.program import Generated, Program
from conformance.targets import Target

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Fault:
    """One edit of generated modules: ``pattern`` (a regular expression) becomes ``replacement``, which changes it.

    ``case`` names the function of the tests' module that drives a suite with ``inductor`` and a target, and ``caught``
    the beginnings of the names of checks that must fail; "raises X" stands for an exception.
    """

    name: str
    case: str
    pattern: str
    replacement: str
    caught: tuple[str, ...]

    def edit(self, module: str) -> str:
        """``module`` with the fault. Raises ValueError if that is what it was."""
        edited = re.sub(self.pattern, self.replacement, module, flags=re.MULTILINE)
        if edited == module:
            raise ValueError(f"{self.name}: {self.pattern!r} changes nothing in the generated module")
        return edited


# --- in the compile process -------------------------------------------------------------------------------------------


def generate_edited(payload: tuple[Program, Fault | None], target: Target) -> Generated:
    """What is generated for the program, its modules edited before their kernels are compiled."""
    from unittest import mock

    from conformance.inductor import generate as module

    program, fault = payload
    compile_program = module._compile

    def edited(asked: Program, seen: Any) -> Any:
        failure = compile_program(asked, seen)
        if fault is not None:
            seen.modules[:] = [fault.edit(text) for text in seen.modules]
        return failure

    with mock.patch.object(module, "_compile", edited):
        return module.generate(program, target)


# --- in the child with the interpreter --------------------------------------------------------------------------------


def failed_checks(fault: Fault | None, case: str, tests: Any, pool: Any) -> list[str]:
    """The checks that fail, without the config in their names, where ``case`` of the module ``tests`` meets the
    fault."""
    from unittest import mock

    from conformance.execution.compilation import Task
    from conformance.inductor import provider
    from conformance.plugin.generated import Inductor
    from conformance.plugin.judging import Harness
    from conformance.plugin.recording import CaseRecorder, TypedSkip
    from conformance.records import ConformanceFailure
    from conformance.targets import find

    def planted(program: Program, target: Target, pool: Any) -> provider.Compiled:
        task = Task(f"{__name__}:generate_edited", (program, fault), target)
        result = pool.submit(task).result()
        if result.value is None:
            raise RuntimeError(f"{result.status}: {result.reason}: {result.error}")
        return provider.Compiled(program, result.value)

    chosen: Any = SimpleNamespace(tier="quick", targets=("sm_90",), has_gpu=False, compile_only=False, seed=0)
    harness, recorder = Harness(chosen), CaseRecorder(f"planted::{case}")
    harness.pool = pool
    raised = []
    with mock.patch.object(provider, "compile_program", planted):
        try:
            getattr(tests, case)(Inductor(harness, recorder), find("sm_90"))
        except ConformanceFailure:
            pass  # its verdicts are in the record
        except TypedSkip as skip:
            raised = [f"skipped {skip.reason}"]
        except Exception as error:
            traceback.print_exc()
            raised = [f"raises {type(error).__name__}"]
    failed = [verdict.check.partition("@")[0] for verdict in recorder.verdicts if not verdict.passed]
    assert recorder.verdicts or raised, f"{case} judged nothing"
    return list(dict.fromkeys([*failed, *raised]))


def table(name: str) -> dict[str, list[str]]:
    """Fault or healthy case -> the checks that fail, for the tests' module ``name``."""
    import torch

    from conformance.execution.compilation import CompilePools

    torch.set_num_threads(1)
    tests = importlib.import_module(name)
    pool = CompilePools(1, 120.0)
    try:
        found = {case: failed_checks(None, case, tests, pool) for case in sorted({f.case for f in tests.FAULTS})}
        found |= {fault.name: failed_checks(fault, fault.case, tests, pool) for fault in tests.FAULTS}
    finally:
        pool.close()
    return found


# --- in the test ------------------------------------------------------------------------------------------------------


def planted_table(name: str) -> dict[str, list[str]]:
    """:func:`table` of a child process."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    code = f"import json; from {__name__} import table; print(json.dumps(table({name!r})))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def missed(faults: Sequence[Fault], found: Mapping[str, Sequence[str]]) -> str:
    """A table of the faults, each with the checks that caught it, if one of them was not caught as it must be."""
    rows, wrong = [], False
    for fault in faults:
        lacking = [name for name in fault.caught if not any(check.startswith(name) for check in found[fault.name])]
        wrong |= bool(lacking)
        rows.append(
            f"| {fault.name} | {', '.join(found[fault.name]) or 'passes'} | "
            f"{'lacks ' + ', '.join(lacking) if lacking else ''} |"
        )
    return "\n".join(["", "| fault | caught by | |", "|---|---|---|", *rows]) if wrong else ""


# --- the faults of the product with descriptors -----------------------------------------------------------------------


def stored_by_descriptor(inductor: Any, target: Target) -> None:
    gemm = importlib.import_module("conformance.suites.test_inductor_gemm")
    gemm.test_mm_persistent_tma(inductor, target, order=("row", "row"), dynamic=False, store=True)


def stored_by_pointer(inductor: Any, target: Target) -> None:
    gemm = importlib.import_module("conformance.suites.test_inductor_gemm")
    gemm.test_mm_persistent_tma(inductor, target, order=("row", "col"), dynamic=False, store=False)


def with_longer_rows(inductor: Any, target: Target) -> None:
    gemm = importlib.import_module("conformance.suites.test_inductor_gemm")
    gemm.test_mm_persistent_tma_padded(inductor, target, order=("row", "row"), dynamic=False)


def on_two_multiprocessors(inductor: Any, target: Target) -> None:
    """Four tiles at least for two programs, told as in the test of the carveout."""
    from conformance.inductor import vocabulary
    from conformance.problems import mm

    settings = {"triton.enable_persistent_tma_matmul": True}
    template = vocabulary.template("persistent TMA")
    left = 2
    carveout = (target.limits.multiprocessors or 0) - left
    problem = mm(168, 504, 88, "fp16")
    for run in inductor.forced(problem, target, template, persistent=True, carveout=carveout, settings=settings):
        run.exactly(1, "NUM_SMS", rf"NUM_SMS : tl\.constexpr = {left}\b")


def plain(inductor: Any, target: Target) -> None:
    from conformance.inductor import vocabulary
    from conformance.problems import mm

    for _ in inductor.forced(
        mm(40, 56, 88, "fp16"), target, vocabulary.template("mm"), descriptions="BLOCK_K=(64|128)"
    ):
        pass


STORE = r"^( *)tma_descriptor0\.store\(\[xoffset, yoffset\], (.*)\)$"
BY_POINTER = r"\1tl.store(out_ptr0 + xindex * 248 + yindex, \2, xmask & ymask)"
WITH_STORE = ("source/descriptor stores", "codegen/requires/TMA_STORE")

STORE_POINTERS = r"^( *)tl\.store\(out_ptr0 \+ .*, acc, \w+\)$"
BY_DESCRIPTOR = (
    r"\1tma_descriptor0 = tl.make_tensor_descriptor(out_ptr0, shape=[168, 248], strides=[248, 1], "
    r"block_shape=[BLOCK_M, BLOCK_N])\n"
    r"\1tma_descriptor0.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc.to(tl.float16))"
)

LOAD_A = r"tl\.load_tensor_descriptor\(\n *a_desc,\n.*\n *\)"
LOAD_A_BY_POINTER = (
    "tl.load(A + (rm + tl.arange(0, BLOCK_M))[:, None] * 88 + (rk + tl.arange(0, BLOCK_K))[None, :], "
    "mask=(rm + tl.arange(0, BLOCK_M) < M)[:, None] & (rk + tl.arange(0, BLOCK_K) < K)[None, :], other=0.0)"
)


def constant(name: str, value: str) -> str:
    return f"{name} : tl.constexpr = {value}"


FAULTS = (
    Fault("no store", "stored_by_descriptor", STORE, r"\1pass", (*WITH_STORE, "numerics")),
    Fault(
        "store through pointers",
        "stored_by_descriptor",
        STORE,
        BY_POINTER,
        (*WITH_STORE, "source/pointer stores", "codegen/forbids/POINTER_STORE"),
    ),
    Fault(
        "descriptor store that was not asked for",
        "stored_by_pointer",
        STORE_POINTERS,
        BY_DESCRIPTOR,
        ("source/descriptors", "source/descriptor stores", "source/pointer stores", "codegen/forbids/TMA_STORE"),
    ),
    Fault(
        "store eight columns further",
        "stored_by_descriptor",
        r"\[xoffset, yoffset\]",
        "[xoffset, yoffset + 8]",
        ("numerics",),
    ),
    Fault(
        "A's layout flag",
        "stored_by_pointer",
        constant("A_ROW_MAJOR", "True"),
        constant("A_ROW_MAJOR", "False"),
        ("raises",),
    ),
    Fault(
        "B's layout flag",
        "stored_by_pointer",
        constant("B_ROW_MAJOR", "False"),
        constant("B_ROW_MAJOR", "True"),
        ("raises",),
    ),
    Fault("packed stride of A", "with_longer_rows", r"stride_am = 96$", "stride_am = 88", ("numerics",)),
    Fault("packed stride of B", "with_longer_rows", r"stride_bk = 256$", "stride_bk = 248", ("numerics",)),
    Fault("A loaded through pointers", "stored_by_pointer", LOAD_A, LOAD_A_BY_POINTER, ("source/descriptor loads",)),
    Fault(
        "NUM_SMS too large",
        "on_two_multiprocessors",
        constant("NUM_SMS", "2"),
        constant("NUM_SMS", "3"),
        ("source/NUM_SMS", "numerics"),
    ),
    Fault(
        "NUM_SMS too small",
        "on_two_multiprocessors",
        constant("NUM_SMS", "2"),
        constant("NUM_SMS", "1"),
        ("source/NUM_SMS",),
    ),
    Fault(
        "grid of one program",
        "on_two_multiprocessors",
        ", 2, 1, 1, stream=",
        ", 1, 1, 1, stream=",
        ("grid", "numerics"),
    ),
    Fault("k's mask of A", "plain", r"(tl\.load\(A \+ .*), mask=a_mask, other=0\.0\)", r"\1)", ("numerics",)),
    Fault("last row of the store's mask", "plain", r"\(idx_m < M\)", "(idx_m < M - 1)", ("numerics",)),
    Fault("stride of A", "plain", r"idx_n \+ 88\*idx_m", "idx_n + 87*idx_m", ("numerics",)),
    Fault("other warps than forced", "plain", r"^num_warps=\d+,$", "num_warps=1,", ("forced",)),
)


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return planted_table(__name__)


def test_healthy_code_passes(found: dict[str, list[str]]) -> None:
    healthy = {fault.case: found[fault.case] for fault in FAULTS}
    assert healthy == {case: [] for case in healthy}


def test_every_fault_is_caught(found: dict[str, list[str]]) -> None:
    text = missed(FAULTS, found)
    assert not text, text


def test_a_fault_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="changes nothing in the generated module"):
        FAULTS[0].edit("def call(args): ...")


def test_the_table_shows_what_was_missed() -> None:
    fault = FAULTS[0]
    assert missed([fault], {fault.name: [*WITH_STORE, "numerics/randn"]}) == ""
    assert "| no store | passes | lacks source/descriptor stores" in missed([fault], {fault.name: []})
