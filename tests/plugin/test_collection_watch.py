"""A file that hangs, or ends its process, while it is collected is one failed record; the other files are run."""

from __future__ import annotations

import os

import pytest

from conformance.plugin.case_ids import check_case_ids

pytest_plugins = ["pytester"]

#: Short times for what a user waits longer for.
CONFTEST = """
from conformance.machine import overdue
from conformance.machine.awake_time import AwakeTime
from conformance.plugin import watchdog, worker_watch
AwakeTime.LOOK_S = worker_watch.LOOK_S = 0.1
overdue.STUCK_S = watchdog.LOCK_GRACE_S = 0.5
"""
GOOD = "def test_good(recorder): recorder.verdict('x', True)\n"
SLEEP_OUTSIDE_PYTHON = (
    "import ctypes, signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); ctypes.CDLL(None).sleep(60)\n"
)
#: What a file does as it is imported, and what its record says.
FAULTS = {
    "time.sleep(60)\n": "did not end within 2 s; it was at test_bad.py:3 in <module>",
    "try: time.sleep(60)\nexcept BaseException: time.sleep(60)\n": "its process did nothing for",
    SLEEP_OUTSIDE_PYTHON: 'test_bad.py", line 3 in <module>',
    "3 ** 10**9\n": "its process did nothing for",
    "os.kill(os.getpid(), 11)\n": "a process died while it collected suites/test_bad.py: signal 11",
    "os._exit(0)\n": "it ended by itself",
    "def test_bad(recorder): pass\ndef pytest_generate_tests(metafunc): time.sleep(60)\n": "test_bad.py:4",
}


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_a_file_that_cannot_be_collected_is_one_record(project, fault):
    (project.path / "conftest.py").write_text(CONFTEST)
    project.suite("bad", fault)
    project.suite("good", GOOD)
    result = project.run("-n", "1", "--case-timeout", "2")
    assert (result.ret, project.statuses) == (1, {"test_bad.py": "fail", "test_good": "pass"})
    assert FAULTS[fault] in project.records["test_bad.py"].diagnosis
    assert project.info.problems == ()
    assert not list(project.folder.glob("collecting-*"))


RESTORES_NOTHING = """
from dataclasses import replace
from conformance.machine import process_state
process_state._NEEDED = tuple(replace(part, write=lambda before: 1 / 0) for part in process_state._NEEDED)
process_state._PARTS = tuple(replace(part, write=lambda before: 1 / 0) for part in process_state._PARTS)
"""


def test_limits_that_a_file_sets_cost_no_other_file(project, workers):
    project.suite("a", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (5, resource.getrlimit(7)[1]))\n")
    project.suite("good", GOOD)
    result = project.run(*workers)
    assert (result.ret, project.statuses) == (0, {"test_good": "pass"})


def test_a_limit_that_cannot_be_restored_costs_its_own_file(project):
    project.suite("a", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (5, resource.getrlimit(7)[1]))\n")
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(RESTORES_NOTHING)
    result = project.run("-n", "1")
    assert (result.ret, project.statuses) == (1, {"test_a.py": "fail", "test_good": "pass"})


@pytest.mark.parametrize("limits", ["a file", "a case"])
def test_a_limit_that_pytests_own_process_keeps_is_no_fault_of_the_machine(project, limits):
    """The run can write nothing from then on, and names who did that."""
    lowered = "import resource\n{0}resource.setrlimit(resource.RLIMIT_NOFILE, (5, resource.getrlimit(7)[1]))\n"
    case = "def test_bad(recorder):\n    recorder.verdict('x', True)\n    "
    project.suite("a", lowered.format("" if limits == "a file" else case))
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(RESTORES_NOTHING)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    who = "suites/test_a.py" if limits == "a file" else "test_a.py::test_bad"
    result.stdout.fnmatch_lines([f"regression (other-test): {who} left its process changed, *"])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_hangs_in_a_later_process_alone_costs_no_other(project, workers):
    """With one worker that is the one that replaces it: the cases of the file that are left have none."""
    (project.path / "conftest.py").write_text(CONFTEST)
    hangs = "if os.environ['PYTEST_XDIST_WORKER'] != 'gw0': time.sleep(60)\n"
    project.suite("bad", hangs + "def test_bad(recorder): recorder.verdict('x', True)\n")
    project.suite("a", "def test_a(recorder): os._exit(1)\n" if workers == 1 else "")
    project.suite("good", GOOD + GOOD.replace("good", "better"))
    result = project.run("-n", str(workers), "--case-timeout", "1")
    statuses = {"test_bad.py": "fail", "test_good": "pass", "test_better": "pass"}
    assert (result.ret, project.statuses) == (
        1,
        statuses | ({"test_a": "crash"} if workers == 1 else {"test_bad": "pass"}),
    )
    assert "did not end within 1 s; it was at test_bad.py:3" in project.records["test_bad.py"].diagnosis
    lost = "1 selected but not recorded: test_bad.py::test_bad"
    assert project.info.problems == ((lost,) if workers == 1 else ())


def test_workers_that_collect_other_cases_are_a_fault_of_the_run(project):
    project.suite(
        "own",
        "@pytest.mark.parametrize('worker', [os.environ['PYTEST_XDIST_WORKER']])\n"
        "def test_own(recorder, worker): recorder.verdict('x', True)\n",
    )
    result = project.run("-n", "2")
    assert (result.ret, project.statuses) == (1, {"test_own[gw0]": "pass", "test_own[gw1]": "pass"})
    result.stdout.fnmatch_lines(["*have collected different cases: only one of them has test_own.py::test_own?gw0?,*"])


@pytest.mark.parametrize("again", [False, True])
def test_a_signal_from_outside_costs_a_file_only_if_it_comes_again(new_python, project, again):
    first = "True" if again else "not os.path.exists('once')"
    project.suite("good", f"if {first}: open('once', 'w'); os.kill(os.getpid(), 9)\n{GOOD}")
    result = project.run("-n", "1")
    assert (result.ret, project.statuses) == ((75, {"test_good.py": "fail"}) if again else (0, {"test_good": "pass"}))


def test_without_workers_a_file_that_hangs_costs_no_other(project):
    (project.path / "conftest.py").write_text(CONFTEST)
    project.suite("bad", "time.sleep(60)\n")
    project.suite("good", GOOD)
    project.run("-n", "0", "--case-timeout", "1")
    assert project.statuses == {"test_bad.py": "fail", "test_good": "pass"}


@pytest.mark.parametrize("workers", [("-n", "0"), ("-n", "1")], ids=["alone", "xdist"])
def test_a_long_error_of_a_file_is_cut(project, workers):
    project.suite("bad", "print('x' * 3_000_000)\nraise ValueError('y' * 3_000_000)\n")
    project.suite("good", GOOD)
    result = project.run(*workers)
    assert (result.ret, project.statuses) == (1, {"test_bad.py": "fail", "test_good": "pass"})
    assert "ValueError: yyy" in project.records["test_bad.py"].diagnosis
    assert len(result.stdout.str()) < 200_000


def test_a_file_whose_path_is_not_utf_8_is_one_record(project, workers):
    project.suite("good", GOOD)
    os.mkdir(project.path / "suites" / os.fsdecode(b"sub\xff"))
    for name in (b"test_\xff.py", b"sub\xff/test_in.py"):
        (project.path / "suites" / os.fsdecode(name)).write_text(GOOD)
    result = project.run(*workers)
    files = ("test_\\udcff.py", "sub\\udcff/test_in.py")
    assert (result.ret, project.statuses) == (1, {"test_good": "pass", **dict.fromkeys(files, "fail")})
    for file in files:
        text = f"suites/{file}: this path is not UTF-8, and no record can hold it: rename the file or its folder"
        assert project.records[file].diagnosis == text
    assert project.info.problems == ()


#: What a hook of a conftest does with the items, and what the run says of it.
HOOKS = {
    "raise ValueError('planted')": "ValueError: planted at conftest.py:*",
    "items.append(3)": "AttributeError: 'int' object has no attribute *",
    "time.sleep(60)": "*pytest_collection_modifyitems of a plugin or a conftest did not end within 1 s*",
}


@pytest.mark.parametrize("hook", HOOKS, ids=range(len(HOOKS)))
def test_a_hook_that_fails_with_the_items_ends_the_run_in_a_sentence(project, workers, hook):
    project.suite("good", GOOD)
    lines = f"import time\nfrom conformance.plugin import collection_watch\n{CONFTEST}collection_watch.HOOKS_S = 1.0\n"
    text = f"{lines}def pytest_collection_modifyitems(items):\n    {hook}\n"
    (project.path / "conftest.py").write_text(text)
    result = project.run(*workers, "--case-timeout", "1")
    assert (result.ret, project.statuses) == (1, {})
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    result.stdout.fnmatch_lines([f"*{HOOKS[hook]}*"])


def test_an_interrupt_of_a_conftest_ends_the_run_in_a_sentence(project):
    project.suite("good", GOOD)
    (project.path / "suites" / "sub").mkdir()
    (project.path / "suites" / "sub" / "conftest.py").write_text("raise KeyboardInterrupt\n")
    (project.path / "suites" / "sub" / "test_in.py").write_text(GOOD)
    result = project.run("-n", "2")
    assert (result.ret, project.statuses) == (1, {})
    result.stdout.fnmatch_lines(["*workers die before they have collected*KeyboardInterrupt: * at conftest.py:1*"])


def test_what_is_no_file_is_not_read_as_a_suite(project):
    project.suite("good", GOOD)
    os.mkfifo(project.path / "suites" / "test_fifo.py")
    for name, target in (("gone", "/no/such"), ("endless", "/dev/zero")):
        (project.path / "suites" / f"test_{name}.py").symlink_to(target)
    assert project.run("-n", "0").ret == 0
    assert project.statuses == {"test_good": "pass"}


def test_a_case_id_is_unicode_text():
    check_case_ids(["test_a.py::test_a[\u00e9]"])
    with pytest.raises(pytest.UsageError, match=r"without lone surrogates: test_a.py::test_b\[\\udc80\]"):
        check_case_ids(["test_a.py::test_a", "test_a.py::test_b[\udc80]"])
