"""Each case has its whole deadline, and no case has more. Time in which all processes were stopped is none of it."""

import threading
from types import SimpleNamespace

import pytest

from conformance.machine import awake_time
from conformance.plugin import watchdog


class Clock:
    """Stands in for the module ``time`` of one thread that sleeps."""

    def __init__(self):
        self.now = self._asleep_until = 0.0
        self._changed = threading.Condition()

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        with self._changed:
            self._asleep_until = self.now + seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.now >= self._asleep_until)

    def advance(self, seconds, step=0.5):
        """Returns when the thread sleeps again. Time passes in steps: a longer one is that of a stopped process."""
        with self._changed:
            for _ in range(int(seconds / step)):
                self.now += step
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: self._asleep_until > self.now, timeout=60)


pytest_plugins = ["pytester"]


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)
    monkeypatch.setattr(awake_time, "monotonic", clock.monotonic)
    return clock


class Watching(watchdog.Watchdog):
    """Notes the cases that are late, and lets the process live."""

    def __init__(self, folder):
        super().__init__(10.0, folder / "stacks.txt", None, lambda record: None)
        self.late = []

    def _expired(self, recorder):
        self.late.append(recorder.case)
        self._watched = None


def test_each_case_has_the_whole_deadline(tmp_path, clock):
    dog = Watching(tmp_path)
    for case, seconds in [("first", 6), ("second", 6), ("third", 9), ("slow", 11), ("last", 6)]:
        with dog.watching(SimpleNamespace(case=case, stage="")):
            clock.advance(seconds)
        clock.advance(3)  # it waits for its next case
    assert dog.late == ["slow"]


def test_time_in_which_the_process_was_stopped_is_none_of_the_case(tmp_path, clock):
    dog = Watching(tmp_path)
    with dog.watching(SimpleNamespace(case="stopped", stage="")):
        clock.advance(4)
        clock.advance(3600, step=3600)
        clock.advance(3)
    assert dog.late == []


#: Short times for what a user waits longer for.
QUICK = """
from conformance.machine.awake_time import AwakeTime
from conformance.plugin import watchdog, worker_watch
AwakeTime.LOOK_S = worker_watch.LOOK_S = 0.1
watchdog.LOCK_GRACE_S = 0.5
"""
PAUSED = """
import subprocess
def test_paused(recorder):
    processes = f"{os.getpid()} {os.environ['CONFORMANCE_RUN_PROCESS']}"
    words = f"kill -STOP {processes}; sleep 4; kill -CONT {processes}"
    pause = subprocess.Popen(["sh", "-c", words], start_new_session=True)
    time.sleep(0.2)
    assert pause.wait() == 0
    recorder.verdict("x", True)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_pause_of_all_processes_is_no_time_out(project, workers):
    (project.path / "conftest.py").write_text(QUICK)
    project.suite("paused", PAUSED)
    project.run("-n", workers, "--case-timeout", "2")
    assert project.statuses == {"test_paused": "pass"}
    assert project.info.wall_s > 4


@pytest.mark.parametrize("suite", ["def test_held(recorder): 3 ** 10**9\n", "3 ** 10**9\n"], ids=["case", "import"])
def test_what_holds_the_lock_without_workers_ends_the_run(new_python, project, suite):
    (project.path / "conftest.py").write_text(QUICK)
    project.suite("held", suite)
    result = project.run("--case-timeout", "0.5")
    assert result.ret == -9
    result.stderr.fnmatch_lines(["*test_held.py*", "conformance: the interpreter's lock was held for * s*"])


def test_threads_that_a_suite_leaves_do_not_keep_a_run_from_ending(project):
    (project.path / "conftest.py").write_text(
        "from conformance.machine import process_exit\nprocess_exit.THREADS_S = 0.1\n"
    )
    thread = "import threading\nthreading.Thread(target=time.sleep, args=(60,), name='sleeper').start()\n"
    project.suite("threads", f"{thread}def test_bad(recorder): recorder.verdict('x', False)\n")
    result = project.run("-n", "0")
    assert (result.ret, project.statuses) == (1, {"test_bad": "fail"})
    result.stdout.fnmatch_lines(["*the process ends although threads run on that a suite has started: sleeper*"])
