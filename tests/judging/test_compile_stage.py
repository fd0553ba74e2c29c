"""The compile stage: it plans what each case compiles, compiles that once, and owns up to what it missed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from collections import Counter
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from conformance.cases.case_table import Selection
from conformance.cases.lookup import CaseCall, CaseLookup, case_ids
from conformance.execution.compile.compilation import CompileRequest, CompileResult, Task
from conformance.heuristics.configs import Config
from conformance.judging import compile_stage, planner
from conformance.judging.compile_stage import CannotBePlanned, CannotBeUsed, CompileStage
from conformance.judging.planner import plan_case
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import get
from conformance.machine.gpus import Gpus
from conformance.plugin.run_faults import INFRASTRUCTURE
from conformance.records import Status
from conformance.targets import compile_targets, find
from conformance.user_files.expected_failures import ExpectedFailures
from tests.execution.sample_kernels import Sample
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[2]
SM90 = find("sm_90")
SETTINGS = Settings("quick", ("sm_90",), (), (), 0, None, Gpus(), None, 60.0, (), ExpectedFailures())
SELECTION = Selection((SM90,), "quick", asked_for_targets=True)


def planned(test, **values):
    return plan_case(SETTINGS, SELECTION, "test_x.py::test_x", CaseCall(test, values))


def example():
    kernel = get("mm")
    return kernel, kernel.example("bf16", kernel.configs[0]), kernel.configs[0]


def test_a_case_is_planned_up_to_the_first_result_that_it_needs():
    seen = []

    def test(conform, recorder, harness, again):
        kernel, problem, config = example()
        run = conform(kernel, problem, config=config, target=SM90)
        run.requires()
        seen.append(run.plan.problem)
        conform(kernel, problem, config=config, target=SM90, static=True)
        if again:
            assert run.trial.passed
        conform(kernel, problem, config=kernel.configs[1], target=SM90)

    assert len(planned(test, again=False)) == 3
    launches = planned(test, again=True)
    assert len(launches) == 2
    assert len({launch.key for launch in launches}) == 2
    assert [problem.id for problem in seen] == [example()[1].id] * 2


def test_what_a_case_asks_of_the_pool_is_planned_too():
    plan = None

    def test(harness, exact):
        kernel, problem, config = example()
        nonlocal plan
        plan = kernel.plan(problem, config, SM90)
        request = CompileRequest("conformance.kernels.catalogue:meta_launch", plan, SM90, deduplicate=not exact)
        harness.pool.submit(request).result()
        raise AssertionError("a result is needed")

    (shared,), (single,) = planned(test, exact=False), planned(test, exact=True)
    assert shared.key == single.key
    assert shared.identity != single.identity


#: A config whose estimate is past the limit of Hopper, and one whose estimate is not.
UNFIT, FIT = Config(128, 128, 64, 5, 8), Config(128, 128, 64, 2, 8)


def gauged(config, shape, dtype="tf32"):
    """The launches of a case of a sweep."""
    kernel = get("mm")
    problem, gauge = (kernel.example(dtype, config, each) for each in (shape, kernel.usual_shape))
    return planned(lambda conform: conform(kernel, problem, config=config, target=SM90, gauge=gauge))


def test_a_launch_that_may_not_fit_waits_for_the_gauge():
    measured, own = gauged(UNFIT, "many-k-blocks")
    assert (measured.unless_past, own.unless_past) == (None, measured.identity)
    for config, shape in ((UNFIT, get("mm").usual_shape), (FIT, "many-k-blocks")):
        assert [launch.unless_past for launch in gauged(config, shape)] == [None]
    assert gauged(UNFIT, get("mm").usual_shape)[0].key == measured.key


@pytest.mark.parametrize(("gauge", "past", "compiled"), [("copy", True, 1), ("copy", False, 2), ("broken", True, 2)])
def test_what_waits_is_compiled_unless_the_gauge_needs_too_much(monkeypatch, gauge, past, compiled):
    first, second = launches_of(Sample(gauge), Sample("copy", size=128))
    waiting = dataclasses.replace(second, unless_past=first.identity)
    monkeypatch.setattr(CompileStage, "_plan", lambda *words: words[-1].plans.update(a=[first, waiting]))
    monkeypatch.setattr(compile_stage, "over_memory", lambda resources, target: ["past"] if past else [])
    with CompileStage(1, 120.0) as stage:
        result = stage.compile(SETTINGS, SELECTION, ["a"])
    assert len(result.kernels) == len(result.plans["a"]) == compiled


def test_what_a_case_would_run_is_not_run_to_plan_it():
    ran = []

    def test(conform, recorder):
        kernel, problem, config = example()
        with recorder.timed("compile"):
            conform(kernel, problem, config=config, target=SM90)
        with recorder.timed("run"):
            ran.append(problem)

    assert len(planned(test)) == 1
    assert ran == []


def test_the_stage_says_how_far_it_is(monkeypatch):
    """Four kernels in two processes, one of which cannot be compiled."""
    work = compile_stage.Work("kernels compiled", 4)
    monkeypatch.setattr(work, "_began", work._began - 30)
    for status in (Status.PASS, Status.PASS, Status.COMPILE_ERROR):
        handle = Future()
        handle.add_done_callback(partial(compile_stage._compiled, work))
        handle.set_result(CompileResult(status, None, "", 0.0))
    assert work.look().counts == "3 of 4 kernels compiled, 1 did not compile, about 10 s left"


@pytest.mark.parametrize("error", [ZeroDivisionError, pytest.skip.Exception, pytest.fail.Exception])
def test_whatever_a_test_raises_ends_its_plan(error):
    def test(conform):
        kernel, problem, config = example()
        conform(kernel, problem, config=config, target=SM90)
        raise error("planted")

    assert len(planned(test)) == 1


def test_a_refusal_a_task_and_other_fixtures_leave_nothing_to_compile():
    kernel, problem, config = example()
    assert planned(lambda conform: conform(kernel, problem, config=config, target=SM90, tma_store=True)) == []
    assert planned(lambda harness: harness.pool.submit(Task("a:b", None, SM90))) == []
    assert planned(lambda inductor: inductor.anything()) == []
    assert plan_case(SETTINGS, SELECTION, "test_x.py::test_x", None) == []


def test_unrolled_products_and_large_tiles_come_first():
    kernel = get("mm")

    def work(dtype, config):
        problem = kernel.example(dtype, config)
        (launch,) = planned(lambda conform: conform(kernel, problem, config=config, target=SM90))
        return launch.work

    accepted = [config for config in kernel.configs if kernel.example_refusal("fp32", config, SM90) is None]
    small, *_, large = sorted(accepted, key=lambda config: config.tile[0] * config.tile[1] / config.num_warps)
    assert work("bf16", small) < work("bf16", large) < work("fp32", large)


def test_every_case_of_a_suite_is_found_and_planned():
    cases = list(case_ids(SELECTION, ["transposition", "dynamic_shapes"]))
    assert len(cases) > 20
    lookup = CaseLookup(SELECTION.targets)
    plans = {case: plan_case(SETTINGS, SELECTION, case, lookup(case)) for case in cases}
    assert sum(map(bool, plans.values())) > len(cases) // 2
    assert set(case_ids(SELECTION)) > set(cases)
    with pytest.raises(KeyError, match="no suite is called trnsposition: there are alignment"):
        list(case_ids(SELECTION, ["trnsposition"]))


def test_the_kernels_of_each_case_have_the_keys_of_its_plan():
    cases = tuple(case_ids(SELECTION, ["dynamic_shapes"]))[:4]
    plans = planner.plan_cases((SETTINGS, SELECTION, cases), SM90)
    keys = planner.kernel_keys((SETTINGS, SELECTION, cases), SM90)
    assert keys == {case: tuple(sorted({launch.key for launch in plan})) for case, plan in plans.items()}
    assert any(keys.values())


def launches_of(*samples: Sample) -> list[planner.PlannedLaunch]:
    requests = [CompileRequest("tests.execution.sample_kernels:launch", sample, SM90) for sample in samples]
    return [planner.PlannedLaunch(f"identity {n}", str(sample), 1.0, requests[n]) for n, sample in enumerate(samples)]


def test_each_kernel_is_compiled_once_and_a_failure_is_a_result(monkeypatch):
    good, bad = Sample("copy"), Sample("broken")
    plans = {"a": launches_of(good, bad), "b": launches_of(good)}
    monkeypatch.setattr(CompileStage, "_plan", lambda *words: words[-1].plans.update(plans))
    asked = Counter[object]()
    with CompileStage(1, 120.0) as stage:
        pool = stage._pool("nvidia with fp8")
        submit = pool.submit
        monkeypatch.setattr(pool, "submit", lambda request: asked.update([request.payload]) or submit(request))
        compiled = stage.compile(SETTINGS, SELECTION, ["a", "b"])
    artefact = compiled.kernels[str(good)].artefact
    assert artefact is not None
    assert list(artefact.stages["cubin"].parent.glob("*.code-sm_90-text.json")), "the code was described at once"
    assert asked == {good: 1, bad: 1}
    assert {key: result.status for key, result in compiled.kernels.items()} == {
        str(good): Status.PASS,
        str(bad): Status.COMPILE_ERROR,
    }
    assert set(compiled.results) == {"identity 0", "identity 1"}
    assert (compiled.failed, str(compiled).split(" in ")[0]) == ([str(bad)], "2 kernels for 2 cases")


def test_a_case_of_another_package_costs_no_other_case_its_plan():
    cases = list(case_ids(SELECTION, ["transposition"]))[:2]
    plans = planner.plan_cases((SETTINGS, SELECTION, ("test_vendor.py::test_theirs[x]", *cases)), SM90)
    assert plans["test_vendor.py::test_theirs[x]"] == []
    assert all(plans[case] for case in cases)


def test_a_request_without_a_plan_is_noted():
    def test(harness):
        harness.pool.submit(CompileRequest("tests.execution.sample_kernels:launch", Sample("copy"), SM90))

    assert [launch.work for launch in planned(test)] == [0.0]


def test_cases_that_cannot_be_planned_are_named():
    with CompileStage(1, 120.0) as stage:
        compiled = stage.compile(
            SETTINGS, SELECTION, ["test_transposition.py::test_transposed_operands[mm-bf16-x]"] * 2
        )
    assert (compiled.plans, compiled.kernels) == ({}, {})
    (problem,) = compiled.problems
    assert problem.startswith("2 cases from test_transposition.py::test_transposed_operands[mm-bf16-x] on could not be")


def test_kernels_of_cases_that_cannot_be_planned_are_not_told():
    case = "test_transposition.py::test_transposed_operands[mm-bf16-x]"
    with CompileStage(1, 120.0) as stage, pytest.raises(CannotBePlanned, match=r"1 cases from test_transposition\.py"):
        stage.kernels(SETTINGS, SELECTION, [case])


def test_kernels_of_nobody_are_refused(tmp_path):
    with (
        CompileStage(1, 120.0) as stage,
        pytest.raises(CannotBeUsed, match="has no kernels that 'conformance precompile'"),
    ):
        stage.compile(SETTINGS, SELECTION, [], tmp_path)


# Runs


def run(*words, folder: Path, cache: Path, planted: str = "") -> subprocess.CompletedProcess[str]:
    """A command of ``python -m`` with a cache of Triton's. ``planted`` is code that every process runs at its start."""
    folder.mkdir(exist_ok=True)
    if planted:
        (folder / "sitecustomize.py").write_text(planted)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1", "TRITON_CACHE_DIR": str(cache)}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [executable(), "-m", *words], env=environment, capture_output=True, text=True, timeout=500, check=False
    )


#: Eight cases or more, of one small tile on each target: a run of fewer has no compile stage.
TARGETS = [f"--target={target.id}" for target in compile_targets()]
CHOICE = ("--suite=matrix_units", "--suite=zero_size", "--tier=quick", *TARGETS, "--kernel", "int_mm")
SUITES = ("pytest", "-p", "conformance.plugin", "--pyargs", "conformance.suites", "-q", "-p", "no:cacheprovider")


@pytest.fixture(scope="module")
def precompiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("precompiled")
    words = ("precompile", *CHOICE, "--no-gpu", "--out", str(folder / "out"))
    done = run("conformance.cli", *words, folder=folder / "site", cache=folder / "cache")
    assert done.returncode == 0, done.stderr
    assert "0 were compiled before, 0 failed" in done.stdout
    return folder / "out"


def test_a_run_takes_what_was_precompiled_and_compiles_nothing(precompiled: Path, tmp_path: Path) -> None:
    words = (*SUITES, *CHOICE, f"--compiled={precompiled}", f"--run-dir={tmp_path / 'run'}", "-n", "1")
    done = run(*words, folder=tmp_path / "site", cache=tmp_path / "cache")
    assert done.returncode == 0, done.stdout
    facts = dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", (tmp_path / "run" / "summary.md").read_text(), re.MULTILINE))
    line = facts["compile stage"]
    kernels = int(line.split()[0])
    assert kernels > 2
    assert f"{kernels} were compiled before, 0 failed" in line
    began, ended = (float(word) for word in facts["cases"].split() if word[0].isdigit())
    assert 0 < began < ended < json.loads((tmp_path / "run" / "run.json").read_text())["wall_s"] + 1
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"records.jsonl.gz", "run.json"}
    assert not [*(tmp_path / "run").glob("asked-*"), *(tmp_path / "run").glob("compiled*")]


def test_a_kernel_that_was_not_precompiled_is_compiled_and_reported(precompiled: Path, tmp_path: Path) -> None:
    words = (*SUITES, *CHOICE, "--suite=dynamic_shapes", f"--compiled={precompiled}", f"--run-dir={tmp_path / 'run'}")
    done = run(*words, "-n", "0", "--compile-only", folder=tmp_path / "site", cache=tmp_path / "cache")
    assert done.returncode == INFRASTRUCTURE
    assert f"kernels are not in {precompiled} and were compiled: " in done.stdout


FORGETFUL = """
import dataclasses, importlib.abc, importlib.util, sys

class Plant(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "conformance.judging.planner":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def plant(module):
            load(module)
            plan = module.plan_case
            module.plan_case = lambda *asked: [dataclasses.replace(one, identity="another") for one in plan(*asked)]

        spec.loader.exec_module = plant
        return spec

sys.meta_path.insert(0, Plant())
"""


def test_what_the_stage_forgets_and_what_it_makes_in_vain_is_a_problem(precompiled: Path, tmp_path: Path) -> None:
    words = (*SUITES, *CHOICE, f"--run-dir={tmp_path / 'run'}", "-n", "0")
    done = run(*words, folder=tmp_path / "site", cache=precompiled.parent / "cache", planted=FORGETFUL)
    assert done.returncode == INFRASTRUCTURE, done.stdout
    assert "the compile stage missed gemm_integer for sm_80: the case compiled it" in done.stdout
    assert re.search(r"the compile stage compiled unused kernels for \d+ cases, first test_\w+.py::", done.stdout)


def test_fields_of_settings_can_be_sent_to_a_compile_process() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(SETTINGS)) == dataclasses.replace(SETTINGS)
