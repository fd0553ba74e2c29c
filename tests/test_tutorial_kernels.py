"""Kernels from outside are neither dropped nor blamed: those of a package in the style of Triton's tutorials."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from conformance.cases import kernel_answers, outside_kernels
from conformance.cases.each_kernel import first_plan
from conformance.cases.scenarios import ragged
from conformance.families.gemm.refusals import GemmLimits
from conformance.judging.plan_rules import expect_refusal
from conformance.kernels import catalogue
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import NoApplicableKernel, NotApplicable, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.machine import entry_point_loading, overdue
from conformance.machine.awake_time import AwakeTime
from conformance.plugin import outside
from conformance.problems import Layout
from conformance.records import CaseRecord, Reason, ReasonCode, Status, read_records
from conformance.suites import test_scaling
from conformance.suites.test_batching import STRIDES, strides_of
from conformance.targets import find
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(__file__).parent / "tutorial_style"
THREE = ("tutorial_matmul", "tutorial_attention", "tutorial_persistent")


def _python(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in ``folder`` with the package installed next to ours."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    path = os.pathsep.join([environment.pop("PACKAGE", str(PACKAGE)), str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {**inherited, "PYTHONPATH": path, **environment}
    command = [executable(), *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def _run(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "conformance.plugin", "--pyargs"]
    command += ["conformance.suites", "--tier", "quick", "--conformance-reruns", "0"]
    command += ["--run-dir", str(folder / "run"), *options]
    return _python(folder, *command, **environment)


def _statuses(folder: Path) -> dict[str, set[str]]:
    records = read_records(folder / "run").records
    reasons = {str(record.reason) for record in records if "numpy" in str(record.reason)}
    if reasons:
        pytest.skip(f"nothing can be judged without a device here: {reasons.pop()}")
    statuses: dict[str, set[str]] = defaultdict(set)
    for record in records:
        statuses[record.kernel or ""].add(record.status.value)
    return statuses


SWEEP = [option for name in THREE for option in ("--kernel", name)]
SWEEP += ["--no-gpu", "--target", "sm_90", "--suite", "config_space", "--suite", "random_problems"]


@pytest.mark.long(10)
def test_each_is_judged_and_none_changes_a_verdict_of_ours(tmp_path: Path) -> None:
    """The greedy kernel takes what ours refuse, which once failed the alignment cases of ours."""
    ours = ["--kernel", "mm_persistent_tma", "--suite", "alignment"]
    done = _run(tmp_path, *SWEEP, *ours, TUTORIAL_MORE="tutorial_greedy")
    statuses = _statuses(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses["mm_persistent_tma"] == {"pass", "not-run"}
    assert {name for name in THREE if "pass" in statuses[name]} == set(THREE)
    assert set().union(*(statuses[name] for name in THREE)) <= {"pass", "not-applicable", "not-run"}


@pytest.mark.long(12)
def test_a_fault_in_each_is_found(tmp_path: Path) -> None:
    faults = {"TUTORIAL_ACTIVATION": "leaky_relu", "TUTORIAL_SKIPPED_KEYS": "1", "TUTORIAL_SKIPPED_BLOCKS": "1"}
    done = _run(tmp_path, *SWEEP, **faults)
    statuses = _statuses(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert {name for name in THREE if "fail" in statuses[name]} == set(THREE)


def test_a_refusal_in_other_words_than_ours_is_no_fault(tmp_path: Path) -> None:
    options = ["--suite", "alignment", "--suite", "tma_store", "--kernel", "tutorial_contiguous"]
    done = _run(tmp_path, "--no-gpu", "--target", "sm_90", *options, TUTORIAL_MORE="tutorial_contiguous")
    assert _statuses(tmp_path) == {"tutorial_contiguous": {"pass", "not-applicable", "not-run"}}
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long(20)
@pytest.mark.parametrize(("activation", "status"), [("", "not-applicable"), ("leaky_relu", "fail")])
def test_a_config_that_does_not_fit_is_passed_over_as_a_tuner_does(
    tmp_path: Path, activation: str, status: str
) -> None:
    """Unless its numbers are wrong, which the interpreter shows on any target."""
    options = ["--suite", "config_space", "--kernel", "tutorial_oversized", "-k", "64x64x64-s6-w4"]
    more = {"TUTORIAL_MORE": "tutorial_oversized", "TUTORIAL_ACTIVATION": activation}
    _run(tmp_path, "--no-gpu", "--target", "gfx1201", *options, **more)
    assert _statuses(tmp_path) == {"tutorial_oversized": {status}}
    reasons = {str(record.reason) for record in read_records(tmp_path / "run").records if record.reason}
    assert all(reason.startswith("shared-memory (64x64x64-s6-w4): shared memory: ") for reason in reasons)
    assert bool(reasons) == (status == "not-applicable")


def test_a_kernel_without_a_case_fails_the_run_and_the_others_are_judged(tmp_path: Path) -> None:
    options = ["--suite", "matrix_units", "--kernel", "mm", "--kernel", "tutorial_persistent"]
    options += ["--kernel", "tutorial_raising"]
    done = _run(tmp_path, "--no-gpu", "--target", "sm_80", *options, TUTORIAL_MORE="tutorial_raising")
    assert _statuses(tmp_path) == {"mm": {"pass"}}
    assert done.returncode == 1, done.stdout + done.stderr
    assert "PROBLEM tutorial_persistent, by entry point 'tutorials'" in done.stdout
    assert "has no case on sm_80" in done.stdout
    assert "capability (tma): sm_80: the hardware lacks" in done.stdout
    assert "PROBLEM tutorial_raising, by entry point 'tutorials'" in done.stdout
    assert "it raised AttributeError: 'Gemm' object has no attribute 'no_such_field'" in done.stdout
    assert "[dtype fp16, bf16; config 128x64x64-s3-w4, 64x64x64-s2-w4; target sm_80;" in done.stdout


def test_no_case_of_ours_moves(tmp_path: Path) -> None:
    command = ["-m", "conformance", "list", "--tier", "quick", "--no-gpu", "--target", "sm_90", "--target", "gfx942"]
    more = {"TUTORIAL_MORE": "tutorial_greedy tutorial_raising"}
    beside = _python(tmp_path, *command, **more).stdout.splitlines()
    alone = _python(tmp_path, *command, PACKAGE=str(ROOT)).stdout.splitlines()
    assert alone
    assert [line for line in beside if "tutorial_" not in line] == alone
    assert {name for name in THREE for line in beside if f"[{name}-" in line} == set(THREE)


def test_check_kernel_shows_what_is_taken_and_refused_before_any_run(tmp_path: Path) -> None:
    done = _python(tmp_path, "-m", "conformance", "check-kernel", "tutorial_persistent", "--target", "sm_90")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0].startswith(
        "tutorial_persistent, by entry point 'tutorials' (tutorial_kernels:kernels) of tutorial-"
    )
    assert lines[1] == "takes"
    assert "  orders  row.col" in lines
    assert "  variant host.store.sms2" in lines
    assert any(line.startswith("  layout (a): a has strides") and "orders col.row, col.col" in line for line in lines)
    assert any(line.startswith("config_space") for line in lines)
    assert any(line.startswith("total") for line in lines)


def test_check_kernel_says_that_a_function_is_autotuned(tmp_path: Path) -> None:
    command = ["-m", "conformance", "check-kernel", "tutorial_wrapped", "--target", "sm_90"]
    done = _python(tmp_path, *command, TUTORIAL_MORE="tutorial_wrapped")
    assert done.returncode == 1
    assert "cannot be launched: TypeError: matmul is wrapped by triton.autotune" in done.stdout


def _raise(error: Exception) -> None:
    raise error


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (lambda: _raise(ModuleNotFoundError("No module named 'absent'")), "cannot be loaded: ModuleNotFoundError: No"),
        (lambda: _raise(Unprintable()), "cannot be loaded: Unprintable: "),
        (lambda: lambda: [3], "gave 3: it must name a conformance.kernels.kernel.Kernel"),
        (lambda: PointerGemm("my-mm", "mm", "mm"), "a kernel is called 'my-mm'; use letters"),
        (lambda: PointerGemm("mm", "mm", "mm"), "a kernel named 'mm' is already in the catalogue"),
        (lambda: sys.exit("no licence"), "cannot be loaded: SystemExit: no licence"),
        (lambda: itertools.count, "it gives more than 10000 things"),
        (lambda: lambda: None, "cannot be loaded: TypeError"),
        (lambda: time.sleep(60), "did not end within 0.2 s; it was at test_tutorial_kernels.py"),
        (lambda: lambda: time.sleep(60), "did not end within 0.2 s"),
    ],
)
def test_a_package_that_cannot_be_taken_is_named_and_the_others_are_taken(
    monkeypatch: pytest.MonkeyPatch, load: Callable[[], object], says: str
) -> None:
    package = SimpleNamespace(name="broken", version="2.0")
    entry = SimpleNamespace(name="first", value="broken_kernels:kernel", dist=package, load=load)
    kernel = PointerGemm("second", "mm", "mm")
    good = SimpleNamespace(name="second", value="good:it", dist=None, load=lambda: lambda: kernel)  # one, not a list
    kernels: dict[str, object] = {}
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [entry, good])
    monkeypatch.setattr(outside, "entry_points", lambda group: [entry])
    monkeypatch.setattr(catalogue, "catalogue", lambda: kernels.update(catalogue._loaded.__wrapped__()[0]))
    monkeypatch.setattr(overdue, "LIMIT_S", 0.2)
    monkeypatch.setattr(AwakeTime, "LOOK_S", 0.05)
    monkeypatch.setattr(entry_point_loading, "LEFT_OUT", {})
    left_out = outside.load_packages()
    assert list(left_out) == ["entry point 'first' (broken_kernels:kernel) of broken 2.0"]
    assert says in left_out[next(iter(left_out))]
    assert {"mm", "second"} <= set(kernels)
    settings = SimpleNamespace(kernels=(), case=None, case_list=None)
    failed = outside.Outside(settings, lambda: None, True, left_out).failed_cases()  # type: ignore[arg-type]
    assert list(failed) == ["entry_points::'first' (broken_kernels:kernel)"]


@pytest.fixture(scope="module")
def broken_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "broken_kernels.py").write_text("raise OSError('no licence')\n")
    facts = folder / "broken-2.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 2.0\n")
    (facts / "entry_points.txt").write_text("[conformance.kernels]\nfirst = broken_kernels:kernels\n")
    return folder


def test_a_broken_package_is_one_failed_case_of_a_run(tmp_path: Path, broken_package: Path) -> None:
    options = ["--suite", "matrix_units", "-k", "mm-fp16 and not _mm", "--no-gpu", "--target", "sm_80"]
    done = _run(tmp_path, *options, PACKAGE=str(broken_package))
    records = read_records(tmp_path / "run").records
    assert done.returncode == 1, done.stdout + done.stderr
    (failed,) = [record for record in records if record.status is Status.FAIL]
    assert failed.case == "entry_points::'first' (broken_kernels:kernels)"
    assert "of broken 2.0 cannot be loaded: OSError: no licence" in failed.diagnosis
    assert len(records) > 1


@pytest.mark.parametrize("command", [["kernels"], ["list", "--tier", "quick", "--suite", "matrix_units"]])
def test_a_broken_package_stops_no_command(tmp_path: Path, broken_package: Path, command: list[str]) -> None:
    done = _python(tmp_path, "-m", "conformance", *command, PACKAGE=str(broken_package))
    assert done.returncode == 0, done.stderr
    assert "mm" in done.stdout
    assert "left out: entry point 'first' (broken_kernels:kernels) of broken 2.0 cannot be loaded" in done.stderr


def test_a_kernel_that_does_not_answer_costs_its_own_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "LIMIT_S", 0.3)
    monkeypatch.setattr(AwakeTime, "LOOK_S", 0.05)
    monkeypatch.setattr(kernel_answers, "RAISED", {})
    kernel = PointerGemm("asleep", "mm", "mm")
    for _ in range(2):
        began = time.monotonic()
        with kernel_answers.contained(kernel):
            time.sleep(60)
        took = time.monotonic() - began
    assert "Overdue: a question to asleep did not end within 0.3 s" in kernel_answers.RAISED["asleep"]
    assert took < 5


# --- what suites ask --------------------------------------------------------------------------------------------------

HOPPER = find("sm_90")


class OneOrder(PointerGemm):
    """Says that it takes one order."""

    def __init__(self, operation: str = "mm") -> None:
        super().__init__("one_order", operation, operation)
        self.any_order = False


class Picky(PointerGemm):
    """Does not say that it takes one order, one variant and whole tiles only."""

    def refusal(self, plan: Plan) -> Reason | None:
        problem, config = plan.problem, plan.config
        if (problem.layout_a.order, problem.layout_b.order) != ("col", "row"):
            return Reason(ReasonCode.LAYOUT, "a", "A is stored as its transpose")
        if not plan.variant.static:
            return Reason(ReasonCode.CONFIG, "variant", "sizes are constants")
        if problem.M % config.block_m or problem.N % config.block_n or problem.K % config.block_k:
            return Reason(ReasonCode.EXTENT, "a", "whole tiles only")
        return super().refusal(plan)


def test_problems_have_the_order_that_a_kernel_says_it_takes() -> None:
    problem = OneOrder().problem("bf16", 32, 32, 32)
    assert (problem.layout_a.order, problem.layout_b.order) == ("row", "col")
    assert PointerGemm("mm", "mm", "mm").problem("bf16", 32, 32, 32).layout_b.order == "row"
    assert "interleaved-out" not in strides_of(OneOrder("bmm"))  # A is column-major there
    assert strides_of(PointerGemm("bmm", "bmm", "bmm")) == list(STRIDES)


def test_a_kernel_is_asked_in_the_way_that_it_takes() -> None:
    picky = Picky("picky", "mm", "mm")
    config = picky.configs[0]
    way = picky.fitted("bf16", config, HOPPER)
    assert way is not None
    assert (way.usual_shape, way.usual_orders, way.usual_variant.id) == ("whole-tiles", ("col", "row"), "static")
    assert ragged(way, config, "bf16", aligned=True) == (2 * config.block_m, 2 * config.block_n, 4 * config.block_k)
    problem = way.problem("bf16", *ragged(way, config, "bf16", aligned=False))
    assert way.plan(problem, config, HOPPER).variant.static
    assert picky.usual_variant == Variant()


def test_what_is_wrong_with_a_config_is_said_beside_what_is_wrong_with_the_usual_way() -> None:
    class Narrow(Picky):
        def refusal(self, plan: Plan) -> Reason | None:
            if not (reason := super().refusal(plan)) and plan.config == self.configs[1]:
                return Reason(ReasonCode.CONFIG, "block_n", "BLOCK_N is too large")
            return reason

    narrow = Narrow("narrow", "mm", "mm")
    narrow.configs = narrow.configs[:2]
    refusals = outside_kernels.answers(narrow, [HOPPER]).refusals
    (sentence,) = [text for text in refusals if "BLOCK_N is too large" in text]
    assert f"config {narrow.configs[1].id};" in sentence


def test_a_dtype_that_no_way_changes_has_no_way() -> None:
    assert Picky("picky", "mm", "mm").fitted("e5m2", PointerGemm("mm", "mm", "mm").configs[0], HOPPER) is None


def test_what_a_kernel_from_elsewhere_takes_does_not_answer_for_ours() -> None:
    problem = PointerGemm("mm", "mm", "mm").problem("bf16", 32, 32, 32, layout_a=Layout(offset=1))
    variant = Variant(tma_store=True)

    class Greedy(PointerGemm):
        def refusal(self, plan: Plan) -> Reason | None:
            return None

    greedy = Greedy("greedy", "mm", "mm")
    with pytest.raises(NoApplicableKernel):
        catalogue.select(problem, HOPPER, variant, catalogue.own_kernels())
    (plan,) = catalogue.select(problem, HOPPER, variant, {**catalogue.own_kernels(), "greedy": greedy})
    assert plan.kernel == "greedy"


@pytest.mark.parametrize(("reads", "right"), [("once", True), ("by its stride", False)])
def test_a_single_scale_that_is_read_by_its_stride_is_seen(reads: str, right: bool) -> None:
    """Whatever a kernel calls the stride among its arguments."""

    class Case(PointerGemm):
        def launch(self, plan: Plan, tensors: Mapping[str, torch.Tensor]) -> Launch:
            launch = super().launch(plan, tensors)
            step = 0 if reads == "once" else sum(tensors["scale_a"].stride())
            return dataclasses.replace(launch, arguments={**launch.arguments, "a_name_of_its_own": step})

    kernel, seen = Case("scaled_mm", "scaled_mm", "scaled_mm"), []
    recorder = SimpleNamespace(set=lambda **fields: None, verdict=lambda check, passed, text: seen.append(passed))
    test_scaling.test_single_scale_of_any_rank(recorder, kernel, HOPPER, "e4m3", kernel.configs[0], (1, 1))
    assert seen == [right]


def test_the_first_plan_that_a_kernel_takes() -> None:
    mm = catalogue.get("mm")
    problem = mm.example("bf16", mm.configs[0])
    assert first_plan(mm, problem, [HOPPER], first=-2).config == mm.configs[-2]
    with pytest.raises(NotApplicable, match="'store' was asked for"):
        first_plan(mm, problem, [HOPPER], [Variant(), Variant(tma_store=True)])


@pytest.mark.parametrize(
    ("name", "accepts", "verdicts", "judged"),
    [
        ("mm", False, [("refused", False)], 0),  # ours: the code is not that of the suite
        ("elsewhere", False, [("refused", True)], 0),
        ("elsewhere", True, [], 1),
    ],
)
def test_a_kernel_without_limits_may_take_what_ours_refuse(
    name: str, accepts: bool, verdicts: list[tuple[str, bool]], judged: int
) -> None:
    class Case(PointerGemm):
        limits = GemmLimits() if name == "mm" else None  # type: ignore[assignment]

        def refusal(self, plan: Plan) -> Reason | None:
            return None if accepts else Reason(ReasonCode.LAYOUT, "a", "never")

    kernel, seen, calls = Case(name, "mm", "mm"), [], []
    recorder = SimpleNamespace(
        set=lambda **fields: None,
        verdict=lambda check, passed, text: seen.append((check, passed)),
        proves_at_most=lambda level, why: None,
    )
    problem, config = kernel.example("bf16", kernel.configs[0]), kernel.configs[0]
    fields = {"config": config, "target": HOPPER, "code": ReasonCode.EXTENT}
    expect_refusal(lambda *given, **more: calls.append(given), recorder, kernel, problem, **fields)  # type: ignore[arg-type]
    assert (seen, len(calls)) == (verdicts, judged)


# --- what a run says --------------------------------------------------------------------------------------------------


def _outside(whole: bool) -> outside.Outside:
    looker = outside.Outside(SimpleNamespace(has_gpu=True), lambda: None, whole)  # type: ignore[arg-type]
    looker._names = frozenset({"elsewhere"})
    return looker


def test_a_kernel_that_refuses_all_its_cases_is_a_problem_of_a_whole_run() -> None:
    reason = Reason(ReasonCode.LAYOUT, "a", "never")

    def record(status: Status, kernel: str = "elsewhere") -> CaseRecord:
        return CaseRecord("case", "suite", status, kernel=kernel, problem={"id": "x"}, reason=reason)

    for whole, statuses, problems in [
        (True, [Status.NOT_APPLICABLE] * 2, 1),
        (False, [Status.NOT_APPLICABLE], 0),
        (True, [Status.NOT_APPLICABLE, Status.PASS], 0),
    ]:
        looker = _outside(whole)
        for status in statuses:
            looker.take(record(status))
            looker.take(record(Status.NOT_APPLICABLE, "mm"))
        assert len(looker.problems()) == problems
        assert all(
            "no case judged elsewhere" in problem and "layout (a): never" in problem for problem in looker.problems()
        )


def test_an_accelerator_that_nobody_knows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter must not take its place unless it was asked for. The environment stays as it was."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setattr(outside, "_SHOWN", {"CUDA_VISIBLE_DEVICES": None})
    seen = []

    def current(check_available: bool) -> object:
        seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
        return SimpleNamespace(type="xpu")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current)
    monkeypatch.setattr(outside, "entry_points", lambda group: [])
    settings = SimpleNamespace(has_gpu=False, without_gpu=False, gpus=SimpleNamespace(variable="CUDA_VISIBLE_DEVICES"))
    with pytest.raises(pytest.UsageError, match=r"accelerator of type 'xpu'.*--no-gpu"):
        outside.Outside(settings, lambda: None, True).look([])  # type: ignore[arg-type]
    assert seen == [None]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"
    without_gpu = SimpleNamespace(**{**vars(settings), "without_gpu": True})
    assert outside.Outside(without_gpu, lambda: None, True).look([]) == []  # type: ignore[arg-type]
