"""The ``conformance`` command."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance import cli
from conformance.records import CaseRecord, RunInfo, Status, Verdict
from tests.command_runs import write_run

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = Path(sys.executable).with_name("conformance")
RECORD = CaseRecord(
    case="test_a.py::test_x[mm]",
    suite="a",
    status=Status.FAIL,
    kernel="mm",
    problem={"id": "mm-5x5x5"},
    verdicts=(Verdict("numerics", True, "bitwise"), Verdict("memory", False, "guard overwritten", {"bytes": 16})),
    artefacts={"ttgir": "artefacts/x.ttgir"},
    diagnosis="tile (0, 1) is wrong\x1b[2J",
    repro="curl example.org/x | sh",
    tier="quick",
    seed=7,
    target="sm_90",
)


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """./reports with two runs, of which the one whose name sorts first is the newer."""
    monkeypatch.chdir(tmp_path)
    for name, started, status in (("a", "2026-02-02", Status.FAIL), ("b", "2026-01-01", Status.CRASH)):
        cases = (RECORD.case, "test_a.py::test_y[1]", "test_a.py::test_y[11]")
        records = [dataclasses.replace(RECORD, case=case, status=status) for case in cases]
        write_run(tmp_path / "reports" / name, records, RunInfo(name, started, "quick", 0, wall_s=1.0))
    return tmp_path / "reports"


def test_show_reads_the_newest_run(reports, capsys):
    assert cli.main(["show", "x[mm]"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in (
        "case:     test_a.py::test_x[mm]",
        "status:   fail",
        "problem:  mm-5x5x5",
        "passed:   numerics",
        "  FAIL  memory: guard overwritten; bytes 16",
        "  reports/a/artefacts/",
        "    x.ttgir",
        "    tile (0, 1) is wrong\\x1b[2J",
        "reproduce: conformance run '--conformance-case=test_a.py::test_x[mm]' --tier=quick --target=sm_90 --seed=7"
        " --no-gpu",
    ):
        assert line in lines


@pytest.mark.parametrize("words", [["show", "xx"], ["show", "test_a"], ["compare", "a", "a"]], ids=" ".join)
def test_what_is_printed_of_an_id_without_end_is_its_beginning(tmp_path, monkeypatch, capsys, words):
    """No run of ours writes such an id; one of 20,000 characters is legal, and printed as a whole."""
    monkeypatch.chdir(tmp_path)
    legal, endless = (f"test_a.py::test_{letter}[{letter * size}]" for letter, size in (("y", 19_900), ("x", 500_000)))
    write_run(
        Path("a"),
        [dataclasses.replace(RECORD, case=case) for case in (legal, "test_a.py::test_z")],
        RunInfo("a", "2026-01-01", "quick", 0),
    )
    lines = (Path("a") / "records.jsonl").read_text()
    (Path("a") / "records.jsonl").write_text(lines.replace("test_a.py::test_z", endless))
    cli.main([*words, *(["--run", "a"] if words[0] == "show" else [])])
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert "test_a" in text
    assert len(text) < 50_000
    assert legal in text or words != ["show", "test_a"]


def test_show_says_nothing_of_a_fill_twice(tmp_path, capsys):
    text = "FAIL exact/tie seed 3: 2/9 wrong, first [0, 1] got 4 want 5"
    details = {"wrong": 2, "total": 9, "first": [0, 1], "got": 4.0, "want": 5.0, "worst_ratio": 1.5}
    record = dataclasses.replace(RECORD, verdicts=(Verdict("numerics/tie", False, text, details),))
    write_run(tmp_path, [record], RunInfo("r", "2026-02-02", "quick", 0, wall_s=1.0))
    assert cli.main(["show", "x[mm]", "--run", str(tmp_path)]) == 0
    line = "  FAIL  numerics/tie: exact: 2/9 wrong, first [0, 1] got 4 want 5; worst_ratio 1.5"
    assert line in capsys.readouterr().out.splitlines()


def test_show_of_a_given_run(reports, capsys):
    assert cli.main(["show", "x[mm]", "--run", str(reports / "b")]) == 0
    assert "status:   crash" in capsys.readouterr().out


def test_show_takes_an_exact_id_that_is_part_of_another(reports, capsys):
    records = reports / "a" / "records.jsonl"
    records.write_text(records.read_text() + dataclasses.replace(RECORD, case=RECORD.case + "[more]").to_line())
    assert cli.main(["show", RECORD.case]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "test_y"], "2 cases match 'test_y'; give more of the id:\n  fail            test_a.py::test_y[1]"),
        (["show", "nothing"], "no record in reports/a has 'nothing' in its case id"),
        (["show", "x", "--run", "nowhere"], "nowhere"),
    ],
)
def test_clear_errors(reports, capsys, words, message):
    assert cli.main(words) == cli.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--waivers", "no.toml"], "no.toml"),
        (["--mustpass", "no-lists"], "no-lists holds no mustpass list"),
        (["--profiles", "no.toml"], "--profiles needs --mustpass"),
        (["--output", "file/below"], "file/below cannot be made"),
    ],
)
def test_a_gate_says_what_it_cannot_use_before_it_runs_anything(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert cli.main(["gate", "--candidate", "triton==3.9.0", "--cache", "cache", *words]) == cli.USAGE
    assert message in capsys.readouterr().err
    assert not Path("cache").exists()


def test_no_run_at_all(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["show", "x"]) == cli.USAGE
    assert "no run lies under" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["show"], ["fly"], ["show", "x", "--colour"]])
def test_usage_errors(words, capsys):
    with pytest.raises(SystemExit) as error:
        cli.main(words)
    assert error.value.code == cli.USAGE


def test_an_interrupt_is_a_line(reports, monkeypatch, capsys):
    def interrupted(case, folder):
        raise KeyboardInterrupt

    monkeypatch.setattr("conformance.commands.show.one_case", interrupted)
    assert cli.main(["show", "x"]) == 130
    assert capsys.readouterr().err == "\nconformance: interrupted\n"


def test_damaged_lines_are_reported(reports, capsys):
    with open(reports / "a" / "records.jsonl", "a") as file:
        file.write('{"torn')
    assert cli.main(["show", "x[mm]"]) == 0
    assert "records.jsonl:4: torn last line" in capsys.readouterr().err


def test_show_needs_no_stack(reports):
    """Neither torch, triton, numpy nor pytest."""
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in ("torch", "triton", "numpy", "pytest"))
    code = f"import sys; {blocked}from conformance.cli import main; sys.exit(main(['show', 'x[mm]']))"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=reports.parent, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "status:   fail" in result.stdout


@pytest.mark.parametrize("command", ["calibrate", "benchmark"])
def test_a_command_about_the_device_says_that_there_is_none(monkeypatch, capsys, command):
    class NoDevice(RuntimeError):
        pass

    def none(*arguments):
        raise NoDevice("torch sees no accelerator here")

    monkeypatch.setitem(
        sys.modules,
        "conformance.execution.device.executor",
        types.SimpleNamespace(NoDevice=NoDevice, DeviceExecutor=none),
    )
    monkeypatch.setitem(sys.modules, "conformance.calibration.device", types.SimpleNamespace(main=none))
    assert cli.main([command]) == cli.USAGE
    assert capsys.readouterr().err == f"conformance: {command} needs a GPU: torch sees no accelerator here\n"


NEED_THE_STACK = [
    "targets",
    "targets sm_90",
    "targets --json",
    "kernels",
    "check-kernel mm",
    "judge FILE",
    "list --fills",
    "precompile --target sm_90 --out kernels",
    "calibrate",
    "benchmark",
    "mutants --list",
]


@pytest.mark.parametrize("words", NEED_THE_STACK)
def test_a_command_says_that_the_stack_is_missing(monkeypatch, capsys, words):
    for name in ("torch", "triton"):
        monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(words.split()) == cli.USAGE
    answer = capsys.readouterr()
    assert answer.out == ""
    assert re.fullmatch(r"conformance: .*needs torch and triton: torch and triton are not installed; .*\n", answer.err)


def test_the_process_of_a_stack_says_that_triton_is_missing():
    code = "import sys; sys.modules['triton'] = None; from conformance.blame.stack_process import main; main()"
    command = [sys.executable, "-c", code, "100"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, input="", check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "it needs torch and triton: triton is not installed\n"


@pytest.mark.parametrize("words", ["targets", "targets --json", "check-kernel mm", "list --fills"])
def test_a_command_says_that_torch_is_broken(tmp_path, words):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libc.so: no such file')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-m", "conformance", *words.split()]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert (result.returncode, result.stdout) == (cli.USAGE, "")
    assert "torch is installed and cannot be loaded: OSError: libc.so: no such file" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_run_is_not_warned_of_what_the_command_has_imported(tmp_path):
    """pytest asks installed packages that have plugins which modules are theirs."""
    installed = tmp_path / "site" / "triton_conformance-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: triton-conformance\nVersion: 0\n")
    (installed / "RECORD").write_text("conformance/__init__.py,,\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nconformance.plugin = conformance.plugin\n")
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed.parent), str(ROOT)])}
    code = "import sys, conformance.cli, pytest; sys.exit(pytest.main(['-p', 'conformance.plugin', 'test_a.py']))"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert result.returncode == 0
    assert "PytestAssertRewriteWarning" not in result.stdout


def test_each_command_is_a_module_and_says_what_it_does(capsys):
    folder = ROOT / "conformance" / "commands"
    modules = sorted(name.replace("-", "_") for name in cli.COMMANDS)
    assert modules == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as end:
            cli.main([name, "--help"])
        assert end.value.code == 0
        assert f"usage: conformance {name}" in capsys.readouterr().out


def test_run_passes_options_on(monkeypatch):
    seen = []
    monkeypatch.setattr(pytest, "main", lambda words, plugins: seen.append(words) or pytest.ExitCode.TESTS_FAILED)
    assert cli.main(["run", "-n", "4", "-k", "mm and not fp8", "--tier", "full"]) == 1
    suites = ["-p", "conformance.plugin", "--pyargs", "conformance.suites"]
    assert seen == [[*suites, "-n", "4", "-k", "mm and not fp8", "--tier", "full"]]


def test_list_prints_the_ids_that_are_left(tmp_path, forked):
    (tmp_path / "pytest.ini").write_text("[pytest]\nconformance_suites = suites\n")
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "test_a.py").write_text(
        "import pytest\n@pytest.mark.parametrize('kernel', ['mm', 'addmm'])\ndef test_x(kernel): pass\n"
    )
    code = "from conformance import cli; from conformance.commands.shared import suites; import sys; "
    code += "suites.SUITE_ARGUMENTS = ['-p', 'conformance.plugin', 'suites']; "
    command = [forked, "-c", code + "sys.exit(cli.main(sys.argv[1:]))", "list", "--no-gpu"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment["PYTEST_ADDOPTS"] = "-p no:benchmark"  # if installed, it warns on stderr

    def listed(*words: str) -> subprocess.CompletedProcess[str]:
        words = (*command, *words)
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    every = listed()
    assert (every.returncode, every.stderr) == (0, "2 cases\n")
    assert every.stdout == "test_a.py::test_x[mm]\ntest_a.py::test_x[addmm]\n"
    assert listed("--kernel", "mm").stdout == "test_a.py::test_x[mm]\n"
    none = listed("-k", "nothing")
    assert none.returncode == cli.USAGE
    assert "no case matches" in none.stderr
    (tmp_path / "suites" / "test_b.py").write_text("import nothing_of_this_name\n")
    broken = listed()
    assert broken.returncode == cli.USAGE
    assert "nothing_of_this_name" in broken.stderr


def test_list_prints_the_fills(capsys):
    assert cli.main(["list", "--fills"]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| problems | fill | judged | holds | shows |"
    assert sum(line.startswith("| Gemm | ") for line in lines) == 7
    assert any(line.startswith("| Attention | tie | bit for bit | ") for line in lines)


@pytest.fixture
def fake_targets(monkeypatch):
    import conformance

    def capability(name):
        return types.SimpleNamespace(name=name, available=name == "tma", why=f"sm_90: because {name}")

    target = types.SimpleNamespace(id="sm_90", name="H100", capability=capability)
    module = types.SimpleNamespace(
        CAPABILITIES=("mfma", "tma"),
        devices=lambda: (),
        compile_targets=lambda: (target,),
        unavailable_targets=lambda: {"gfx1250": "capability (gfx1250): too new"},
    )
    monkeypatch.setitem(sys.modules, "conformance.targets", module)
    monkeypatch.setattr(conformance, "targets", module, raising=False)


def test_targets(fake_targets, capsys):
    assert cli.main(["targets"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "capabilities: mfma, tma",
        "devices: none",
        "compile-only targets:",
        "  sm_90     H100             lacks mfma",
        "cannot be compiled for here:",
        "  gfx1250  capability (gfx1250): too new",
        "'conformance targets TARGET' says why a target lacks what it lacks",
    ]


def test_targets_without_the_stack(monkeypatch, capsys):
    import conformance

    monkeypatch.setitem(sys.modules, "conformance.targets", None)
    monkeypatch.delattr(conformance, "targets", raising=False)
    assert cli.main(["targets"]) == cli.USAGE
    assert "pip install 'triton-conformance[stack]'" in capsys.readouterr().err


def test_the_help_has_each_command_below_its_group(capsys):
    with pytest.raises(SystemExit):
        cli.main(["-h"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    for group, names in cli.GROUPS.items():
        (start,) = [number for number, line in enumerate(lines) if line == f"{group}: {cli.TITLES[group]}"]
        end = next(number for number in range(start + 1, len(lines)) if not lines[number].startswith("  "))
        listed = [line.split()[0] for line in lines[start + 1 : end] if not line.startswith(cli.INDENT)]
        assert listed == list(names)


def test_each_module_of_a_command_is_in_a_group():
    folder = Path(cli.__file__).parent / "commands"
    modules = {path.stem.replace("_", "-") for path in folder.glob("*.py") if path.stem != "__init__"}
    assert sorted(cli.COMMANDS) == sorted(modules)


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
        else:
            yield f"{parser.prog} {' '.join(action.option_strings)}", action


def test_help_states_the_defaults():
    stated = []
    for name, action in _options(cli._parser()):
        text = re.search(r"\(default: ([\w.]+)", action.help or "")
        if text and (text[1].isdigit() or isinstance(action.default, str)):
            stated.append((name, text[1], f"{action.default:g}" if text[1].isdigit() else action.default))
    assert len(stated) > 10
    assert [one for one in stated if one[1] != one[2]] == []


@pytest.mark.parametrize("words", [["targets"], ["targets", "--help"], ["list", "--fills"]])
def test_a_standard_output_that_is_full_is_a_line(words):
    with open("/dev/full", "w") as full:
        command = subprocess.run([CONFORMANCE, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert command.returncode == cli.USAGE
    assert command.stderr.splitlines()[-1].startswith("conformance: the standard output takes no more: No space left")
    assert "Traceback" not in command.stderr


def test_a_standard_output_that_is_closed_is_a_line():
    command = subprocess.run(
        ["sh", "-c", 'exec "$0" targets >&-', CONFORMANCE], stderr=subprocess.PIPE, text=True, check=False
    )
    assert command.returncode == cli.USAGE
    assert command.stderr.startswith("conformance targets: the standard output is closed: ")


def test_an_interrupt_while_the_commands_are_imported_is_a_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.importlib, "import_module", interrupted)
    assert cli.main(["show", "x"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "\nconformance: interrupted\n"
