"""In a project without our suites the plugin does nothing; where they are, it prepares the process."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

ALIEN = """
import os, sys

def pytest_addoption(parser):
    for name in ("--seed", "--target", "--tier", "--kernel", "--gpus"):  # other projects have options of these names
        parser.addoption(name)

def pytest_configure(config):
    config.before = dict(os.environ)
"""
ALIEN_TEST = """
import os, sys
OURS = {"TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"}
def test_nothing_changed(pytestconfig, request):
    assert not OURS & set(os.environ)
    assert "torch" not in sys.modules and "triton" not in sys.modules
    assert pytestconfig.pluginmanager.hasplugin("conformance.plugin")
    assert not [name for name, _ in pytestconfig.pluginmanager.list_name_plugin() if name.startswith("conformance-")]
    assert pytestconfig.getoption("--seed") in (None, "5")
"""


@pytest.mark.usefixtures("new_python")
@pytest.mark.parametrize(
    "arguments", [(), (".",), ("test_it.py", "--seed", "5"), ("-n", "auto"), ("--dist=loadfile", "-n1")]
)
def test_alien_project(bare, arguments, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "3")  # what xdist itself then answers
    (bare.path / "conftest.py").write_text(ALIEN)
    (bare.path / "test_it.py").write_text(ALIEN_TEST)
    # other plugins that happen to be installed leave files of their own
    result = bare.run("-p", "no:cacheprovider", "-p", "no:benchmark", *arguments)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*conformance:*")
    if "auto" in arguments:
        result.stdout.fnmatch_lines(["*3 workers*"])
    pytesters_own = {"conftest.py", "test_it.py", "__pycache__", "runpytest-0", "runpytest-current", "stdout", "stderr"}
    assert {path.name for path in bare.path.iterdir()} <= pytesters_own


@pytest.mark.parametrize("look", ["--collect-only", "--fixtures", "--help", "--version"])
def test_looking_leaves_no_files(project, look):
    project.suite("good", "def test_a(recorder): pass\n")
    assert project.run(look).ret == 0
    assert not (project.path / "reports").exists()


ENVIRONMENT = """
import os, sys
def test_environment(recorder):
    names = ("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET", "OMP_NUM_THREADS")
    recorder.set(observed={name: os.environ.get(name) for name in names})
    recorder.verdict("x", "torch" not in sys.modules)
@pytest.mark.parametrize("i", range(3))
def test_more(recorder, i):
    recorder.set(observed={"gpu": os.environ.get("CUDA_VISIBLE_DEVICES")})
    recorder.verdict("x", True)
    time.sleep(0.1)
"""


@pytest.mark.usefixtures("new_python")
def test_without_a_gpu_the_interpreter_is_chosen(project):
    project.suite("env", ENVIRONMENT)
    assert project.run().ret == 0
    observed = project.records["test_environment"].observed
    assert (observed["TRITON_INTERPRET"], observed["CUDA_VISIBLE_DEVICES"]) == ("1", "-1")
    assert int(observed["OMP_NUM_THREADS"]) >= 1
    assert project.info.tier == "quick"


@pytest.mark.usefixtures("new_python")
def test_each_worker_is_bound_to_a_gpu_of_the_list_that_is_set(project, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa,GPU-bbbb,GPU-cccc")
    project.suite("env", ENVIRONMENT)
    assert project.run("-n", "2", "--gpus", "2").ret == 0
    bound = {
        record.worker: (record.gpu, record.observed.get("gpu"))
        for name, record in project.records.items()
        if "more" in name
    }
    assert set(bound.values()) <= {("GPU-aaaa", "GPU-aaaa"), ("GPU-bbbb", "GPU-bbbb")}
    assert len(bound) == len(set(bound.values())) == 2
    assert project.records["test_environment"].observed["TRITON_INTERPRET"] is None
    assert (project.info.tier, project.info.gpus) == ("default", ("GPU-aaaa", "GPU-bbbb"))


def test_replacement_of_a_dead_worker_gets_its_gpu(project):
    project.suite("env", "def test_bad(recorder): os._exit(1)\n" + ENVIRONMENT.replace("range(3)", "range(8)"))
    assert project.run("-n", "2", "--gpus", "2").ret == 1
    gpus = {record.worker: record.gpu for record in project.reading.records}
    dead = project.records["test_bad"].worker
    survivor = {"gw0": "gw1", "gw1": "gw0"}[dead]
    assert gpus.get("gw2", gpus[dead]) == gpus[dead] != gpus[survivor]


@pytest.mark.parametrize("mode", ["loadscope", "loadfile", "loadgroup", "worksteal", "each"])
def test_modes_that_lose_cases_are_refused(project, mode):
    project.suite("good", "def test_a(recorder): pass\n")
    project.refused(f"*--dist={mode}*use --dist=load*", "-n", "1", f"--dist={mode}")


def test_slow_cases_are_shared_out_where_nothing_is_interpreted(project):
    body = "    time.sleep(i < 4)\n    recorder.verdict('x', True)\n"
    values = "[pytest.param(i, marks=[pytest.mark.slow] * (i < 4)) for i in range(32)]"
    project.suite("slow", f"@pytest.mark.parametrize('i', {values})\ndef test_a(recorder, i):\n{body}")
    assert project.run("-n", "2", "--compile-only").ret == 0
    slowest = sorted(project.reading.records, key=lambda record: -record.durations["total"])[:4]
    assert len({record.worker for record in slowest}) == 2


def test_triton_imported_too_early_is_an_error(project):
    project.suite("good", "def test_a(recorder): pass\n")
    (project.path / "conftest.py").write_text("import sys, types\nsys.modules['triton'] = types.ModuleType('triton')\n")
    project.refused("*triton was imported before the conformance plugin*TRITON_INTERPRET=1*")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "1", "--no-gpu"), "*--no-gpu contradicts --gpus 1*"),
        (("--gpus", "-2"), "*--gpus -2: a number of GPUs, 0 or more*"),
        (("--case-timeout", "0"), "*--case-timeout 0: seconds from above 0 to *"),
        (("--tier", "ful"), "*--tier ful: there is no such tier; did you mean full[?]*"),
        (("--seed", "x"), "ERROR: argument --seed: invalid int value: 'x'"),
        (("--teir", "quick"), "ERROR: --teir: there is no such option; did you mean --tier[?]"),
        (("--compiled", "nowhere"), "*nowhere: there is no such folder; 'conformance precompile' makes it*"),
    ],
)
def test_bad_options(project, arguments, message):
    project.suite("good", "def test_a(recorder): pass\n")
    project.refused(message, *arguments)


def test_auto_counts_our_workers(project, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "7")
    (project.path / "conftest.py").write_text("import conformance.plugin\nconformance.plugin.core_count = lambda: 2\n")
    project.suite(
        "good", "@pytest.mark.parametrize('i', range(3))\ndef test_a(recorder, i): recorder.verdict('x', True)\n"
    )
    result = project.run("-n", "auto")
    assert result.ret == 0
    assert project.info.workers == 2
