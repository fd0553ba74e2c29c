"""A run fails unless every selected case was recorded."""

from __future__ import annotations

import pytest

from conformance.plugin.run_faults import INFRASTRUCTURE
from tests.plugin.conftest import ROOT

pytest_plugins = ["pytester"]

GOOD = """
@pytest.mark.parametrize("i", range(4))
def test_good(recorder, i): recorder.verdict("x", True)
"""

TAMPER = """
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"): return
    for file in (session.config.rootpath / "reports").glob("*/records-*.jsonl"):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join({tampered}))
"""

TAMPERINGS = {
    "lost": ("[x for x in lines if 'good[2]' not in x]", ["1 selected but not recorded: test_good.py::test_good[[]2]"]),
    "twice": ("[x for x in lines for _ in range(1 + ('good[2]' in x))]", ["1 recorded more than once: *good[[]2]"]),
    "strange": ("[x.replace('good[2]', 'good[9]') for x in lines]", ["*not recorded*", "1 recorded but not selected*"]),
    "torn": ("[x if 'good[2]' not in x else x[:-20] for x in lines[:3]]", ["*not a line of JSON*", "*not recorded*"]),
}


@pytest.mark.parametrize(
    ("tampering", "workers"), [*((tampering, ()) for tampering in TAMPERINGS), ("lost", ("-n", "2"))]
)
def test_difference_fails_the_session(project, tampering, workers):
    expression, expected = TAMPERINGS[tampering]
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(TAMPER.format(tampered=expression))
    result = project.run(*workers)
    assert result.ret == INFRASTRUCTURE
    assert {fault.kind for fault in project.info.faults} == {"records"}
    result.stdout.fnmatch_lines([f"PROBLEM {text}" for text in expected])
    assert len(project.info.problems) == len(expected)


def test_stopping_early_leaves_cases_missing(project, workers):
    project.suite("bad", "@pytest.mark.parametrize('i', range(9))\ndef test_bad(recorder, i): assert False\n")
    result = project.run("-x", *workers)
    assert result.ret != 0
    assert "selected but not recorded" in project.info.problems[0]


def test_deselected_cases_are_not_missed(project):
    project.suite("good", GOOD)
    assert project.run("-k", "good and 2").ret == 0
    assert list(project.records) == ["test_good[2]"]
    assert project.info.selected == 1


@pytest.mark.parametrize(
    ("identifier", "message"),
    [("/usr/lib/x", "*the same on every machine*/usr/lib/x*"), ("at 0x7f0012ab", "*the same on every machine*")],
)
def test_unstable_ids_are_refused(project, identifier, message):
    project.suite("bad", f"@pytest.mark.parametrize('i', [1], ids=['{identifier}'])\ndef test_a(i): pass\n")
    project.refused(message)


def test_duplicate_ids_are_refused(project, workers):
    """Two suites directories with a file of the same name."""
    project.suite("good", GOOD)
    (project.path / "more").mkdir()
    (project.path / "more" / "test_good.py").write_text((project.path / "suites" / "test_good.py").read_text())
    ini = (project.path / "pytest.ini").read_text().replace("suites = suites", "suites = suites more")
    (project.path / "pytest.ini").write_text(ini)
    project.refused(
        "*case ids must be unique*test_good.py::test_good*", "suites", "more", "--import-mode=importlib", *workers
    )


def test_one_case_by_its_id(project, workers):
    project.suite("good", GOOD)
    assert project.run("--conformance-case", "test_good.py::test_good[3]", *workers).ret == 0
    assert list(project.records) == ["test_good[3]"]


def test_unknown_case_id(project, workers):
    project.suite("good", GOOD)
    message = "*--conformance-case test_good.py::test_good[[]7]: no case of --tier quick has that*"
    project.refused(message, "--conformance-case", "test_good.py::test_good[7]", *workers)


KERNELS = """
@pytest.mark.parametrize("kernel", ["mm", "addmm"])
def test_a(recorder, kernel): recorder.verdict("x", True)
"""


def test_filters(project):
    project.suite("one", KERNELS)
    project.suite("two", KERNELS)
    assert project.run("--suite", "two", "--kernel", "addmm").ret == 0
    assert {record.case for record in project.reading.records} == {"test_two.py::test_a[addmm]"}


def test_filters_that_match_nothing_are_refused(project):
    project.suite("one", KERNELS)
    message = "*--kernel mmm --suite one: no case of --tier quick has that; see 'conformance list'*"
    project.refused(message, "--suite", "one", "--kernel", "mmm")
    assert not (project.path / "reports").exists()


def test_a_suite_that_is_misspelt_is_refused(project):
    project.suite("one", KERNELS)
    project.refused("*--suite onne: there is no such suite; did you mean one?*", "--suite", "onne")
    assert not (project.path / "reports").exists()


ORDERS = """
@pytest.mark.parametrize("order", ["order=row", "order=col.row,3"])
def test_a(recorder, order): recorder.verdict("x", True)
def test_b(recorder): recorder.verdict("x", True)
"""


CHOSEN = [
    ("order=row", ["test_a[order=row]"]),
    ("test_one.py::test_a[order=col.row,3]", ["test_a[order=col.row,3]"]),
    ("not order=row and test_a", ["test_a[order=col.row,3]"]),
    ("(order=row or test_b)", ["test_a[order=row]", "test_b"]),
]


@pytest.mark.parametrize(
    ("expression", "cases", "workers"),
    [*((*chosen, ()) for chosen in CHOSEN), *((*chosen, ("-n", "2")) for chosen in CHOSEN[1:4:2])],
)
def test_text_of_a_case_id_chooses_cases(project, expression, cases, workers):
    project.suite("one", ORDERS)
    assert project.run("-k", expression, *workers).ret == 0
    assert sorted(project.records) == cases


@pytest.mark.parametrize(
    "words",
    [("-k", "order=row and"), ("-k", "test_b ("), ("-m", "slow or"), ("-k", "test_b (", "-n", "2")],
)
def test_an_expression_that_cannot_be_read_is_refused_at_once(project, words):
    project.suite("one", ORDERS)
    project.refused(f"ERROR: {words[0]} {words[1]}: *", *words)
    assert not (project.path / "reports").exists()


def test_an_expression_that_matches_nothing_is_named(project, workers):
    project.suite("one", ORDERS)
    project.refused("*ERROR: -k order=diagonal: no case of --tier quick has that*", "-k", "order=diagonal", *workers)
    assert not (project.path / "reports").exists()


def test_a_run_folder_that_exists_and_is_empty(project, tmp_path_factory):
    """pytest takes a path that stands alone and exists for a place of tests, and looks there for its settings."""
    project.suite("good", GOOD)
    folder = tmp_path_factory.mktemp("run")
    assert project.run("--run-dir", str(folder), "--conformance-gpus", "0").ret == 0
    assert (folder / "records.jsonl.gz").exists()


@pytest.mark.parametrize("separator", ["=", " "])
def test_a_checkout_that_is_not_installed_takes_a_folder_elsewhere(bare, monkeypatch, separator):
    """With a space pytest takes the folder for a place of tests and reads nothing of the checkout: it must say so."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    words = f"--run-dir{separator}{bare.path} --collect-only -q --suite tma_store -p no:cacheprovider".split()
    monkeypatch.chdir(ROOT)
    result = bare.pytester.runpytest_subprocess(*words)
    if separator == "=":
        assert result.ret == 0
        result.stdout.fnmatch_lines(["conformance/suites/test_tma_store.py::*"])
    else:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*unrecognized arguments: --run-dir*"])


def test_a_checkout_that_is_not_installed_runs_cases(project, monkeypatch):
    """There a conftest loads the plugin, which is later than an entry point does."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.suite("good", GOOD)
    source = "def pytest_addoption(pluginmanager):\n    pluginmanager.import_plugin('conformance.plugin')\n"
    (project.path / "conftest.py").write_text(source)
    result = project.pytester.runpytest_subprocess("-p", "xdist", "--conformance-gpus", "0", timeout=60)
    assert result.ret == 0
    assert set(project.statuses.values()) == {"pass"}


def test_files_outside_the_root_directory(project):
    """pytest's own node ids have no file then."""
    project.suite("one", KERNELS)
    project.suite("two", KERNELS)
    elsewhere = project.path / "elsewhere"
    elsewhere.mkdir()
    options = ("--rootdir", str(elsewhere), "-c", "pytest.ini")
    assert project.run(*options, "suites/test_one.py", "--run-dir", "run").ret == 0
    assert (project.path / "run" / "selected.txt").read_text().split()[0] == "test_one.py::test_a[mm]"
    project.refused("*choose with --suite*", *options, "suites/test_one.py", "suites/test_two.py", "--run-dir", "run2")


def test_case_ids_do_not_depend_on_the_invocation(project):
    project.suite("good", GOOD)
    (project.path / "suites" / "deeper").mkdir()
    (project.path / "suites" / "deeper" / "test_more.py").write_text(
        "def test_b(recorder): recorder.verdict('x', True)\n"
    )
    commands = [(), ("--rootdir=suites", "-c", "pytest.ini"), ("suites/deeper", "suites/test_good.py")]
    for number, command in enumerate(commands):
        assert project.run("--run-dir", f"run{number}", *command).ret == 0
    selected = [set((project.path / f"run{n}" / "selected.txt").read_text().split()) for n in range(len(commands))]
    assert selected[0] == {*(f"test_good.py::test_good[{i}]" for i in range(4)), "deeper/test_more.py::test_b"}
    assert selected[0] == selected[1] == selected[2]
