"""A run of a stack is whole or an error. A whole one is used again until something changes that decides its results."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import io
import json
import os
import pty
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from conformance.cases.known_names import UnknownName
from conformance.commands.shared import gate_runs
from conformance.faults import FaultClass
from conformance.gate.stacks import stack_runs as running
from conformance.gate.stacks.environments import Environment
from conformance.gate.stacks.stack_file import parse
from conformance.gate.stacks.stack_runs import Abilities, NoRun, RunError, abilities, complete, run
from conformance.records import RunInfo, jsonable
from conformance.reporting import progress
from conformance.user_files.case_list import kept_case_list
from tests.forked_python import executable

#: Stands in for the command: a run with one case, or what a variable of its environment says.
COMMAND = """
import gzip, os, sys
from pathlib import Path
from conformance.records import CaseRecord, RunInfo, Status, jsonable
import json
does = os.environ.get("DOES", "")
if sys.argv[1] == "targets":
    sys.stdout.buffer.write(os.fsencode(os.environ["SAYS"])); sys.exit()
if sys.argv[1] == "list":
    if does:
        sys.exit("no case matches these filters" if does == "nothing" else print("broken", file=sys.stderr) or 4)
    print(sys.argv[-1]); sys.exit()
if does == "nothing at all":
    sys.exit(print("what happened") or 4)
folder = Path(sys.argv[sys.argv.index("--run-dir") + 1]); folder.mkdir(parents=True)
problems = ("1 selected but not recorded",) if does == "lose" else ()
wall = None if does == "die" else 1.0
info = RunInfo("id", "2026-01-01T00:00:00", "quick", 0, selected=1, wall_s=wall, problems=problems)
(folder / "run.json").write_text(json.dumps(jsonable(info)))
line = CaseRecord("case", "suite", Status.FAIL).to_line()
(folder / "records.jsonl.gz").write_bytes(gzip.compress(line.encode()))
print("what happened", *sys.argv[1:])
if does == "hang":
    import time; time.sleep(60)
if does == "workers":  # that do not end by themselves, and a terminal's signal
    import signal, subprocess, time
    signal.signal(signal.SIGINT, lambda number, frame: print("asked to end", flush=True))
    worker = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); "
    child = subprocess.Popen([sys.executable, "-c", worker + "time.sleep(60)"], stdout=subprocess.PIPE)
    child.stdout.readline()
    Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(60)
if does == "change":
    Path(os.environ["PLACE"]).write_text("changed = True")
sys.exit(int(does) if does.isdigit() else 0)
"""
SAYS = """{
    "stack": {"triton": "4.0"}, "targets": ["sm_90"], "lacking": {}, "devices": [], "interpreter": null,
    "kernels": ["mm"]
}"""
CAN = Abilities({"triton": "4.0"}, ("sm_90",), {}, (), None, ("mm",))


DIGEST = running.folder_digest
KEPT = functools.cache(DIGEST)
SITE = sysconfig.get_paths()["purelib"]


@pytest.fixture(autouse=True)
def unchanged_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps edits of the harness meanwhile from changing the runs of these tests. Installed packages have the digest
    that they had first: to look at all their files takes a second."""
    monkeypatch.setattr(running, "code_digest", lambda: "the code")
    monkeypatch.setattr(running, "folder_digest", lambda path: (KEPT if SITE in str(path) else DIGEST)(path))


@dataclass(frozen=True)
class Standing(Environment):
    def command(self, *arguments: str) -> list[str]:
        return [executable(), "-c", COMMAND, *arguments]


def environment(folder: Path, **variables: str) -> Environment:
    folder.mkdir(exist_ok=True)
    package = str(Path(running.__file__).parents[3])
    return Standing(parse("current"), folder, {"PYTHONPATH": package, "SAYS": SAYS, **variables})


def started(tmp_path: Path, options: tuple[str, ...] = (), can: Abilities = CAN, **variables: str) -> tuple[Path, bool]:
    return run(environment(tmp_path / "stack", **variables), can, options, tmp_path / "cache", lambda text: None)


def test_a_run_is_made_once(tmp_path: Path) -> None:
    folder, reused = started(tmp_path)
    assert complete(folder)
    assert not reused
    assert started(tmp_path) == (folder, True)


@pytest.mark.parametrize("damage", ["torn", "changed", "missing", "run", "list"])
def test_a_kept_run_that_is_damaged_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    folder, _ = started(tmp_path)
    records = folder / "records.jsonl.gz"
    content = records.read_bytes()
    if damage == "torn":
        records.write_bytes(content[:-9])
    elif damage == "changed":
        records.write_bytes(gzip.compress(gzip.decompress(content).replace(b"fail", b"oom", 1)))
    elif damage == "missing":
        records.unlink()
    else:
        (folder / {"run": "run.json", "list": "kept.json"}[damage]).write_text("[" * 100_000)
    assert started(tmp_path) == (folder, False)
    assert gzip.decompress(records.read_bytes()) == gzip.decompress(content)
    assert f"the kept run {folder} is damaged: it is made again" in capsys.readouterr().err
    assert started(tmp_path) == (folder, True)


@pytest.mark.parametrize("code", ["0", "1"])
def test_failing_cases_make_a_run_no_less_whole(tmp_path: Path, code: str) -> None:
    assert complete(started(tmp_path, DOES=code)[0])


def test_other_options_versions_or_code_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {started(tmp_path)[0], started(tmp_path, ("--tier", "full"))[0]}
    folders.add(started(tmp_path, can=dataclasses.replace(CAN, stack={"triton": "4.1"}))[0])
    folders.add(started(tmp_path, can=dataclasses.replace(CAN, devices=("device",)))[0])
    declared = {"mine": {"by": "entry point", "thresholds": {"SLOWER": {"share": 0.1}}}}
    folders.add(started(tmp_path, can=dataclasses.replace(CAN, declared=declared))[0])
    twice = run(environment(tmp_path / "stack"), CAN, (), tmp_path / "cache", lambda text: None, again=1)
    folders.add(twice[0])
    stack = dataclasses.replace(parse("current"), variables=(("ANY", "1"),))
    varied = dataclasses.replace(environment(tmp_path / "stack"), stack=stack)
    folders.add(run(varied, CAN, (), tmp_path / "cache", lambda text: None)[0])
    monkeypatch.setattr(running, "code_digest", lambda: "other code")
    folders.add(started(tmp_path)[0])
    assert len(folders) == 8


@pytest.mark.parametrize("name", ["TRITON_DEFAULT_FP_FUSION", "PTXAS_OPTIONS", "PYTEST_ADDOPTS"])
def test_a_variable_that_can_change_results_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first, _ = started(tmp_path)
    monkeypatch.setenv(name, "-q")
    assert started(tmp_path)[0] != first


def test_a_withheld_value_is_part_of_what_tells_runs_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_KEY", "one")
    first, _ = started(tmp_path)
    monkeypatch.setenv("TRITON_KEY", "two")
    assert started(tmp_path)[0] != first


@pytest.mark.parametrize("place", ["triton/__init__.py", "vendor_kernels.py"])
def test_a_package_changed_in_place_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    point = metadata.EntryPoint("mine", "vendor_kernels:KERNEL", "conformance.kernels")
    monkeypatch.setattr(running.metadata, "entry_points", lambda group: [point])
    first, _ = started(tmp_path)
    assert started(tmp_path) == (first, True)
    file.write_text("changed = True\n")
    assert started(tmp_path)[0] != first


@pytest.mark.parametrize("does", ["die", "lose"])
def test_a_run_that_is_not_whole_says_so_and_is_never_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], does: str
) -> None:
    for _ in range(2):
        folder, reused = started(tmp_path, DOES=does)
        assert not reused
        assert not complete(folder)
        assert "the run is not whole (exit status 0); its log is " in capsys.readouterr().err
    assert not started(tmp_path)[1]


@pytest.mark.parametrize("does", ["3", "75", "nothing at all"])
def test_a_run_that_ends_badly_and_says_nothing_of_it_is_an_error(tmp_path: Path, does: str) -> None:
    for _ in range(2):
        with pytest.raises(NoRun, match=r"(?s)is not whole; its log is .*what happened") as error:
            started(tmp_path, DOES=does)
        assert error.value.fault.fault_class is FaultClass.INFRASTRUCTURE
        assert "what happened" in error.value.fault.text
    assert not started(tmp_path)[1]


def test_an_interrupted_run_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(text: str) -> None:
        if "collecting" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(running, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(running, "END_SECONDS", 2)  # a shell's background jobs are told to ignore the interrupt
    processes = []
    popen = running.subprocess.Popen
    monkeypatch.setattr(running.subprocess, "Popen", lambda *a, **k: processes.append(popen(*a, **k)) or processes[-1])
    hanging = environment(tmp_path / "stack", DOES="hang")
    with pytest.raises(KeyboardInterrupt):
        run(hanging, CAN, (), tmp_path / "cache", interrupt)
    assert processes[0].poll() is not None


def test_a_failed_attempt_is_there_until_the_next_begins(tmp_path: Path) -> None:
    runs = tmp_path / "cache" / "runs"
    logs = []
    for _ in range(3):
        folder, _ = started(tmp_path, DOES="die")
        (log,) = runs.glob("*.log")
        assert folder == log.with_suffix("")
        assert "what happened" in log.read_text()
        assert [path for path in runs.iterdir() if path.is_dir()] == [log.with_suffix("")]
        logs.append(log)
    assert len(set(logs)) == 3
    folder, _ = started(tmp_path)
    assert [path for path in runs.iterdir() if path.is_dir()] == [folder]


def test_an_attempt_that_another_process_is_at_stays(tmp_path: Path) -> None:
    started(tmp_path, DOES="die")
    (log,) = (tmp_path / "cache" / "runs").glob("*.log")
    with log.open("rb") as held:
        running.fcntl.flock(held, running.fcntl.LOCK_EX)
        started(tmp_path)
        assert log.exists()
        assert log.with_suffix("").exists()


def test_who_loses_the_race_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = running._attempt

    def slower(*arguments: object) -> int:
        status = attempt(*arguments)
        monkeypatch.setattr(running, "_attempt", attempt)
        started(tmp_path)  # another process, from beginning to end
        return status

    monkeypatch.setattr(running, "_attempt", slower)
    monkeypatch.setattr(running, "_forget_attempts", lambda folder: None)
    folder, _ = started(tmp_path)
    assert complete(folder)
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]
    assert len(list(folder.parent.glob("*.log"))) == 1


@pytest.mark.parametrize("place", ["vendor_kernels.py", "stack/site/triton/__init__.py"])
def test_a_run_during_which_packages_changed_is_of_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = metadata.EntryPoint("mine", "vendor_kernels:KERNEL", "conformance.kernels")
    monkeypatch.setattr(running.metadata, "entry_points", lambda group: [point])
    with pytest.raises(RunError, match="or the packages of 'current', changed during the run"):
        started(tmp_path, DOES="change", PLACE=str(file))
    assert not any(complete(path) and "-" not in path.name for path in (tmp_path / "cache" / "runs").iterdir())
    assert not started(tmp_path)[1]


def test_a_run_during_which_the_harness_changed_is_of_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter(["one", "another"])
    monkeypatch.setattr(running, "code_digest", lambda: next(codes))
    with pytest.raises(RunError, match=r"the harness's code, .* changed during the run"):
        started(tmp_path)


def test_two_runs_of_one_gate_are_judged_by_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = iter(["one", "one", "another"])
    monkeypatch.setattr(gate_runs, "code_digest", lambda: next(judges))
    monkeypatch.setattr(gate_runs, "run", lambda *arguments: (tmp_path, False))
    monkeypatch.setattr(gate_runs, "build", lambda resolved, say: environment(tmp_path / "stack"))
    monkeypatch.setattr(gate_runs, "abilities", lambda stack: dataclasses.replace(CAN, stack={"harness": "one"}))
    with pytest.raises(RunError, match="the harness's code changed before the run with 'current' began"):
        gate_runs.runs([parse("current")] * 2, [], [], [], tmp_path, gate_runs.Stages(5))


@pytest.fixture
def old_and_new(tmp_path: Path, monkeypatch):
    """Runs two stacks with targets and kernels that the user named; the old one alone has the kernel "lost"."""
    stacks = [dataclasses.replace(parse("current"), name=name) for name in ("old", "new")]
    can = {name: dataclasses.replace(CAN, stack={"harness": "one"}, kernels=("mm",)) for name in ("old", "new")}
    can["old"] = dataclasses.replace(can["old"], kernels=("mm", "lost"))
    monkeypatch.setattr(gate_runs, "code_digest", lambda: "one")
    monkeypatch.setattr(gate_runs, "run", lambda *arguments: (tmp_path, False))
    monkeypatch.setattr(gate_runs, "build", lambda resolved, say: Standing(resolved.stack, tmp_path, {}))
    monkeypatch.setattr(gate_runs, "abilities", lambda environment: can[environment.stack.name])
    return lambda targets, kernels, *more: gate_runs.runs(
        stacks, [], targets, kernels, tmp_path, gate_runs.Stages(5), *more
    )


@pytest.mark.parametrize(
    ("targets", "kernels", "message"),
    [
        ((), ("mm", "lost", "lsot"), "--kernel lsot: there is no such kernel; did you mean lost"),
        (("cuda:90", "sm_9"), (), "stack 'old' cannot compile for sm_9: it knows no such target"),
        ((), ("lost",), "stack 'new' has no kernel lost: there is nothing to run with it"),
    ],
)
def test_a_name_that_no_stack_knows_is_refused_before_the_first_run(old_and_new, targets, kernels, message) -> None:
    with pytest.raises((RunError, UnknownName), match=message):
        old_and_new(targets, kernels)


def test_a_kernel_that_one_stack_lacks_is_said(old_and_new, capsys) -> None:
    assert len(old_and_new(("device:0", "sm_90"), ("mm", "lost"))) == 2
    assert "new: lacks the kernel lost" in capsys.readouterr().err.splitlines()


CASE = "test_rows.py::test_row[mm-32x32-s2-sm_90]"


@pytest.mark.parametrize(
    ("configs", "cases", "message"),
    [
        (("32x32-s2", "32x32-s9"), (), "--config 32x32-s9: no case with .* has it"),
        ((), (CASE, f"{CASE}x", f"{CASE}y"), r"--cases: .*sm_90]x \(and 1 more\): there is no such case with"),
        ((), (CASE,), "stack 'new' has no case .*: there is nothing to run with it"),
    ],
)
def test_a_case_that_no_stack_has_is_refused_before_the_first_run(
    old_and_new, tmp_path: Path, monkeypatch, configs, cases, message
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(gate_runs, "run", lambda *arguments: ran.append("run"))
    lists = {"old": {CASE}, "new": set() if cases == (CASE,) else {CASE}}
    monkeypatch.setattr(gate_runs, "listed", lambda environment, options: lists[environment.stack.name])
    with pytest.raises((RunError, UnknownName), match=message):
        old_and_new((), (), configs, cases)
    assert not ran


def test_a_case_that_one_stack_lacks_is_run_with_the_other(old_and_new, monkeypatch) -> None:
    lists = {"old": {CASE, f"{CASE}x"}, "new": {CASE}}
    monkeypatch.setattr(gate_runs, "listed", lambda environment, options: lists[environment.stack.name])
    ran = []
    monkeypatch.setattr(gate_runs, "run", lambda *arguments: ran.append(arguments[-1]) or (Path(), False))
    assert len(old_and_new((), (), ("32x32-s2",), (CASE, f"{CASE}x"))) == 2
    assert ran == [2, 2], "no more workers than cases"


def test_a_run_has_no_more_workers_than_cases(tmp_path: Path) -> None:
    run(environment(tmp_path / "stack"), CAN, (), tmp_path / "cache", lambda text: None, case_count=2)
    (log,) = (tmp_path / "cache" / "runs").glob("*.log")
    assert "run -n auto --maxprocesses=2 -q --run-dir" in log.read_text()


def test_what_an_environment_lists(tmp_path: Path) -> None:
    assert running.listed(environment(tmp_path / "a"), ["--tier", "quick", CASE]) == {CASE}
    assert running.listed(environment(tmp_path / "b", DOES="nothing"), []) == set()
    with pytest.raises(RunError, match=r"cannot list its cases .exit 4.:\nbroken"):
        running.listed(environment(tmp_path / "c", DOES="break"), [])


def test_the_same_list_is_the_same_file(tmp_path: Path) -> None:
    one, again = (kept_case_list(cases, tmp_path) for cases in ({"b", "a"}, ("a", "b")))
    assert (one, one.read_text()) == (again, "a\nb\n")
    assert kept_case_list({"a"}, tmp_path) != one


def test_the_gate_says_which_stage_begins_and_how_long_the_run_before_took(old_and_new, tmp_path: Path, capsys) -> None:
    run = RunInfo("id", "2026-01-01T00:00:00", "quick", 0, wall_s=130.0)
    (tmp_path / "run.json").write_text(json.dumps(jsonable(run)))
    old_and_new((), ())
    stages = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert [line.partition(" ")[0] for line in stages] == ["[1/5]", "[2/5]", "[3/5]", "[4/5]"]
    assert stages[2:] == ["[3/5] old: the suites run", "[4/5] new: the suites run; with old they took 2 min"]


def test_the_gate_shows_how_far_a_run_is(tmp_path: Path, monkeypatch, capsys) -> None:
    """Every hundredth of a second here, instead of every minute; no sign that moves a terminal's cursor."""
    said: list[str] = []
    assert running._progress(tmp_path) == "starting"
    (tmp_path / "progress.txt").write_text("3 of 9 cases, 1 failing\nslowest now: 2 s in x\x1b[2Jy")
    monkeypatch.setattr(gate_runs.ProgressDisplay.__init__, "__defaults__", (None, 0.01))
    with gate_runs._progress("candidate") as say:
        say(running._progress(tmp_path))
        end = time.monotonic() + 20
        while not said and time.monotonic() < end:
            time.sleep(0.02)
            said += capsys.readouterr().err.splitlines()
    assert said[-1].startswith("candidate: 3 of 9 cases, 1 failing; slowest now: 2 s in x")
    assert "\x1b" not in "".join(said)
    assert "\r" not in "".join(said)


def alive(process: int) -> bool:
    """Returns True if ``process`` runs: one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(processes: list[int]) -> bool:
    end = time.monotonic() + 20
    while any(map(alive, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, processes))


#: Runs the stand-in in its terminal. What runs these tests may have been told to ignore signals, which is inherited.
GATE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
import sys
from pathlib import Path
from tests.gate import test_stack_runs
from conformance.commands.shared import gate_runs
from conformance.faults import FaultClass
from conformance.gate.stacks import stack_runs as running
running.LOOK_SECONDS, running.END_SECONDS = 0.1, 1
folder = Path(sys.argv[1])
test_stack_runs.started(folder, DOES="workers", PIDS=str(folder / "pids"))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("how", ["ctrl-c", signal.SIGTERM, signal.SIGHUP])
def test_what_ends_the_gate_asks_its_run_once_and_ends_all_of_it(tmp_path: Path, how: str | signal.Signals) -> None:
    terminal, its_end = pty.openpty()
    package = str(Path(running.__file__).parents[3])
    code = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{GATE}"  # its terminal from now on
    gate = subprocess.Popen(
        [executable(), "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": package},
        stdin=its_end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        pids, end = tmp_path / "pids", time.monotonic() + 60
        while not (pids.exists() and pids.read_text()):
            assert gate.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        started_ones = [int(pid) for pid in pids.read_text().split()]
        assert all(map(alive, started_ones))
        if isinstance(how, str):
            os.write(terminal, b"\x03")
        else:
            gate.send_signal(how)
        gate.wait(30)
        assert ended(started_ones)
        (log,) = (tmp_path / "cache" / "runs").glob("*.log")
        assert log.read_text().count("asked to end") == 1
    finally:
        gate.kill()
        gate.wait()
        os.close(terminal)
        os.close(its_end)


def test_abilities_are_what_the_environment_says(tmp_path: Path) -> None:
    assert abilities(environment(tmp_path / "stack")) == CAN


@pytest.mark.parametrize("says", ["", "Traceback", "{}", '{"stack": {}}', "\udcff"])
def test_an_environment_that_does_not_start_is_an_error_at_the_start(tmp_path: Path, says: str) -> None:
    with pytest.raises(RunError, match="stack 'current' does not start"):
        abilities(environment(tmp_path / "stack", SAYS=says))


@pytest.mark.parametrize("terminal", [True, False])
def test_the_name_of_a_stack_hides_no_progress(monkeypatch, terminal):
    """A wheel's path may be as long as a line; the counts must stay on the screen."""
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(progress.ProgressDisplay.__init__, "__defaults__", (None, 0.01))
    if terminal:
        pytest.importorskip("rich.live")
    name = "/folder/" * 10 + "triton.whl"
    with gate_runs._progress(name) as say:
        say("3 of 7 kernels compiled, about 9 s left\ntime left at the pace so far")
        end = time.monotonic() + 20
        while "3 of 7" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    text = stream.getvalue()
    assert "3 of 7 kernels compiled, about 9 s left" in text
    assert (name in text) is not terminal
    assert ("\x1b" in text) is terminal


def test_a_baseline_is_run_as_often_as_asked_each_time_for_itself(tmp_path: Path, monkeypatch, capsys) -> None:
    """Equal stacks share no run: what the baseline shows now and then would hide in the candidate's."""
    asked: list[tuple[str, int]] = []

    def run(environment, can, options, cache, say, again, case_count):
        asked.append((environment.stack.name, again))
        return tmp_path / f"{environment.stack.name}-{again}", False

    monkeypatch.setattr(gate_runs, "run", run)
    monkeypatch.setattr(gate_runs, "code_digest", lambda: "one")
    monkeypatch.setattr(gate_runs, "build", lambda resolved, say: Standing(resolved.stack, tmp_path, {}))
    monkeypatch.setattr(gate_runs, "abilities", lambda environment: dataclasses.replace(CAN, stack={"harness": "one"}))
    stacks = [parse("current"), parse("current", "candidate")]
    stages = gate_runs.Stages(6)
    baseline, candidate = gate_runs.runs(stacks, ["--tier", "full"], [], [], tmp_path, stages, again={0: 2})
    assert asked == [("current", 0), ("candidate", 1), ("current", 2), ("current", 3)]
    assert baseline.repeats == (tmp_path / "current-2", tmp_path / "current-3")
    assert (candidate.repeats, candidate.options) == ((), ("--tier", "full"))
    stages_begun = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert stages_begun[-1] == "[6/6] current: the suites run once more (3 of 3)"
