"""Runs of stacks are whole, or an error; and a whole one is used again until something that decides it changes."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from conformance.gate import running
from conformance.gate.environments import Environment
from conformance.gate.running import Abilities, RunError, abilities, complete, run
from conformance.gate.stacks import parse

#: Stands in for the command: a run with one case, or what a variable of its environment says.
COMMAND = """
import os, sys
from pathlib import Path
from conformance.records import CaseRecord, RunInfo, Status, jsonable
import json
does = os.environ.get("DOES", "")
if sys.argv[1] == "targets":
    sys.stdout.buffer.write(os.fsencode(os.environ["SAYS"])); sys.exit()
folder = Path(sys.argv[sys.argv.index("--run-dir") + 1]); folder.mkdir(parents=True)
problems = ("1 selected but not recorded",) if does == "lose" else ()
wall = None if does == "die" else 1.0
info = RunInfo("id", "2026-01-01T00:00:00", "quick", 0, selected=1, wall_s=wall, problems=problems)
(folder / "run.json").write_text(json.dumps(jsonable(info)))
(folder / "records.jsonl").write_text(CaseRecord("case", "suite", Status.PASS).to_line())
print("what happened")
if does == "hang":
    import time; time.sleep(60)
sys.exit(int(does) if does.isdigit() else 0)
"""
SAYS = '{"stack": {"triton": "4.0"}, "targets": ["sm_90"], "lacking": {}, "devices": [], "interpreter": null}'
CAN = Abilities({"triton": "4.0"}, ("sm_90",), {}, (), None)


@dataclass(frozen=True)
class Standing(Environment):
    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", COMMAND, *arguments]


def environment(folder: Path, **variables: str) -> Environment:
    folder.mkdir(exist_ok=True)
    package = str(Path(running.__file__).parents[2])
    return Standing(parse("current"), folder, {"PYTHONPATH": package, "SAYS": SAYS, **variables})


def started(tmp_path: Path, options: tuple[str, ...] = (), can: Abilities = CAN, **variables: str) -> tuple[Path, bool]:
    return run(environment(tmp_path / "stack", **variables), can, options, tmp_path / "cache", lambda text: None)


def test_a_run_is_made_once(tmp_path: Path) -> None:
    folder, reused = started(tmp_path)
    assert complete(folder)
    assert not reused
    assert started(tmp_path) == (folder, True)


@pytest.mark.parametrize("code", ["0", "1"])
def test_failing_cases_make_a_run_no_less_whole(tmp_path: Path, code: str) -> None:
    assert complete(started(tmp_path, DOES=code)[0])


def test_other_options_versions_or_code_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {started(tmp_path)[0], started(tmp_path, ("--tier", "full"))[0]}
    folders.add(started(tmp_path, can=dataclasses.replace(CAN, stack={"triton": "4.1"}))[0])
    folders.add(started(tmp_path, can=dataclasses.replace(CAN, devices=("device",)))[0])
    twice = run(environment(tmp_path / "stack"), CAN, (), tmp_path / "cache", lambda text: None, again=1)
    folders.add(twice[0])
    stack = dataclasses.replace(parse("current"), variables=(("ANY", "1"),))
    varied = dataclasses.replace(environment(tmp_path / "stack"), stack=stack)
    folders.add(run(varied, CAN, (), tmp_path / "cache", lambda text: None)[0])
    monkeypatch.setattr(running, "code_digest", lambda: "other code")
    folders.add(started(tmp_path)[0])
    assert len(folders) == 7


@pytest.mark.parametrize("name", ["TRITON_DEFAULT_FP_FUSION", "PYTEST_ADDOPTS"])
def test_a_variable_that_can_change_results_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first, _ = started(tmp_path)
    monkeypatch.setenv(name, "-q")
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


@pytest.mark.parametrize("does", ["die", "lose", "3", "5"])
def test_a_run_that_is_not_whole_is_an_error_and_is_never_used(tmp_path: Path, does: str) -> None:
    for _ in range(2):
        with pytest.raises(RunError, match=r"(?s)is not whole; its log is .*what happened"):
            started(tmp_path, DOES=does)
    assert not started(tmp_path)[1]


def test_an_interrupted_run_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(text: str) -> None:
        if "1 cases" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(running, "LOOK_SECONDS", 0.1)
    processes = []
    popen = running.subprocess.Popen
    monkeypatch.setattr(running.subprocess, "Popen", lambda *a, **k: processes.append(popen(*a, **k)) or processes[-1])
    hanging = environment(tmp_path / "stack", DOES="hang")
    with pytest.raises(KeyboardInterrupt):
        run(hanging, CAN, (), tmp_path / "cache", interrupt)
    assert processes[0].poll() is not None


def test_abilities_are_what_the_environment_says(tmp_path: Path) -> None:
    assert abilities(environment(tmp_path / "stack")) == CAN


@pytest.mark.parametrize("says", ["", "Traceback", "{}", '{"stack": {}}', "\udcff"])
def test_an_environment_that_does_not_start_is_an_error_at_the_start(tmp_path: Path, says: str) -> None:
    with pytest.raises(RunError, match="stack 'current' does not start"):
        abilities(environment(tmp_path / "stack", SAYS=says))
