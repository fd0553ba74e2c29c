"""Options of pytest and of its plugins that would leave wrong records are refused. What another plugin ends costs one
case."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from conformance.plugin import refused_options

pytest_plugins = ["pytester"]

REFUSED = {
    "-f": ({"looponfail": True}, {}, "-f, --looponfail .* leave it out"),
    "--forked": ({"forked": True}, {}, "--forked .* leave it out"),
    "--setup-only": ({"setuponly": True}, {}, "--setup-only judges no case: give --setup-plan"),
    "--reruns": ({"reruns": 2}, {}, "--reruns .* leave it out; --conformance-reruns N"),
    "--force-reruns": ({"force_reruns": 1}, {}, "--force-reruns .* leave it out; --conformance-reruns N"),
    "reruns of pytest.ini": ({"reruns": None}, {"reruns": "2"}, "--reruns .* leave it out; --conformance-reruns N"),
    "--retries": ({"retries": 2}, {}, "--retries .* leave it out; --conformance-reruns N"),
    "--force-flaky": ({"force_flaky": True}, {}, "--force-flaky .* leave it out; --conformance-reruns N"),
    "--count": ({"count": 3}, {}, "--count 3 .* leave it out; --repeats 3 "),
    "--log-file": ({"log_file": "/proc/no/log"}, {}, "--log-file /proc/no/log: its folder cannot be made: "),
    "--tx": ({"tx": ["2*popen"], "dist": "no", "numprocesses": None}, {}, "--tx .*--dist=load: give both, or -n alone"),
}
TAKEN = {
    "none": ({}, {}),
    "zero": ({"reruns": 0, "count": 1, "retries": 0, "force_flaky": False}, {"reruns": "0"}),
    "not set": ({"reruns": None, "forked": False, "looponfail": False}, {"reruns": ""}),
    "--tx --dist=load": ({"tx": ["2*popen"], "dist": "load", "numprocesses": None}, {}),
    "-n 0 --tx": ({"tx": ["2*popen"], "dist": "no", "numprocesses": 0}, {}),
}


def config(options, settings):
    def getini(name):
        if name not in settings:
            raise ValueError(f"unknown configuration value: {name!r}")
        return settings[name]

    without_ray = {"conformance_ray": None, "conformance_device_class": None}
    plugins = SimpleNamespace(is_blocked=lambda name: False)
    return SimpleNamespace(option=SimpleNamespace(**without_ray, **options), getini=getini, pluginmanager=plugins)


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_leave_wrong_records_are_refused(name):
    options, settings, sentence = REFUSED[name]
    with pytest.raises(pytest.UsageError, match=sentence) as error:
        refused_options.check(config(options, settings))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", TAKEN)
def test_other_values_of_these_options_are_taken(name):
    refused_options.check(config(*TAKEN[name]))


def test_a_file_of_debug_that_cannot_be_written_is_one_sentence(project):
    project.suite("good", "def test_a(recorder): recorder.verdict('x', True)\n")
    project.refused("ERROR: --debug /dev/full: it cannot be written: it is no regular file", "--debug=/dev/full")
    with pytest.raises(pytest.UsageError, match=r"--debug /proc/no: it cannot be written: .*No such file"):
        refused_options.check_debug_file("/proc/no")


ADDED = """
def pytest_addoption(parser):
    parser.addoption("--reruns", type=int)
    parser.addini("reruns", "as pytest-rerunfailures has it")
"""


@pytest.mark.parametrize("option", ["--setup-plan", "--cache-show", "--collect-only", "--fixtures-per-test"])
def test_options_that_only_look_leave_no_run(project, option):
    (project.path / "pytest.ini").write_text("[pytest]\nconformance_suites = suites\ntestpaths = suites\n")
    project.suite("good", "def test_a(recorder): recorder.verdict('x', True)\n")
    assert project.run(option, "-n", "2").ret == pytest.ExitCode.OK
    assert not (project.path / "reports").exists()


def test_another_plugins_option_is_refused_before_anything_is_run(project):
    (project.path / "conftest.py").write_text(ADDED)
    project.suite("good", "def test_a(recorder): recorder.verdict('x', True)\n")
    project.refused("*--reruns *--conformance-reruns N judges a failed case N times more", "--reruns=2", "-n", "2")
    assert not (project.path / "reports").exists()
    assert project.run("--reruns=2", "--collect-only").ret == pytest.ExitCode.OK, "nothing is run"
    assert project.run("--reruns=0").ret == pytest.ExitCode.OK


#: pytest-timeout's method "thread" ends the process so.
IN_A_THREAD = """
import threading
def test_late(recorder):
    thread = threading.Thread(target=os._exit, args=(1,))
    thread.start(); thread.join()
    recorder.verdict("x", True)
def test_caught(recorder):
    recorder.verdict("x", True)
    try: os._exit(0)
    except RuntimeError: pass
def test_next(recorder): recorder.verdict("x", True)
"""


def test_a_case_whose_thread_would_end_the_process_has_failed(project, workers):
    project.suite("late", IN_A_THREAD)
    assert project.run(*workers).ret == pytest.ExitCode.TESTS_FAILED
    ended = "crash" if workers else "fail"
    assert project.statuses == {"test_late": ended, "test_caught": ended, "test_next": "pass"}
    assert workers or "os._exit was called" in project.records["test_late"].diagnosis


def test_workers_need_the_plugin_that_reports_a_case(project):
    project.suite("good", "def test_good(recorder): recorder.verdict('x', True)\n")
    project.refused("ERROR: -p no:reports takes from workers how they report a case*", "-n", "2", "-p", "no:reports")
