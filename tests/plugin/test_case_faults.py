"""Whatever a case does to its process, it costs that case only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.plugin.run_faults import INFRASTRUCTURE
from conformance.records import read_records
from tests.plugin.test_run_faults import SLOW, wait_until

pytest_plugins = ["pytester"]


#: The body of a case after its verdict, and the status of the case.
FAULTS = {
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "crash"),
    "terminate": ("os.kill(os.getpid(), signal.SIGTERM)", "crash"),
    "abort": ("os.abort()", "crash"),
    "leave": ("os._exit(0)", "crash"),
    "close": ("os.closerange(3, 64)", "crash"),
    "exit": ("sys.exit(0)", "fail"),
    "raise": ("raise KeyError('x')", "fail"),
    "recursion": ("f = lambda: f()\n    f()", "fail"),
    "self": ("recorder.set(observed=LOOP)", "fail"),
    "memory": ("raise MemoryError", "oom"),
    "hog": ("resource.setrlimit(resource.RLIMIT_AS, (1 << 32, -1))\n    bytearray(1 << 36)", "oom"),
    "loop": ("while True: pass", "timeout"),
    "chdir": ("os.chdir('/')", "pass"),
    "environment": ("os.environ.clear()", "pass"),
    "output": ("os.write(1, b'\\xff\\0garbage'); os.write(2, bytes(99)); print('\\x1b[2J', flush=True)", "pass"),
    "number": ("recorder.set(observed={'a': float('nan'), 'b': 10**400, 'c': '\\udc80', '\\udc81': [1]})", "pass"),
    "pause": (
        "subprocess.Popen(['sh', '-c', f'sleep 0.5; kill -CONT {os.getpid()}'])\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)",
        "pass",
    ),
}
HEAD = "import resource, signal, subprocess, sys\nLOOP = {}\nLOOP['x'] = LOOP\n"


def test_each_fault_costs_its_own_case_only(project):
    cases = [
        f"def test_{name}(recorder):\n    recorder.verdict('x', True)\n    {body}\n"
        for name, (body, _) in FAULTS.items()
    ]
    good = [f"def test_good{number}(recorder): recorder.verdict('x', True)\n" for number in range(len(cases))]
    project.suite("all", HEAD + "".join(text for pair in zip(cases, good, strict=True) for text in pair))
    result = project.run("-n", "2", "--case-timeout", "3")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    expected = {f"test_{name}": status for name, (_, status) in FAULTS.items()}
    # Without its descriptors a worker may not even end: a thread still reads from one, and the run ends the worker.
    if project.statuses.get("test_close") == "timeout":
        expected["test_close"] = "timeout"
    assert project.statuses == expected | {f"test_good{number}": "pass" for number in range(len(cases))}
    assert project.info.problems == ()
    assert project.records["test_number"].observed == {
        "a": "nan",
        "b": hex(10**400),
        "c": "\\udc80",
        "\\udc81": [1],
    }
    assert "test_all.py" in project.records["test_loop"].diagnosis  # the stacks
    assert not [path for path in project.folder.iterdir() if path.name.startswith(("inflight", "process", "records-"))]


#: Exceptions whose own code fails, by name: the body of a class, or statements that end with one that raises.
ODD_CLASSES = {
    "str": "def __str__(self): raise ValueError",
    "exit": "def __str__(self): sys.exit(3)",
    "interrupt": "def __str__(self): raise KeyboardInterrupt",
    "endless": "def __str__(self): return str(self)",
    "text": "def __str__(self): return Text('x')",
    "causes": "__cause__ = property(lambda self: type(self)('next'))",
    "attributes": "def __getattribute__(self, name): raise ValueError",
    "kind": "__class__ = property(lambda self: 1 / 0)",
    "lie": "__class__ = ConformanceFailure",
    "notes": "__notes__ = property(lambda self: 1 / 0)",
    "nameless": "__module__ = 3",
}
ODD_RAISES = {
    "cycle": "a, b = ValueError('a'), KeyError('b'); a.__cause__ = b; b.__cause__ = a; raise a",
    "group": "raise ExceptionGroup('g', [Odd_str(), ValueError('v')])",
    "skip": "class Skip(pytest.skip.Exception): __str__ = Odd_str.__str__\n    raise Skip",
    "syntax": "raise SyntaxError('bad', ('file', 'x', object(), 3))",
    "long": "raise ValueError('x' * 10_000_000)",
    "number": "raise OSError([1], 'x', object())",
    "interrupted": "raise KeyboardInterrupt",
    "local": "class Local: __repr__ = lambda self: sys.exit(1)\n    local = Local()\n    assert local == 3",
    "compiled": "raise CompileFailure(Status.PASS, 'fine')",
    "uncompiled": "class Bare(CompileFailure): __init__ = lambda self: None\n    raise Bare",
    "recorder": "recorder.verdicts.append(3)",
    "renamed": "recorder.durations = None; recorder.diagnosis = b'x'",
    "fields": "recorder._fields['seed'] = 'x'",
}
#: What a case may leave in a report, which costs nothing.
ODD_REPORTS = {
    "property": "request.node.user_properties.append(('a', Odd_str()))",
    "section": "request.node.add_report_section('call', 3, Odd_str())",
    "keyword": "request.node.keywords[3] = Odd_str()",
    "warning": "import warnings; warnings.warn(Warned('x', object())); warnings.warn(Warned('\\udc80'))",
}


def test_code_of_a_case_that_fails_in_a_hook_costs_its_own_case_only(project, workers):
    head = "import sys\nclass Warned(UserWarning): pass\n"
    head += "class Text(str):\n    __len__ = __format__ = isascii = encode = lambda *_: 1 / 0\n"
    classes = [f"class Odd_{name}(Exception):\n    {body}\n" for name, body in ODD_CLASSES.items()]
    bodies = {f"class_{name}": f"raise Odd_{name}('x')" for name in ODD_CLASSES} | ODD_RAISES | ODD_REPORTS
    cases = [
        f"def test_{name}(recorder, request):\n    recorder.verdict('x', True)\n    {body}\n"
        f"def test_after_{name}(recorder): recorder.verdict('x', True)\n"
        for name, body in bodies.items()
    ]
    project.suite("all", head + "".join(classes + cases))
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.stdout.str()
    expected = {f"test_{name}": "pass" if name in ODD_REPORTS else "fail" for name in bodies}
    assert project.statuses == expected | {f"test_after_{name}": "pass" for name in bodies}
    assert project.info.problems == ()
    records = project.records
    assert "Odd_str: (its words cannot be read: its own code raises ValueError)" in records["test_class_str"].diagnosis
    assert "KeyError: 'b'" in records["test_cycle"].diagnosis
    assert "no signal was received" in records["test_interrupted"].diagnosis


#: What a case changes of its process, and the name of it in the record.
CHANGES = {
    "recursion": ("sys.setrecursionlimit(10**6)", "the recursion limit"),
    "recorder": ("type(recorder).verdict = lambda *arguments: None", "functions"),
    "function": ("builtins.len = None; os.environ = None; del time.monotonic", "functions"),
    "size": (f"resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1)); {'recorder.set(kernel=None)'}", "resource limits"),
    "files": ("_, most = resource.getrlimit(NOFILE); resource.setrlimit(NOFILE, (3, most))", "resource limits"),
    "handler": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "handlers of signals"),
    "blocked": ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])", "blocked signals"),
    "alarm": ("signal.alarm(1)", "timers"),
    "folder": ("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", "the working directory"),
    "umask": ("os.umask(0o777)", "umask"),
    "stream": ("sys.stdout.close(); sys.stdout = None", "standard streams"),
    "logging": ("logging.root.handlers = None", "the logging of Python"),
    "locale": (
        "locale.setlocale(locale.LC_ALL, ('C', 'C.UTF-8')['.' not in locale.setlocale(locale.LC_ALL)])",
        "the locale",
    ),
    "zone": ("os.environ['TZ'] = 'Asia/Kolkata'; time.tzset()", "the time zone"),
    "decimals": ("decimal.getcontext().prec = 2", "the decimal context"),
    "hooks": ("sys.excepthook = None; import threading; threading.excepthook = None", "hooks of exceptions"),
    "pathlib": ("import pathlib; pathlib.Path.open = None; pathlib.Path.mkdir = None", "functions"),
    "collector": ("gc.disable()", "the garbage collector"),
    "interval": ("sys.setswitchinterval(9)", "the switch interval of threads"),
    "path": ("sys.path.clear()", "the search path of modules"),
    "errors": ("numpy.seterr(all='raise')", "NumPy's handling of errors"),
    "fixture": ("request.getfixturevalue('slight')", "resource limits"),
    "hash": ("enum.Enum.__hash__ = lambda self: 1 // 0", "functions"),
    "methods": (
        "del contextlib.ExitStack.__enter__; json.JSONEncoder.__eq__ = 3; re.compile = None",
        "functions of Python",
    ),
    "detached": ("sys.stdout.detach(); sys.stderr.buffer.close()", "standard streams"),
    "encoding": ("sys.stdout.reconfigure(encoding='ascii', errors='strict'); sys.stderr.write = 3", "standard streams"),
    "module": ("sys.modules['json'] = None", "imported modules"),
    "rounding": ("ctypes.CDLL(None).fesetround(UPWARD)", "floating-point arithmetic"),
    "profile": ("sys.setprofile(lambda *arguments: None)", "functions that trace"),
    "generations": ("gc.set_threshold(1)", "the garbage collector"),
}
STATE = """
import builtins, contextlib, ctypes, decimal, enum, gc, json, locale, logging, numpy, platform, re, resource
import signal, sys
UPWARD = 0x800 if platform.machine() == "x86_64" else 0x400000
NOFILE = resource.RLIMIT_NOFILE
@pytest.fixture
def slight():
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))
def test_kept(recorder):
    recorder.verdict("x", True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal = None
def test_after_kept(recorder): recorder.verdict("x", bool(signal.signal) or "PYTEST_XDIST_WORKER" not in os.environ)
def test_fork(recorder):
    child = os.fork()
    recorder.verdict("x", True)
    if child: os.waitpid(child, 0)
    else: raise ValueError
@pytest.fixture
def forking():
    os.fork()
    yield
    os.fork()
def test_fork_of_a_fixture(recorder, forking): recorder.verdict("x", True)
if "pytest" in sys.modules: os.fork()
"""


def test_state_that_a_case_leaves_is_restored_or_costs_its_process(project, workers):
    cases = [
        f"def test_{name}(recorder, request):\n    recorder.verdict('x', True)\n    {body}\n"
        f"def test_after_{name}(recorder): recorder.verdict('x', 1 + 2**-60 == 1); print('\\xe9')\n"
        for name, (body, _) in CHANGES.items()
    ]
    project.suite("state", STATE.replace("def test_kept", "".join(cases) + "def test_kept"))
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    records = project.records
    restored = {name: records[f"test_{name}"].observed["restored"] for name in CHANGES}
    assert restored == {name: [part] for name, (_, part) in CHANGES.items()}
    assert {name for name, status in project.statuses.items() if status != "pass"} == {"test_kept"}
    assert len(records) == 2 * len(CHANGES) + 4
    text = "left its process changed, and this cannot be restored: handlers of signals"
    assert text in records["test_kept"].diagnosis
    assert project.info.problems == ()


FIXTURES = """
import decimal, gc
@pytest.fixture(scope="module")
def imprecise(): decimal.getcontext().prec = 3; os.environ["TZ"] = "Asia/Kolkata"; time.tzset()
@pytest.fixture
def uncollected():
    gc.disable()
    yield
    gc.set_threshold(3)
def test_first(recorder, imprecise, uncollected): recorder.verdict("x", decimal.getcontext().prec == 3)
def test_second(recorder, imprecise): recorder.verdict("x", decimal.getcontext().prec == 3 and gc.isenabled())
"""
FOLLOWS = """
import decimal, gc
def test_follows(recorder):
    recorder.verdict("x", decimal.getcontext().prec == 28 and gc.get_threshold()[0] > 3)
    recorder.verdict("zone", "Kolkata" not in os.environ.get("TZ", "") and time.timezone != -19800)
"""


def test_what_a_fixture_changes_of_the_process_ends_with_the_fixture(project):
    project.suite("a", FIXTURES)
    project.suite("b", FOLLOWS)
    assert project.run("-n", "0").ret == pytest.ExitCode.OK
    assert set(project.statuses.values()) == {"pass"}


def runs(pid: int) -> bool:
    """Returns True if the process has not ended; its exit status may not have been collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("new_python")
@pytest.mark.parametrize("options", [("-n", "2"), ("-n", "0")], ids=" ".join)
def test_a_run_that_is_killed_leaves_its_records_and_no_process(project, options):
    project.suite("slow", SLOW)
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin", *options, "--run-dir=run"]
    run = subprocess.Popen(command, cwd=project.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = project.path / "run"
    wait_until(lambda: sum(part.read_text().count("\n") for part in folder.glob("records-*")) >= 4)
    workers = [int(file.read_text()) for file in folder.glob("process-*.txt")]
    run.kill()
    run.wait(10)
    assert len(workers) == (2 if "2" in options else 1)
    wait_until(lambda: not any(map(runs, workers)))
    reading = read_records(folder)
    assert len(reading.records) >= 4
    assert reading.problems == ()
    assert list(folder.glob("inflight-*.jsonl"))
    assert not [*folder.glob("records.jsonl*")]


#: The body of a case after its verdict, the error that ends its worker if one does, and the status of the case.
INTERNAL = {
    "report": ("_pytest.reports.TestReport.__init__ = lambda *args, **named: 1 / 0", "ZeroDivisionError", "crash"),
    "hooks": ("pluggy.HookCaller.__call__ = lambda *args, **named: None", "", "fail"),
    "loop": ("LOOP.append(recorder)", "KeyboardInterrupt", "crash"),
    "modules": ("sys.modules.clear()", "", "pass"),
    "replaced": ("sys.modules = {}", "", "pass"),
    "interrupt": ("os.kill(os.getpid(), signal.SIGINT)", "", "pass"),
    "thread": ("import _thread\n    _thread.interrupt_main()", "", "pass"),
    "capture": ("_pytest.capture.FDCapture.snap = lambda self: 1 / 0", "", "fail"),
}
IN_LOOP = """
LOOP = []
def pytest_runtest_logfinish():
    if LOOP:
        raise KeyboardInterrupt
"""


def test_an_error_of_a_worker_itself_costs_one_case_only(project):
    cases = [
        f"def test_{name}(recorder):\n    recorder.verdict('x', True)\n    {body}\n"
        f"def test_after_{name}(recorder): recorder.verdict('x', True)\n"
        for name, (body, _, _) in INTERNAL.items()
    ]
    project.suite(
        "internal",
        "import _pytest.capture, _pytest.reports, pluggy, signal, sys\nfrom conftest import LOOP\n" + "".join(cases),
    )
    (project.path / "conftest.py").write_text(IN_LOOP)
    result = project.run("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.stdout.str()
    expected = {f"test_{name}": status for name, (_, _, status) in INTERNAL.items()}
    assert project.statuses == expected | {f"test_after_{name}": "pass" for name in INTERNAL}
    records = project.records
    for name, error in {name: error for name, (_, error, _) in INTERNAL.items() if error}.items():
        assert f"an internal error ended the process: {error}" in records[f"test_{name}"].diagnosis
    assert records["test_modules"].observed["restored"] == ["imported modules"]
    assert project.info.problems == ()
    assert not [*project.folder.glob("died-*")]


BREAKS = """
import _pytest.runner
@pytest.fixture
def ended():
    yield
    os.mkdir("ended")
def test_breaks(recorder, ended):
    recorder.verdict("x", True)
    _pytest.runner.CallInfo.from_call = None
def test_after(recorder): recorder.verdict("x", os.path.exists("ended"))
"""


def test_a_case_that_breaks_pytest_in_its_own_process_fails_alone(project):
    project.suite("breaks", BREAKS)
    assert project.run("-n", "0").ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {"test_breaks": "fail", "test_after": "pass"}
    assert "the case has changed functions of pytest" in project.records["test_breaks"].diagnosis


def test_internal_errors_of_workers_that_collect_end_the_run_with_the_error(project):
    project.suite("good", "def test_good(recorder): recorder.verdict('x', True)\n")
    (project.path / "conftest.py").write_text("def pytest_collection_modifyitems(): raise OSError(28, 'planted')\n")
    result = project.run("-n", "2")
    assert result.ret == INFRASTRUCTURE
    result.stdout.fnmatch_lines(["*an internal error ended the process: OSError: [[]Errno 28] planted*"])


ENDS = """
import sys
def test_leave(recorder): os._exit(0)
def test_replace(recorder): os.execlp("true", "true")
def test_child(recorder):
    recorder.verdict("x", True)
    if not (child := os.fork()): os._exit(0)
    recorder.verdict("child", os.waitpid(child, 0)[1] == 0)
"""


def test_without_workers_no_case_ends_the_process_with_a_good_status(project):
    project.suite("at_import", "os._exit(0)\n")
    project.suite("ends", ENDS)
    assert project.run("-n", "0").ret == pytest.ExitCode.TESTS_FAILED
    expected = {"test_at_import.py": "fail", "test_leave": "fail", "test_replace": "fail", "test_child": "pass"}
    assert project.statuses == expected
    assert "os._exit was called: it would end the run" in project.records["test_leave"].diagnosis


def test_cases_of_a_file_that_another_case_removes_are_judged(project):
    project.suite("first", "def test_first(recorder): recorder.verdict('x', not os.unlink('suites/test_second.py'))\n")
    project.suite("second", "def test_second(recorder): recorder.verdict('x', True)\n")
    project.run("-n", "1")
    assert project.statuses == {"test_first": "pass", "test_second": "pass"}


#: What starts a thread that outlives its case, and whether the case fails of that.
THREADS = {
    "timer": ("threading.Timer(0.5, lambda: print()).start()", True),
    "daemon": ("threading.Thread(target=lambda: time.sleep(5), daemon=True).start()", True),
    "bare": ("_thread.start_new_thread(lambda: time.sleep(5), ())", True),
    "brief": ("threading.Thread(target=lambda: time.sleep(0.05)).start()", False),
    "library": ("ThreadPoolExecutor(1).submit(print)", False),
}


def test_a_thread_that_outlives_its_case_costs_that_case_and_its_worker(project):
    cases = [
        f"def test_{name}(recorder):\n    recorder.verdict('x', True)\n    {body}\n"
        f"def test_after_{name}(recorder): recorder.verdict('x', True)\n"
        for name, (body, _) in THREADS.items()
    ]
    head = "import _thread, threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
    project.suite("threads", head + "".join(cases))
    project.run("-n", "1")
    expected = {f"test_{name}": "fail" if fails else "pass" for name, (_, fails) in THREADS.items()}
    assert project.statuses == expected | {f"test_after_{name}": "pass" for name in THREADS}
    assert "left threads running" in project.records["test_timer"].diagnosis
    assert len({project.records[f"test_{name}"].worker for name, (_, fails) in THREADS.items() if fails}) == 3
    assert project.info.problems == ()


OPENS = """
TAKEN = []
def test_takes(recorder):
    recorder.verdict("x", True)
    try:
        while True: TAKEN.append(os.open("/dev/null", 0))
    except OSError: pass
def test_after(recorder): recorder.verdict("x", True)
"""


def test_a_case_that_leaves_no_file_to_open_costs_itself_and_its_worker(project):
    project.suite("opens", OPENS)
    result = project.run("-n", "1")
    assert (result.ret, project.statuses) == (1, {"test_takes": "fail", "test_after": "pass"})
    assert "left so many files open" in project.records["test_takes"].diagnosis
    assert project.info.problems == ()


INTERRUPTS = """
import _thread
def interrupt():
    time.sleep(0.5)
    while True: _thread.interrupt_main(); time.sleep(0.003)
def test_leaves(recorder):
    recorder.verdict("x", True)
    _thread.start_new_thread(interrupt, ())
def test_next(recorder):
    for _ in range(2000): time.sleep(0.01)  # a longer sleep is not interrupted
"""


def test_a_thread_that_interrupts_pytests_own_process_ends_the_run_in_order(project):
    project.suite("interrupts", INTERRUPTS)
    result = project.run("-n", "0")
    assert (result.ret, project.statuses) == (pytest.ExitCode.INTERRUPTED, {"test_leaves": "fail"})
    suspect = "it may come from a thread that test_interrupts.py::test_leaves has left"
    assert [fault.text for fault in project.info.faults][-1] == f"SIGINT ended the run; {suspect}"
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


CRASHES = """
@pytest.fixture(scope="{scope}")
def crashing():
    yield
    os.kill(os.getpid(), 11)
def test_first(recorder): recorder.verdict("x", True)
def test_last(recorder, crashing): recorder.verdict("x", True)
"""


@pytest.mark.parametrize(("scope", "when"), [("function", "in"), ("module", "after")])
def test_a_crash_of_pytests_own_process_names_the_case(project, scope, when):
    project.suite("crashes", CRASHES.format(scope=scope))
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin", "-n", "0", "--run-dir=run"]
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode in (-11, 139)
    sentence = (
        f"conformance: pytest's own process died {when} test_crashes.py::test_last; with '-n 1' a crash costs one"
    )
    assert sentence in done.stdout + done.stderr
    kept = {record.case: record.status.value for record in read_records(project.path / "run").records}
    assert kept.pop("test_crashes.py::test_first") == "pass"
    assert list(kept.values()) in ([], ["crash"], ["pass"])


CLOCKS = """
def test_clocks(recorder):
    recorder.verdict("x", True)
    with recorder.timed("run"):
        time.perf_counter = time.monotonic = time.time = lambda: float("inf")
    time.monotonic = lambda: float("nan")
    time.sleep(30)
"""


def test_a_case_that_replaces_the_clocks_has_a_deadline_and_a_record(project):
    project.suite("clocks", CLOCKS)
    project.run("-n", "1", "--case-timeout", "2")
    assert project.statuses == {"test_clocks": "timeout"}
    assert project.records["test_clocks"].durations["run"] < 1


ORDER_AND_RERUN = """
from _pytest.runner import runtestprotocol
def pytest_collection_modifyitems(items): items.reverse()
def pytest_runtest_protocol(item, nextitem):
    for _ in range(2):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if all(report.passed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


def test_a_case_that_passes_when_it_is_run_again_has_failed(project):
    """Other plugins may order the cases and run one again."""
    project.suite(
        "a",
        "TRIED = []\n"
        "def test_second_time(recorder):\n    TRIED.append(1)\n    recorder.verdict('x', True)\n"
        "    assert len(TRIED) > 1\n"
        "def test_good(recorder): recorder.verdict('x', True)\n",
    )
    (project.path / "conftest.py").write_text(ORDER_AND_RERUN)
    result = project.run("--max-worker-restart", "0", "-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {"test_second_time": "fail", "test_good": "pass"}
    assert project.records["test_second_time"].outcome == "passed"
    assert project.info.problems == ()


def test_a_run_without_a_place_for_its_records_is_refused(project):
    project.suite("a", "def test_a(recorder): recorder.verdict('x', True)\n")
    (project.path / "file").write_text("")
    project.refused("*cannot write records to */file/run *: give --run-dir*", "--run-dir=file/run")
    project.refused("*cannot write records to /proc/run *: give --run-dir*", "--run-dir=/proc/run")
