"""Mistakes of a user who has only the README: each answer is a line or two, at once, and names the fault."""

from __future__ import annotations

import dataclasses
import time

import pytest

from conformance import cli, commands
from conformance.records import CaseRecord, RunInfo, Status
from tests.command_runs import write_run

PASSED = CaseRecord("test_a.py::test_x[mm-a]", "a", Status.FAIL, kernel="mm", tier="quick", seed=0)
GATE = ("gate", "--cache", "cache", "--candidate")
#: Words of the command line, and the text that the answer has. The exit status is 2, or pytest's 4 for ``run``.
WRONG = [
    ("", "the following arguments are required: COMMAND"),
    ("fly", "COMMAND fly: there is no such choice"),
    ("gat", "did you mean gate?"),
    ("blame mm --good current --bad current", "'mm' is a part of a case's id: give the whole id"),
    ("blame test_a.py::test_x[mm] --good current --bad current --symptom spils", "did you mean spills?"),
    ("blame test_a.py::test_x[mm] --good current", "the following arguments are required: --bad"),
    ("blame test_a.py::test_x[mm] --good tritn==3.8.0 --bad current", "did you mean triton?"),
    ("blame test_a.py::test_x[mm] --good current --bad current --timeout 0", "'0': a number, 1 or more, is required"),
    ("targest", "did you mean targets?"),
    ("watch", "'nothing' stands behind '--': a command of pytest is required"),
    ("watch -- make test", "'make test' stands behind '--': a command of pytest is required"),
    ("watch --run-dir words.txt -- pytest", "--run-dir words.txt: exists and is not an empty folder; give a new one"),
    (("gate", "--candidate", "current", "--watch", "make test"), "'make test' stands behind '--watch'"),
    (
        ("gate", "--candidate", "current", "--watch", "pytest", "--tier", "full"),
        "--tier contradicts --watch, which runs your own suite: give pytest's options there",
    ),
    (
        ("gate", "--candidate", "current", "--watch", "pytest", "--target", "sm_90", "--target", "sm_80"),
        "--target sm_80: --watch compiles for one target",
    ),
    ("kernels mm", "'mm' is one word too many"),
    ("kernels --markdwn", "did you mean --markdown?"),
    ("run --suite transpositoin", "--suite transpositoin: there is no such suite; did you mean transposition?"),
    ("run --target sm_99", "--target sm_99: there is no such target; did you mean sm_90?"),
    ("run --target gfx900", "--target gfx900: there is no such target; did you mean gfx950?"),
    ("run --tier quik", "--tier quik: there is no such tier; did you mean quick?"),
    ("run --teir quick", "--teir: there is no such option; did you mean --tier?"),
    ("run --seed x", "--seed: invalid int value: 'x'"),
    ("run --gpus -3", "--gpus -3: a number of GPUs, 0 or more, is required"),
    ("run --gpus 1 --no-gpu", "--no-gpu contradicts --gpus 1"),
    ("run --case-timeout 0", "--case-timeout 0: seconds from above 0 to 3.1536e+07 are required"),
    ("run --conformance-case test_nope.py::test_x[y]", "--conformance-case test_nope.py::test_x[y]: suite nope"),
    (
        "run --conformance-case test_scaling.py::test_scale[y]",
        "there is no such test; did you mean test_scales?",
    ),
    (
        "run transposition",
        "transposition: there is no such file or module of suites; did you mean --suite transposition?",
    ),
    ("run nowhere/test_a.py", "nowhere/test_a.py: there is no such file or module of suites"),
    (
        "list conformance.suites.test_scalin",
        "test_scalin: there is no such file or module of suites; did you mean scaling?",
    ),
    ("run conformance.suites.test_scaling::test_scale", "there is no such test; did you mean test_scales?"),
    ("report reports/a --output=", "--output: a value is required, and this one is empty"),
    (("show", ""), "'': a value is required, and this one is empty"),
    ("run --run-dir=", "--run-dir: a value is required"),
    ("run --conformance-case test_scaling.py", "the id of a case is required; 'conformance list' prints them"),
    ("run --case-timeout nan", "--case-timeout nan: seconds from above 0 to 3.1536e+07 are required"),
    ("run --case-timeout 1e400", "--case-timeout inf: seconds from above 0 to 3.1536e+07 are required"),
    ("run --seed 99999999999999999999", "--seed 99999999999999999999: a number of 64 bits is required"),
    ("run -n -2", "-n -2: a number of workers, 0 or more, is required"),
    ("run --compiled empty", "empty folder; 'conformance precompile' fills it"),
    ("run --reproducers words.txt", "words.txt: a folder is required, and this is a file"),
    ("list --fills x", "--fills is a table of all fills: it takes no other word"),
    ("targets sm_9", "TARGET sm_9: there is no such target; did you mean sm_90?"),
    ("targets --json sm_90", "--json tells of all targets: leave TARGET out"),
    ("precompile --target sm_90 --out words.txt", "--out words.txt: a folder is required, and this is a file"),
    ("precompile --target sm_90 --out k --workers 0", "--workers: '0': a number, 1 or more, is required"),
    ("benchmark --rounds -1", "--rounds: '-1': a number, 1 or more, is required"),
    ("show x --run words.txt", "no record in words.txt has 'x' in its case id"),
    ("compare words.txt words.txt", "words.txt holds no record: words.txt:1: not a line of JSON"),
    ((*GATE, "site="), "site=: a folder of packages is required"),
    ("run --expected-failures nowhere.toml", "nowhere.toml cannot be read"),
    ("run --calibration nowhere.json", "--calibration nowhere.json: it cannot be read"),
    ("run --calibration words.txt", "--calibration words.txt: it cannot be read"),
    ("run --compiled nowhere", "nowhere: there is no such folder; 'conformance precompile' makes it"),
    ("run -k order=row_and_( --suite fusion", "-k order=row_and_(: cannot be read"),
    ("list --suite fusoin", "--suite fusoin: there is no such suite; did you mean fusion?"),
    ("list --tier ful", "--tier ful: there is no such tier; did you mean full?"),
    ("list --kernl mm", "--kernl: there is no such option; did you mean --kernel?"),
    ("precompile --target sm_90", "the following arguments are required: --out"),
    ("precompile --target sm_99 --out k", "--target sm_99: there is no such target; did you mean sm_90?"),
    (
        "precompile --target sm_90 --out k --suite scalin",
        "--suite scalin: there is no such suite; did you mean scaling?",
    ),
    ("precompile --target sm_90 --out k --tier quik", "--tier quik: there is no such choice; did you mean quick?"),
    ("show", "the following arguments are required: CASE"),
    ("show x --rnu reports/a", "--rnu: there is no such option; did you mean --run?"),
    ("show nothing", "no record in reports/a has 'nothing' in its case id"),
    ("show test_a.py::test_x[mm-b]", "did you mean test_a.py::test_x[mm-a]?"),
    ("reproduce test_a.py::test_z[mm-a] --run reports/a", "did you mean test_a.py::test_x[mm-a]?"),
    ("show x --run nowhere", "nowhere holds no records"),
    ("records", "the following arguments are required: RUN"),
    ("records nowhere", "nowhere holds no records: give a run's folder or a records.jsonl.gz"),
    ("records words.txt", "words.txt holds no records: words.txt:1: not a line of JSON"),
    ("show nothing x", "'x' is one word too many; a text with spaces needs quotes"),
    ("targets sm_90 sm_100", "'sm_100' is one word too many"),
    ("compare reports/a reports/a reports/a", "'reports/a' is one word too many"),
    ("screen --seconds 1", "--seconds: '1': seconds from 5 to 86400 are required"),
    ("screen --seconds nan", "--seconds: 'nan': seconds from 5 to 86400 are required"),
    ("screen --gpus 0", "--gpus: '0': a number, 1 or more, is required"),
    ("screen --turn 3", "--turn: there is no such option; did you mean --turns?"),
    ("screen --jsn x", "--jsn: there is no such option; did you mean --json?"),
    ("selftest --fault wrong-tiles", "--fault wrong-tiles: there is no such fault; did you mean wrong-tile?"),
    ("selftest --output words.txt", "--output words.txt: exists and is not an empty folder; give a new one"),
    ("mutants --class masks", "--class masks: there is no such class of faults; did you mean mask?"),
    ("mutants --count 0", "--count: '0': a number, 1 or more, is required"),
    ("mutants --known nowhere.txt", "nowhere.txt cannot be read"),
    ("mutants --known words.txt", "words.txt:1: an id of a mutant and the reason why it survives are required"),
    ("calibrate now", "'now' is one word too many"),
    ("report nowhere", "nowhere is no run's folder"),
    ("report reports/a --output nowhere/x/y.html", "nowhere/x/y.html cannot be written"),
    ("sweep reports/a", "reports/a has no record of the suite config_space"),
    ("reproduce part", "'part' is a part of a case's id"),
    ("reproduce x --timeout soon", "'soon': seconds greater than 0 are required"),
    ((*GATE, "tritn==3.9.0"), "tritn is no component: did you mean triton?"),
    ((*GATE, "triton=3.9.0"), "'triton=3.9.0' is not understood"),
    ((*GATE, "python==3.13"), "a stack cannot change python: start the gate with that Python"),
    ((*GATE, "ptxs==12.9"), "ptxs is no component: did you mean ptxas?"),
    ((*GATE, "ptxas==twelve"), "a version of CUDA's compiler is required"),
    ((*GATE, "preview=fp-fusion"), "preview=fp-fusion: there is no such preview; did you mean fp-fusion-off?"),
    ((*GATE, "site=nowhere"), "site=nowhere: a folder of packages is required"),
    ((*GATE, "current", "--suite", "attenton"), "--suite attenton: there is no such suite; did you mean attention?"),
    ((*GATE, "current", "--target", "gfx94"), "--target gfx94: there is no such target; did you mean gfx942?"),
    ((*GATE, "current", "--waivers", "nowhere.toml"), "nowhere.toml"),
    ("gate --canddate current", "the following arguments are required: --candidate"),
    ("run --shard 4/3", "--shard 4/3: a shard from 1/3 to 3/3 is required"),
    ("run --shard three", "--shard three: the number of a shard and how many there are, such as 3/8, or auto"),
    ("run --shard auto", "--shard auto: no variable says which shard this is; give --shard 3/8, or set one of"),
    ("run --shard=", "--shard: a value is required"),
    ("run --durations-from reports/a", "--durations-from says how shards are cut: give --shard, too"),
    ("run --shard 1/2 --durations-from nowhere", "nowhere holds no records: give a run's folder or a records.jsonl.gz"),
    ("merge nowhere --output m", "nowhere is no run of a shard that ended"),
    ("merge reports/a", "the following arguments are required: --output"),
    ("merge reports/a --output reports", "--output reports: exists and is not an empty folder; give a new one"),
    ("durations nowhere --output d.json", "nowhere holds no records"),
    ("durations reports/a --output words.txt", "--output words.txt: a name that ends with .json is required"),
    ("run --repeats 0", "--repeats 0: a number from 1 to 10000 is required"),
    ("run --require device --no-gpu", "--require device contradicts --no-gpu"),
    ("run --require executed --compile-only", "--require executed contradicts --compile-only, which runs nothing"),
    ("run --repeats 3 --compile-only", "--repeats 3 contradicts --compile-only, which runs nothing"),
    ("run --cases nowhere.txt", "nowhere.txt cannot be read"),
    ("run --cases words.txt", "'just words' is no id of a case; 'conformance list' prints them"),
    ("run --cases=", "--cases: a value is required"),
    ((*GATE, "current", "--cases", "words.txt"), "'just words' is no id of a case; 'conformance list' prints them"),
    ((*GATE, "current", "--cases", "nowhere.txt"), "nowhere.txt cannot be read"),
    ((*GATE, "current", "--repeats", "0"), "--repeats: '0': a number, 1 or more, is required"),
    ((*GATE, "current", "--require", "devise"), "--require devise: there is no such choice; did you mean device?"),
    ((*GATE, "current", "--require", "device", "--no-gpu"), "--require device contradicts --no-gpu"),
    ((*GATE, "current", "--require", "executed", "--compile-only"), "--require executed contradicts --compile-only"),
    ((*GATE, "current", "--repeats", "3", "--compile-only"), "--repeats 3 contradicts --compile-only"),
    ((*GATE, "current", "-k", "fp16 and ("), "-k fp16 and (: cannot be read"),
    ((*GATE, "current", "--baseline-runs", "0"), "--baseline-runs: '0': a number, 1 or more, is required"),
    ((*GATE, "current", "--known", "nowhere.json"), "--known nowhere.json: it cannot be read as JSON"),
    ((*GATE, "current", "--known", "reports/a/run.json"), "it is no answer of a gate: give the comparison.json"),
    ((*GATE, "current", "--issues", "reports"), "--issues reports: it is not empty: give a new folder"),
    ((*GATE, "current", "--issues", "words.txt"), "--issues words.txt: it cannot be written"),
    ((*GATE, "current", "--older", "tritn==3.7.0"), "tritn is no component: did you mean triton?"),
    (
        (*GATE, "current", "--older", "reports"),
        "reports is no run's folder: give one, or a folder of packages as site=",
    ),
    ((*GATE, "current", "--no-age", "--older", "current"), "--older current contradicts --no-age"),
    ((*GATE, "current", "--no-aeg"), "--no-aeg: there is no such option; did you mean --no-age?"),
    ("compare reports/a reports/a --known words.txt", "--known words.txt: it cannot be read as JSON"),
    ("compare reports/a reports/a --issues empty/x --known empty", "--known empty: it cannot be read as JSON"),
    ("compare reports/a reports/a --issues reports", "--issues reports: it is not empty: give a new folder"),
    ((*GATE, "current", "--confg", "x"), "--confg: there is no such option; did you mean --config?"),
    ("matrix nowhere.toml", "nowhere.toml cannot be read as TOML"),
    ("matrix words.txt", "words.txt cannot be read as TOML"),
    ("compare reports/a nowhere", "nowhere holds no records"),
    ("mustpass check nowhere", "nowhere: no run can be read there"),
    ("mustpass chek reports/a", "did you mean check?"),
    ("keygen k k", "k: two files are required, one for each key"),
    ("keygen nowhere/private public", "nowhere/private cannot be written"),
    ("bundle nowhere --key k", "nowhere is no run's folder"),
    ("verify nowhere --key k", "k"),
    ("calibrate --fast", "--fast: there is no such option"),
    ("benchmark --only product", "--only product: there is no such choice; did you mean products?"),
    ("benchmark --round 3", "--round: there is no such option; did you mean --rounds?"),
]
#: Commands that need torch before they can answer.
SLOW = [
    ("watch --target sm_9 -- pytest", "target 'sm_9' is not available"),
    ("judge nowhere.py", "nowhere.py cannot be read: No such file or directory"),
    ("judge words.txt", "words.txt is not a file of Python"),
    (("judge", "words.txt", "--call", "f(a, b)"), "--operation and --call belong together: give both, or neither"),
    (("judge", "words.txt", "--operation", "mm", "--call", "f(a"), "--call: the call 'f(a' is not one expression"),
    ("check-kernel mm_persitent_tma", "no kernel is called 'mm_persitent_tma'; did you mean mm_persistent_tma?"),
    ("precompile --target sm_90 --out k --kernel addm", "--kernel addm: there is no such kernel; did you mean addmm?"),
    ((*GATE, "current", "--kernel", "bm"), "--kernel bm: there is no such kernel; did you mean bmm?"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with one run and a file of words."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "reports" / "a", [PASSED], RunInfo("a", "2026-01-01", "quick", 0, wall_s=1.0))
    (tmp_path / "words.txt").write_text("just words\n" * 9)
    (tmp_path / "empty").mkdir()
    return tmp_path


def answer(words, capsys):
    """The exit status, the lines, and the seconds that this process was busy."""
    begin = time.process_time()
    try:
        status = cli.main(words.split() if isinstance(words, str) else list(words))
    except SystemExit as end:
        status = end.code
    seconds = time.process_time() - begin
    output = capsys.readouterr()
    return status, [line for line in (output.out + output.err).splitlines() if line.strip()], seconds


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_mistake_is_answered_at_once(here, capsys, words, message):
    before = sorted(here.rglob("*"))
    status, lines, seconds = answer(words, capsys)
    assert status == (4 if words[:4] in ("run ", "list") and "--fills" not in words else cli.USAGE)
    assert len(lines) <= 2
    assert message in lines[0] + lines[-1]
    assert not any("Traceback" in line for line in lines)
    assert seconds < 1
    assert sorted(here.rglob("*")) == before  # nothing is left behind


@pytest.mark.parametrize(("words", "message"), SLOW, ids=[str(number) for number in range(len(SLOW))])
def test_a_kernel_that_is_misspelt(here, capsys, words, message):
    status, lines, _ = answer(words, capsys)
    assert status == cli.USAGE
    assert len(lines) <= 2
    assert message in lines[-1]


def test_a_device_is_written_to_and_not_replaced(here, monkeypatch, capsys):
    """As root the page would take the place of the device."""
    replaced = []
    monkeypatch.setattr(commands, "replace_file", lambda path, text: replaced.append(path))
    assert cli.main(["report", "reports/a", "--output", "/dev/null"]) == cli.OK
    assert cli.main(["report", "reports/a", "--output", "/dev/full"]) == cli.USAGE
    assert "/dev/full cannot be written" in capsys.readouterr().err
    assert replaced == []


def test_text_of_a_record_forges_no_line(here, capsys):
    evil = "\n::error::forged\n\x1b[2J##[group]"
    record = dataclasses.replace(PASSED, case=f"test_a.py::test_x[{evil}]", diagnosis=evil, repro=evil, kernel=evil)
    write_run(here / "reports" / "b", [record], RunInfo("b", "2026-02-02", "quick", 0))
    for words in ("show test_x", "sweep reports/b", "reproduce test_x --run reports/b", "show nothing --run reports/b"):
        cli.main(words.split())
        output = capsys.readouterr()
        lines = (output.out + output.err).splitlines()
        assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line or "\x1b" in line]


@pytest.mark.parametrize("command", ["run", "list"])
def test_the_help_of_a_run_lists_its_options(capsys, command):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    text = capsys.readouterr().out
    assert all(option in text for option in ("--tier", "--kernel", "--suite", "--run-dir", "--case-timeout", "-k"))


def test_an_open_quote_in_addopts_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k 'mm")
    assert cli.main(["run", "--no-gpu"]) == 2
    assert capsys.readouterr().err == (
        """conformance: PYTEST_ADDOPTS="-k 'mm": words as in a shell are required (No closing quotation)\n"""
    )


@pytest.mark.parametrize("command", ["run", "list"])
def test_a_pytest_that_cannot_begin_is_a_sentence(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_bytes(b"[pytest]\n\xff")
    assert cli.main([command, "--no-gpu"]) == 2
    assert "pytest cannot begin: UnicodeDecodeError: " in capsys.readouterr().err
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main([command, "--no-gpu"]) == 2
    assert "the folder in which it was started was removed" in capsys.readouterr().err
