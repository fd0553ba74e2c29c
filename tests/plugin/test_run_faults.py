"""Whatever happens to a run, it ends with a sentence, and at most the guilty case is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conformance.commands import CommandError, report, show
from conformance.gate.runs import run_reader
from conformance.plugin.run_faults import INFRASTRUCTURE
from conformance.records import plain_lines, read_records
from tests import forked_python
from tests.command_runs import call

pytest_plugins = ["pytester"]

GOOD = """
@pytest.mark.parametrize("i", range(6))
def test_good(recorder, i): recorder.verdict("x", True)
"""
GOOD_STATUSES = {f"test_good[{i}]": "pass" for i in range(6)}

#: Shorter times of the watch from outside.
HASTE = """
from conformance.plugin import watchdog, worker_watch
watchdog.LOCK_GRACE_S = 0.2
worker_watch.LOOK_S, worker_watch.GONE_S = 0.1, 0.5
from xdist.workermanage import NodeManager
NodeManager.EXIT_TIMEOUT = 1
"""

FORKED = """
import os
from _pytest.runner import runtestprotocol
def pytest_addoption(parser): parser.addoption("--forked", action="store_true")
def pytest_runtest_protocol(item, nextitem):
    pid = os.fork()
    if pid == 0:
        runtestprotocol(item, log=False, nextitem=nextitem)
        os._exit(0)
    os.waitpid(pid, 0)
    return True
"""


def test_a_case_that_is_run_elsewhere_has_not_passed(project, workers):
    project.suite("good", GOOD + "\ndef test_segfault(recorder): os.kill(os.getpid(), 11)\n")
    (project.path / "conftest.py").write_text(FORKED)
    assert project.run(*workers).ret == pytest.ExitCode.TESTS_FAILED
    assert set(project.statuses.values()) == {"fail"}
    assert "no end of this test was seen here" in project.records["test_good[0]"].diagnosis
    project.refused("*--forked runs each test in a process of its own*leave it out*", "--forked", *workers)


EXIT = """
@pytest.fixture
def leaving(request):
    if request.param == "setup": pytest.exit("enough")
    yield
    if request.param == "teardown": pytest.exit("enough")

@pytest.mark.parametrize("leaving", ["setup", "teardown", "call"], indirect=True)
def test_exit(recorder, leaving, request):
    recorder.verdict("x", True)
    if "call" in request.node.name: pytest.exit("enough", returncode=3)
"""


def test_pytest_exit_is_a_failure_of_its_case_in_a_worker(project):
    project.suite("exit", EXIT)
    project.suite("good", GOOD)
    result = project.run("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.stdout.str()
    failing = {f"test_exit[{phase}]": "fail" for phase in ("setup", "teardown", "call")}
    assert project.statuses == {**GOOD_STATUSES, **failing}
    assert "pytest.exit was called: enough" in project.records["test_exit[call]"].diagnosis
    assert project.info.problems == ()


def test_pytest_exit_ends_a_run_without_workers_and_its_case_has_failed(project):
    project.suite("exit", EXIT)
    project.suite("good", GOOD)
    assert project.run("-k", "call or good").ret == 3
    assert project.statuses == {"test_exit[call]": "fail"}
    assert project.records["test_exit[call]"].diagnosis == "ended the run with pytest.exit: enough"
    assert project.info.problems[0].startswith("6 selected but not recorded")


def test_a_suite_that_ends_its_process_is_not_collected(project, workers):
    project.suite("exit", "import sys\nsys.exit(5)\n")
    project.suite("good", GOOD)
    result = project.run(*workers, "--continue-on-collection-errors")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {**GOOD_STATUSES, "test_exit.py": "fail"}
    assert "ended its process when collected: SystemExit: 5" in project.records["test_exit.py"].diagnosis


def test_a_run_that_was_cut_off_names_the_case_that_ran(project, capsys):
    """A crash of pytest's own process ends the run before anything is merged or said."""
    project.suite("death", "def test_death(recorder): os.kill(os.getpid(), 11)\n")
    project.suite("good", GOOD)
    result = project.run("--run-dir=first", "-k", "death", "-n", "0")
    assert result.ret == -signal.SIGSEGV
    first, second = project.path / "first", project.path / "second"
    project.run("--run-dir=second", "-n", "0", "suites/test_good.py", "suites/test_death.py")
    assert [call(show, "death", "--run", folder) for folder in (first, second)] == [0, 0]
    shown = capsys.readouterr()
    assert shown.out.count("status:   crash") == 2
    assert "second: the run did not end: it was cut off while it ran test_death.py::test_death\n" in shown.err
    with pytest.raises(CommandError, match=r"first holds no records.*it ran test_death"):
        call(report, first)
    assert call(report, second) == 0
    text = (
        "the run did not end: it was cut off while it ran test_death.py::test_death; selected cases without a record: 1"
    )
    assert text in (second / "report.html").read_text()
    (second / "process-main.txt").write_text(str(os.getpid()))
    assert run_reader.cut_off(second) == "the run goes on"
    assert run_reader.cases_cut_off(second) == []


SURROGATES = r"""
import warnings
def test_raise(recorder): raise ValueError("lone \udc80")
def test_verdict(recorder): recorder.verdict("lone \udc81", False, "lone \udc82", figure="lone \udc83")
def test_warning(recorder):
    recorder.verdict("x", True)
    warnings.warn("lone \udc84")
def test_output(recorder):
    print("lone \udc85")
    assert "lone \udc86" == ""
"""


def test_lone_surrogates_cost_no_case(project, workers):
    project.suite("bad", SURROGATES)
    project.suite("good", GOOD)
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    failing = dict.fromkeys(("test_raise", "test_verdict", "test_output"), "fail")
    assert project.statuses == {**GOOD_STATUSES, **failing, "test_warning": "pass"}
    assert project.info.problems == ()
    assert "lone \\udc80" in project.records["test_raise"].diagnosis
    assert "INTERNALERROR" not in result.stdout.str()
    assert len(ElementTree.parse(project.folder / "junit.xml").findall(".//testcase")) == 10
    call(report, project.folder, "--output", project.path / "page.html")
    call(show, "test_verdict", "--run", project.folder)


HOSTILE = r"""
import warnings
EVIL = "\x00\x1b[2J\x07 ]]> </script><script>alert(1)</script> \udc80 \ufffe \x85\r\n::error::forged" + "L" * 99_999
def test_raise(recorder): raise ValueError(EVIL)
def test_verdict(recorder): recorder.verdict("x", False, EVIL, figure=EVIL)
def test_reason(recorder): recorder.not_applicable(Reason(ReasonCode.CONFIG, EVIL, EVIL))
def test_output(recorder):
    os.write(1, EVIL.encode(errors="replace") + b"\xff\n::error::forged\n")
    assert False
def test_warning(recorder, record_property):
    record_property("evil", EVIL)
    warnings.warn(EVIL)
    recorder.verdict("x", True)
@pytest.mark.parametrize("evil", [0], ids=["]]> </script><script>alert(1)</script>"])
def test_id(recorder, evil): assert False
"""


def test_hostile_text_is_text_everywhere(project, workers, monkeypatch):
    """In the terminal, where it gives no command; in junit.xml; and in the page."""
    monkeypatch.setenv("TRITON_EVIL", "\x1b[2J ]]> </script><script>alert(1)</script> \udc80")
    project.suite("bad", HOSTILE)
    result = project.run(*workers)
    assert list(project.statuses.values()).count("fail") == 4
    output = result.stdout.str() + result.stderr.str()
    assert not {"\x00", "\x1b", "\x07"} & set(output)
    assert not [line for line in output.splitlines() if line.lstrip().startswith("::")]
    (suite,) = ElementTree.parse(project.folder / "junit.xml").getroot()
    assert (suite.get("tests"), int(suite.get("failures")) + int(suite.get("errors"))) == ("6", 4)
    page = project.path / "page.html"
    call(report, project.folder, "--output", page)
    assert "<script>alert" not in page.read_text()
    assert "TRITON_EVIL" in (project.folder / "environment.json").read_text()
    for name in ("summary.md", "records.jsonl.gz", "environment.json"):
        with plain_lines(project.folder / name) as lines:
            assert not set(b"\x00\x1b") & set(lines.read())


STOPPED = {
    "case": ("def test_bad(recorder):\n    recorder.set(kernel='mm')\n    os.kill(os.getpid(), 19)\n", ""),
    "unkillable": ("def test_bad(recorder): os.kill(os.getpid(), 19)\n", "worker_watch._kill = lambda node: None\n"),
    "after its watchdog ended it": (
        "def test_bad(recorder): time.sleep(600)\n",
        "worker_watch._kill = lambda node: None\nimport os\nos._exit = lambda code: os.kill(os.getpid(), 19)\n",
    ),
    "collection": (
        "import pathlib\nif not pathlib.Path('once').exists() and os.environ['PYTEST_XDIST_WORKER'] == 'gw0':\n"
        "    pathlib.Path('once').touch()\n    os.kill(os.getpid(), 19)\n"
        "def test_bad(recorder): recorder.verdict('x', True)\n",
        "",
    ),
}


@pytest.mark.parametrize("stopped", STOPPED)
def test_a_worker_that_is_stopped_is_replaced(project, stopped):
    """It does not run, so nothing in it can end it. One that a driver holds in the kernel cannot even be killed."""
    source, planted = STOPPED[stopped]
    project.suite("bad", source)
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(HASTE + planted)
    result = project.run("-n", "2", "--case-timeout", "0.5")
    if stopped == "collection":
        assert project.statuses == {**GOOD_STATUSES, "test_bad": "pass"}
        return
    by_somebody = "it was stopped; the run killed it" in project.records["test_bad"].diagnosis
    assert result.ret == (INFRASTRUCTURE if by_somebody else pytest.ExitCode.TESTS_FAILED)
    assert project.statuses == {**GOOD_STATUSES, "test_bad": "timeout"}
    assert project.info.problems == ()
    assert stopped.startswith("after") or by_somebody
    assert stopped != "case" or project.records["test_bad"].kernel == "mm"


def test_of_two_runs_in_one_folder_the_second_is_refused(project):
    project.suite("good", GOOD)
    other = project.path / "run" / "records-gw0.jsonl"
    (project.path / "conftest.py").write_text(
        "import pathlib, pytest\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_configure(config):\n"  # the folder was looked at; now the other run begins
        "    folder = pathlib.Path('run')\n    folder.mkdir()\n"
        "    (folder / 'run.json').write_text('{}')\n    (folder / 'records-gw0.jsonl').write_text('theirs')\n"
    )
    project.refused("*run: another run has begun there; give each run a folder of its own*", "--run-dir", "run")
    assert other.read_text() == "theirs"
    assert (project.path / "run" / "run.json").read_text() == "{}"


SLOW = """
@pytest.mark.parametrize("i", range(40))
def test_slow(recorder, i):
    recorder.verdict("x", True)
    time.sleep(0.0 if i < 4 else 0.5)
"""

#: Options and the signals, with those to the whole process group, as a terminal sends them, negative.
SIGNALS = {
    "SIGTERM": (("-n", "2"), [signal.SIGTERM]),
    "SIGHUP": (("-n", "0"), [signal.SIGHUP]),
    "SIGINT": (("-n", "2"), [-signal.SIGINT]),
    "SIGINT twice": (("-n", "2"), [-signal.SIGINT, -signal.SIGINT]),
    "SIGINT, SIGTERM alone": (("-n", "0"), [signal.SIGINT]),
    "SIGUSR1": (("-n", "0"), [signal.SIGUSR1]),
    "SIGUSR2": (("-n", "2"), [signal.SIGUSR2]),
    "SIGQUIT": (("-n", "2"), [-signal.SIGQUIT]),
    "SIGXCPU": (("-n", "0"), [signal.SIGXCPU]),
    "SIGALRM": (("-n", "0"), [signal.SIGALRM]),
    "SIGRTMIN+3": (("-n", "0"), [signal.SIGRTMIN + 3]),
}


@pytest.mark.parametrize("signals", SIGNALS)
def test_a_signal_ends_a_run_and_its_records_are_merged(project, monkeypatch, signals):
    options, numbers = SIGNALS[signals]
    if signals in ("SIGQUIT", "SIGXCPU", "SIGALRM", "SIGRTMIN+3"):  # forks have a group, and are not sent the others
        monkeypatch.setattr(sys, "executable", forked_python.REAL)
    project.suite("slow", SLOW)
    if len(numbers) > 1:  # the second must find a run that is ending, and not one that has ended
        (project.path / "conftest.py").write_text(
            "import time\n\n\ndef pytest_sessionfinish(session):\n"
            "    time.sleep(0 if hasattr(session.config, 'workerinput') else 2)\n"
        )
    output = project.path / "output"
    with output.open("w") as file:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "conformance.plugin", *options, "--run-dir=run"],
            stdout=file,
            stderr=file,
            cwd=project.path,
            start_new_session=True,
        )
        wait_until(lambda: sum(part.read_text().count("\n") for part in (project.path / "run").glob("rec*")) >= 4)
        for number in numbers:
            (os.killpg if number < 0 else os.kill)(run.pid, abs(number))
            if number is not numbers[-1] or len(numbers) > 1:
                time.sleep(0.3)
        assert run.wait(30) == pytest.ExitCode.INTERRUPTED, output.read_text()
    text = output.read_text()
    names = {path.name for path in (project.path / "run").iterdir()}
    named = {"environment.json", "junit.xml", "plan.json", "records.jsonl.gz", "run.json", "selected.txt", "summary.md"}
    assert names == named
    records = read_records(project.path / "run").records
    assert 4 <= len(records) < 40
    assert {record.status.value for record in records} == {"pass"}
    assert "selected but not recorded" in text
    assert "INTERNALERROR" not in text
    assert signals.startswith("SIGINT") or f"{signals}: the run ends here" in text
    assert len(numbers) == 1 or "SIGINT: workers are killed, then the records so far are merged" in text


def wait_until(true) -> None:
    for _ in range(400):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("nothing happened within 20 seconds")


REMOVED = """
import shutil
def test_remove(recorder):
    recorder.verdict("x", True)
    shutil.rmtree("run")
"""


def test_a_folder_that_is_removed_ends_in_a_sentence(project, workers):
    project.suite("a", REMOVED)
    project.suite("good", GOOD)
    result = project.run(*workers, "--run-dir=run")
    assert result.ret == INFRASTRUCTURE
    result.stdout.fnmatch_lines(["*the records in */run could not be merged: it was removed while the run went*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str()


FULL = """
@pytest.mark.parametrize("i", range(40))
def test_a(recorder, i): recorder.verdict("x", True, "t" * 1000)
"""
#: What a case changes of its process is restored, unless it is not seen.
FILLS = """
import resource
resource.getrlimit = lambda which: (-1, -1)
def pytest_runtest_logfinish(nodeid):
    if "[3]" in nodeid: resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, -1))
"""


def test_a_disk_that_fills_ends_the_run_and_keeps_whole_records(project, workers):
    """A limit to the size of files stands for it."""
    project.suite("a", FULL)
    (project.path / "conftest.py").write_text(FILLS)
    result = project.run(*workers)
    assert result.ret == INFRASTRUCTURE
    result.stdout.fnmatch_lines(["*cannot write records to */reports/* (File too large): the run ends here*"])
    assert "INTERNALERROR" not in result.stdout.str()
    reading = project.reading
    assert reading.records
    assert reading.problems == ()
    assert set(project.statuses.values()) == {"pass"}


def test_a_disk_that_is_full_at_the_end_leaves_the_parts(project):
    project.suite("good", GOOD)
    (project.path / "conftest.py").write_text(
        "from conformance.plugin import session_hooks\n"
        "def merge(*_): raise OSError(28, 'No space left on device')\n"
        "session_hooks.merge = merge\n"
    )
    result = project.run("-n", "2", "--junit-xml=/dev/full")
    assert result.ret == INFRASTRUCTURE
    result.stdout.fnmatch_lines(["*the records in */reports/* could not be merged: No space left on device; what*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert project.statuses == GOOD_STATUSES
    assert not [path for path in project.folder.iterdir() if path.suffix == ".tmp"]


LEFT = """
import subprocess
def test_child(recorder):
    recorder.verdict("x", True)
    subprocess.Popen(["sleep", "7771.25"])
def test_grandchild(recorder):
    recorder.verdict("x", True)
    subprocess.run(["sh", "-c", "setsid sleep 7772.25 >/dev/null 2>&1 &"], env={})
    time.sleep(0.2)
def test_of_a_dead_process(recorder):
    subprocess.Popen(["sleep", "7773.25"])
    os._exit(1)
"""


@pytest.mark.usefixtures("new_python")
def test_what_a_case_starts_does_not_outlive_the_run(project, workers):
    project.suite("left", LEFT if workers else LEFT.replace("os._exit(1)", "recorder.verdict('x', True)"))
    result = project.run(*workers)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if b"\x00777" in line and line.endswith(b".25\x00")]
    result.stdout.fnmatch_lines(["ended 3 processes that cases had left: *sleep 777?.25 (process *"])


def test_without_n_a_segfault_costs_one_case(project):
    project.suite("bad", "def test_bad(recorder): os.kill(os.getpid(), 11)\n")
    project.suite("good", GOOD)
    result = project.run("-o", "addopts=-p no:cacheprovider --conformance-gpus 0")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {**GOOD_STATUSES, "test_bad": "crash"}
    assert project.info.problems == ()


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_a_package_that_is_installed_and_broken_is_one_sentence(bare, workers, monkeypatch, package):
    """Only the workers load it: what stops them is no crash, and no fault of the harness."""
    for name in ("torch", "triton"):
        (bare.path / name).mkdir()
        (bare.path / name / "__init__.py").write_text(
            "raise OSError('libc.so: no such file\\nmore')" * (name == package)
        )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(bare.path), os.environ["PYTHONPATH"]]))
    result = bare.run("--pyargs", "conformance.suites", *(workers or ("-n", "0")))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    sentence = f"*: {package} is installed and cannot be loaded: OSError: libc.so: no such file; install*"
    result.stderr.fnmatch_lines([f"ERROR{sentence}"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert not (bare.path / "reports").exists()


@pytest.mark.parametrize(("version", "ending"), [("3.1.0", "is installed, and 3.2 or later is *"), ("3.2.0", "")])
def test_a_triton_that_is_too_old_is_one_sentence(bare, monkeypatch, version, ending):
    """A stand-in of each package, of which only Triton's version is read."""
    for name in ("torch", "triton"):
        (bare.path / name).mkdir()
        (bare.path / name / "__init__.py").write_text(f"__version__ = {version!r}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(bare.path), os.environ["PYTHONPATH"]]))
    result = bare.run("--pyargs", "conformance.suites", "-n", "0")
    if ending:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR*: triton {version} {ending}"])
        assert "Traceback" not in result.stdout.str() + result.stderr.str()
    else:
        assert "or later is required" not in result.stderr.str()  # what else a stand-in lacks is said in other words
