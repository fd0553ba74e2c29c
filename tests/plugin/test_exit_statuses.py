"""The exit status of a run says what went wrong: a regression, the machine, or an end before the last case."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from conformance.faults import FaultClass, FaultKind
from conformance.plugin import options
from conformance.plugin.run_faults import INFRASTRUCTURE, RunFaults
from conformance.records import CaseRecord, Fault, Reason, ReasonCode, RunInfo, Status, Verdict
from conformance.reporting.run_verdict import exit_line, fault_lines
from tests.gate.sample_entries import entry

pytest_plugins = ["pytester"]

FAULTS = "from conformance.faults import Fault, FaultKind\n"
GOOD = """
@pytest.mark.parametrize("i", range(4))
def test_good(recorder, i): recorder.verdict("x", True)
"""
BAD = "def test_bad(recorder): recorder.verdict('x', False, 'wrong'); assert False\n"
OF_THE_MACHINE = {
    "full disk": ("raise OSError(28, 'No space left on device', '/cache/x')", "disk-full"),
    "a cache that is a file": ("open('/etc/passwd/ab')", "files"),
    "open files": ("raise RuntimeError('x') from OSError(24, 'Too many open files')", "limit"),
    "a compilation": ("raise CompileFailure(Status.COMPILE_ERROR, 'No', Fault.of(FaultKind.FILES, 'No'))", "files"),
    "a check that met a full disk": (
        "recorder.verdict('compile/k', False, 'OSError: [Errno 28] No space')",
        "disk-full",
    ),
}


@pytest.mark.parametrize("name", OF_THE_MACHINE)
def test_a_case_that_the_machine_broke(project, name):
    source, kind = OF_THE_MACHINE[name]
    project.suite("good", FAULTS + GOOD + f"def test_broken(recorder):\n    {source}\n")
    (project.path / "known.toml").write_text(entry(cases='"test_good.py::test_broken"', seen='"No"'))
    result = project.run("--expected-failures=known.toml")
    assert result.ret == INFRASTRUCTURE
    record = project.records["test_broken"]
    assert record.status.value in ("fail", "compile-error"), "no entry expects what the machine broke"
    assert (record.fault_class, record.fault.kind) == (FaultClass.INFRASTRUCTURE, kind)
    assert [(fault.fault_class, fault.kind) for fault in project.info.faults] == [(FaultClass.INFRASTRUCTURE, kind)]
    assert (project.info.fault_class, project.info.exit_status) == (FaultClass.INFRASTRUCTURE, INFRASTRUCTURE)
    result.stdout.fnmatch_lines(
        [f"infrastructure ({kind}): 1 case, first test_good.py::test_broken: *", "exit status 75: infrastructure (*"]
    )


OF_WHAT_IS_TESTED = {
    "a wrong result before a full disk": (
        "recorder.verdict('numerics/randn', False, '3 of 12 wrong')\n"
        "    raise OSError(28, 'No space left on device', '/cache/x')",
        Status.FAIL,
    ),
    "a compiler that crashed and wrote of a limit": (
        "raise CompileFailure(Status.CRASH, 'the compiler died: SIGSEGV\\nResource temporarily unavailable')",
        Status.CRASH,
    ),
}


@pytest.mark.parametrize("name", OF_WHAT_IS_TESTED)
def test_a_case_that_the_machine_does_not_excuse(project, name):
    source, status = OF_WHAT_IS_TESTED[name]
    project.suite("good", GOOD + f"def test_broken(recorder):\n    {source}\n")
    assert project.run().ret == pytest.ExitCode.TESTS_FAILED
    record = project.records["test_broken"]
    assert (record.status, record.fault_class, record.fault) == (status, FaultClass.REGRESSION, None)


@pytest.mark.usefixtures("new_python")
def test_a_wrong_result_stays_one_if_its_worker_is_killed(project):
    source = "    recorder.verdict('numerics/randn', False)\n    recorder.set(kernel='mm')\n"
    kill = "    os.kill(os.getpid(), 9)\n    time.sleep(60)\n"
    project.suite("killed", f"def test_killed(recorder):\n{source}{kill}")
    assert project.run("-n", "1").ret == pytest.ExitCode.TESTS_FAILED
    record = project.records["test_killed"]
    assert (record.status, record.fault_class) == (Status.CRASH, FaultClass.REGRESSION)
    assert "ended from outside by SIGKILL" in record.diagnosis


def test_a_regression_beside_a_broken_machine_stays_one(project):
    project.suite("good", GOOD + BAD + "def test_full(recorder): raise OSError(28, 'No space left on device')\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [fault.fault_class.value for fault in project.info.faults] == ["regression", "infrastructure"]
    result.stdout.fnmatch_lines(["exit status 1: regression, infrastructure (*"])


@pytest.mark.usefixtures("new_python")
def test_a_worker_that_is_killed_from_outside(project):
    project.suite("good", GOOD)
    project.suite("killed", "def test_killed(recorder):\n    os.kill(os.getpid(), 9)\n    time.sleep(60)\n")
    result = project.run("-n", "2")
    assert result.ret == INFRASTRUCTURE
    record = project.records["test_killed"]
    assert (record.status.value, record.fault.kind) == ("crash", "killed")
    assert "ended from outside by SIGKILL" in record.diagnosis
    assert project.statuses == {**{f"test_good[{i}]": "pass" for i in range(4)}, "test_killed": "crash"}
    result.stdout.fnmatch_lines(["infrastructure (killed): 1 case, first test_killed.py::test_killed: *SIGKILL*"])


@pytest.mark.usefixtures("new_python")
def test_workers_that_are_killed_while_they_start(project):
    project.suite("killed", "os.kill(os.getpid(), 9)\n")
    result = project.run("-n", "1")
    assert result.ret == INFRASTRUCTURE
    assert project.records["test_killed.py"].fault.kind == "killed"
    result.stdout.fnmatch_lines(["*a process died while it collected suites/test_killed.py: signal 9*"])


def test_a_full_standard_output_costs_no_record(project):
    project.suite("good", GOOD)
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=project.path, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == INFRASTRUCTURE, done.stderr.decode()
    assert len(project.records) == 4
    assert [fault.kind for fault in project.info.faults] == ["output"]
    assert "Traceback" not in done.stderr.decode()


def test_a_reader_that_had_enough_costs_nothing(project):
    project.suite("good", GOOD)
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=project.path, stdout=writing, timeout=60, check=False)
    assert (done.returncode, len(project.records)) == (0, 4)
    assert project.info.faults == ()


FULL = """
import errno
from conformance.plugin.record_files import RecordFile
append = RecordFile._append
def fails(self, path, line):
    if b"good[2]" in line: raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return append(self, path, line)
RecordFile._append = fails
"""


def test_records_that_do_not_fit_the_disk(project, workers):
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text("import os\n" + FULL)
    assert project.run(*workers).ret == INFRASTRUCTURE
    assert project.info.fault_class is FaultClass.INFRASTRUCTURE


def test_a_run_that_stops_early_without_a_failure_is_unfinished(project, workers):
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n"
        "    pytest_runtest_logreport.session.shouldstop = 'time is up'\n"
        "def pytest_sessionstart(session): pytest_runtest_logreport.session = session\n"
    )
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [(fault.fault_class.value, fault.kind) for fault in project.info.faults] == [("unfinished", "stopped")]
    assert "time is up" in project.info.faults[0].text


def test_the_first_failure_ends_the_run_and_is_a_regression(project, workers):
    project.suite("a", BAD)
    project.suite("good", GOOD)
    assert project.run("-x", *workers).ret == pytest.ExitCode.TESTS_FAILED
    assert [fault.fault_class.value for fault in project.info.faults] == ["regression", "unfinished"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_case_in_flight_without_a_record(project, number):
    project.suite("good", GOOD)
    project.suite("slow", "def test_slow(recorder):\n    open('begun', 'w').close()\n    time.sleep(60)\n")
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin"]
    with subprocess.Popen(command, cwd=project.path, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as run:
        deadline = time.monotonic() + 60
        while not (project.path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        run.send_signal(number)
        assert run.wait(60) == pytest.ExitCode.INTERRUPTED
    assert set(project.statuses.values()) == {"pass"}
    assert [(fault.fault_class.value, fault.kind) for fault in project.info.faults] == [("unfinished", "interrupted")]
    assert number.name in project.info.faults[0].text


def test_a_case_that_catches_a_signal_ends_with_the_run(project):
    project.suite(
        "a",
        "import signal\n"
        "def test_catches(recorder):\n    recorder.verdict('x', False)\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(9)\n"
        "    except BaseException: pass\n",
    )
    project.suite("good", GOOD)
    assert project.run("-n", "0").ret == pytest.ExitCode.INTERRUPTED
    assert project.statuses == {}
    assert [(fault.fault_class.value, fault.kind) for fault in project.info.faults] == [("unfinished", "interrupted")]


def test_a_signal_whose_handling_was_chosen_keeps_it(project):
    """A batch script that passes over a signal, as nohup does, passes it on to what it starts."""
    project.suite(
        "a",
        "import signal\n"
        "def test_a(recorder):\n    for number in (signal.SIGUSR1, signal.SIGHUP): os.kill(os.getpid(), number)\n"
        "    recorder.verdict('x', True)\n",
    )
    (project.path / "conftest.py").write_text(
        "import signal\nfor number in (signal.SIGUSR1, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
    )
    assert project.run("-n", "0").ret == pytest.ExitCode.OK


def test_a_run_that_judged_nothing_is_not_green(project, workers):
    project.suite(
        "none",
        "def test_a(recorder): recorder.not_run(Reason(ReasonCode.NO_DEVICE, 'device', 'none'))\n"
        "def test_b(recorder): recorder.not_applicable(Reason(ReasonCode.DTYPE, 'a', 'none'))\n",
    )
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["NOTHING WAS JUDGED: *"])


def test_a_test_that_is_no_case_counts_too(project):
    project.suite("good", GOOD)
    (project.path / "test_other.py").write_text("def test_other(): assert False\n")
    assert project.run("suites", "test_other.py").ret == pytest.ExitCode.TESTS_FAILED
    assert [fault.kind for fault in project.info.faults] == ["other-test"]


# What decides, without runs


def record(case: str, status: Status, **fields: object) -> CaseRecord:
    verdicts = (Verdict("x", status is Status.PASS),)
    return CaseRecord(case, "s", status, **{"verdicts": verdicts, **fields})


def status_of(
    *records: CaseRecord, pytests: int = 0, interrupted: bool = False, faults: tuple = (), **of_the_run: bool
) -> int:
    of_run = RunFaults(**of_the_run)
    for one in records:
        of_run.add_case(one)
    for kind in faults:
        of_run.add(kind, "x")
    return of_run.exit_status(pytests, interrupted)


FULL_DISK = Fault.of(FaultKind.DISK_FULL, "x")
PASSED, FAILED = record("a", Status.PASS), record("b", Status.FAIL)
BROKEN = record("c", Status.CRASH, fault=FULL_DISK)


def test_what_decides():
    assert status_of(PASSED) == 0
    assert status_of(PASSED, FAILED) == status_of(PASSED, FAILED, pytests=1) == 1
    assert status_of(PASSED, BROKEN, pytests=1) == INFRASTRUCTURE
    assert status_of(BROKEN, FAILED, pytests=1) == 1
    assert status_of(PASSED, pytests=2, faults=(FaultKind.STOPPED,)) == 2
    assert status_of(PASSED, pytests=2, faults=(FaultKind.STOPPED, FaultKind.RECORDS)) == INFRASTRUCTURE
    assert status_of(FAILED, pytests=2, interrupted=True) == 2, "pytest's own meaning"
    assert status_of(FAILED, pytests=3) == 3
    assert status_of(pytests=4) == 4
    assert status_of(pytests=5) == 5
    assert status_of(PASSED, pytests=42) == 42, "of pytest.exit(..., returncode=42)"
    refused = record("d", Status.NOT_APPLICABLE, verdicts=(), reason=Reason(ReasonCode.DTYPE, "a", "b"))
    assert status_of(refused) == 5
    assert status_of(refused, PASSED) == 0
    compiled = record("e", Status.NOT_RUN, reason=Reason(ReasonCode.NO_DEVICE, "a", "b"))
    assert status_of(refused, compiled, compile_only=True) == 0, "its code was judged"
    assert status_of(refused, compiled) == 5, "code is not all that the run was to judge"
    assert status_of(refused, compiled, PASSED) == 0
    assert status_of(refused, FAILED) == 1


@pytest.mark.parametrize("kind", FaultKind)
def test_each_kind_has_the_status_of_its_class(kind):
    expected = {"regression": 1, "infrastructure": INFRASTRUCTURE, "unfinished": 2}
    assert status_of(PASSED, faults=(kind,)) == expected[kind.fault_class.value]


def test_cases_of_one_kind_are_one_line():
    faults = RunFaults()
    for case in "cab":
        faults.add_case(record(case, Status.CRASH, fault=FULL_DISK))
    assert [str(fault) for fault in faults.faults] == ["infrastructure (disk-full): 3 cases, first a: x"]
    run = RunInfo("r", "", "quick", 0, faults=faults.faults, exit_status=75)
    assert fault_lines(run) == [str(faults.faults[0])]
    assert exit_line(run).startswith("exit status 75: infrastructure (")
    assert fault_lines(RunInfo("r", "", "quick", 0)) == []


def test_pytest_has_no_such_status():
    assert INFRASTRUCTURE not in {int(code) for code in pytest.ExitCode}


# Surroundings of a run


@pytest.mark.usefixtures("new_python")
@pytest.mark.parametrize(("closed", "status"), [(">&-", 75), ("2>&-", 0), (">&- 2>&- <&-", 75)])
def test_a_closed_stream_costs_no_record(project, closed, status):
    project.suite("good", GOOD)
    command = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "pytest", "-p", "conformance.plugin"]
    assert subprocess.run(command, cwd=project.path, timeout=60, check=False).returncode == status
    assert set(project.statuses.values()) == {"pass"}
    assert [fault.kind for fault in project.info.faults] == ["output"] * (status != 0)


@pytest.mark.parametrize("plugin", ["capture", "debugging"])
def test_a_run_without_a_plugin_of_pytest(project, plugin):
    project.suite("good", GOOD)
    assert project.run("-p", f"no:{plugin}").ret == pytest.ExitCode.OK


def test_places_that_cannot_be_used_are_refused(project):
    project.suite("good", GOOD)
    (project.path / "link").symlink_to("nowhere")
    (project.path / "deep.json").write_text("[" * 100_000)
    project.refused("*--run-dir *link: a link that leads nowhere; remove it, or make its target", "--run-dir=link")
    project.refused("*--calibration deep.json: * nested too deeply", "--calibration=deep.json")
    project.refused("*workers need paths and options in UTF-8*", "-n", "2", "--run-dir=\udcff")


@pytest.mark.parametrize("variable", ["LOGNAME", "USER"])
def test_a_user_whose_name_is_not_utf8(project, monkeypatch, variable):
    project.suite("good", GOOD)
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.setenv(variable, "j\udcffj")
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin", "-n", "1"]  # without a --basetemp
    assert subprocess.run(command, cwd=project.path, timeout=60, check=False).returncode == pytest.ExitCode.OK
    assert set(project.statuses.values()) == {"pass"}


def test_a_run_that_never_ends_is_refused(project):
    project.suite("good", GOOD)
    project.refused("*-f, --looponfail * leave it out", "-f")


def test_a_run_that_may_open_too_few_files_is_a_sentence(project, workers):
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(
        "import resource\n_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (12, most))\n"
    )
    result = project.run(*workers)
    needed = "with 2 workers needs at least 38" if workers else "of the suites needs at least 34"
    assert (result.ret, result.outlines) == (INFRASTRUCTURE, [])
    assert result.errlines == [
        f"Exit: a process may open 12 files at once (ulimit -n). A run {needed}: raise the limit, such as with "
        "'ulimit -n 1024'"
    ]


def test_a_run_that_may_start_too_few_threads_is_a_sentence(project, workers):
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(
        'import threading\ndef start(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = start\n"
    )
    result = project.run(*workers)
    needed = "with 2 workers needs at least 15" if workers else "of the suites needs at least 3"
    assert (result.ret, result.outlines, len(result.errlines)) == (INFRASTRUCTURE, [], 1)
    assert re.match(f"Exit: the system refuses more than 0 further threads .* A run {needed}: ", result.errlines[0])


#: Hooks in which an error of the machine ends the run, and the lines that the run prints at most.
HOOKS = {
    "pytest_configure(config)": 1,
    "pytest_sessionstart(session)": 1,
    "pytest_collect_file(file_path)": 70,  # the record of what could not be collected
    "pytest_collection_finish(session)": 30,
    "pytest_runtest_logstart(nodeid)": 30,
    "pytest_sessionfinish(session)": 30,
    "pytest_unconfigure(config)": 30,
    "pytest_cmdline_main(config)": 1,
}


@pytest.mark.parametrize("hook", HOOKS)
def test_an_error_of_the_machine_in_a_hook_is_infrastructure_and_no_traceback(project, hook):
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(f"def {hook}: raise OSError(28, 'No space left on device', '/x')\n")
    result = project.run()
    assert result.ret == INFRASTRUCTURE
    assert "No space left on device: '/x'" in "".join(result.errlines + result.outlines)
    assert "Traceback" not in "".join(result.errlines + result.outlines)
    assert len(result.errlines + result.outlines) <= HOOKS[hook]


def test_an_error_of_the_machine_at_the_end_of_a_worker_is_infrastructure(project):
    project.suite("good", GOOD)
    body = "    if 'PYTEST_XDIST_WORKER' in os.environ: raise OSError(28, 'No space left on device', '/x')\n"
    (project.path / "conftest.py").write_text(f"import os\ndef pytest_sessionfinish(session):\n{body}")
    assert project.run("-n", "1").ret == INFRASTRUCTURE
    assert {fault.kind for fault in project.info.faults} == {"disk-full"}


VARIABLES = {
    "TRITON_STORE_BINARY_ONLY": ("1", "Triton keeps the binary alone"),
    "TRITON_CACHE_MANAGER": ("nosuch.module:Manager", "there is no module 'nosuch.module'"),
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_with_which_triton_cannot_compile_is_the_machines(variable):
    value, message = VARIABLES[variable]
    options.check_variables({variable: "0" if variable.endswith("ONLY") else ""})
    with pytest.raises(options.BrokenEnvironment, match=message):
        options.check_variables({variable: value})


def test_what_a_conftest_leaves_for_the_end_of_the_process_does_not_change_the_status(new_python, project, workers):
    (project.path / "conftest.py").write_text("import atexit, os\natexit.register(os._exit, 0)\n")
    project.suite("bad", "def test_bad(recorder): recorder.verdict('x', False)\n")
    assert project.run(*workers).ret == 1
