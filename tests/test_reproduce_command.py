"""``conformance reproduce`` writes a script whatever the case does, or says why there is none."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from conformance import cli
from conformance.commands import reproduce
from conformance.record_figures import LATE_WAITS
from conformance.records import CaseRecord, Status
from conformance.reproducers.script_request import ScriptRequest
from tests.command_runs import JUDGED, write_run

CASE = (
    "test_tma_store.py::test_store_as_asked[mm_persistent_tma-bf16-128x128x64-s5-w8-"
    "tma_store=False-subtile=4-descriptors=device-flatten=False-sm_90]"
)
RECORD = CaseRecord(
    CASE,
    "tma_store",
    Status.PASS,
    kernel="mm_persistent_tma",
    target="sm_90",
    tier="quick",
    seed=0,
    verdicts=JUDGED,
)


def with_figures(target="sm_90", sync=None, **resources):
    used = {"registers": 64, "threads": 128, "shared_memory": 0, **resources}
    return dataclasses.replace(RECORD, target=target, observed={"code": {"sync": sync or {}}, "resources": used})


TIGHT = {"registers": 96, "shared memory": 45_568, "threads": 128}
AMD_TIGHT = {"registers": 96, "shared memory": 32_000, "threads": 256}


def with_code(features=(), spills=0, unit="bytes", status=Status.PASS):
    code = {"code": {"features": list(features)}, "resources": {"spills": spills, "spill_unit": unit}}
    return dataclasses.replace(RECORD, status=status, observed=code)


@pytest.fixture
def folder(tmp_path):
    """Makes a run's folder of records."""

    return lambda name, *records: str(write_run(tmp_path / name, records))


@pytest.fixture
def say(tmp_path, monkeypatch, capsys, forked):
    """Runs the command in an empty folder: its exit status and all that it printed."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*words):
        status = cli.main(["reproduce", *words])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


@pytest.mark.parametrize(
    ("before", "record", "script_request"),
    [
        (None, None, ScriptRequest(dies=True)),
        (None, with_code(status=Status.CRASH), ScriptRequest(dies=True)),
        (None, with_code(status=Status.TIMEOUT), ScriptRequest(dies=True)),
        (None, with_code(), ScriptRequest()),
        (with_code(["MMA", "ASYNC_COPY"]), with_code(["MMA"]), ScriptRequest(features=("ASYNC_COPY",))),
        (with_code(["MMA"]), with_code(["MMA", "ASYNC_COPY"]), ScriptRequest()),
        (with_code(spills=8), with_code(spills=16), ScriptRequest(spills=8)),
        (with_code(spills=16), with_code(spills=8), ScriptRequest()),
        (with_code(spills=8), with_code(spills=16, unit="registers"), ScriptRequest()),
        (RECORD, with_code(["MMA"], spills=8), ScriptRequest()),
        (
            with_figures(shared_memory=45_000),
            with_figures(shared_memory=90_000),
            ScriptRequest(room=TIGHT, resident="5 blocks of 4 warps per SM"),
        ),
        (with_figures(shared_memory=90_000), with_figures(shared_memory=45_000), ScriptRequest()),
        (with_figures("zz_1", shared_memory=45_000), with_figures("zz_1", shared_memory=90_000), ScriptRequest()),
        (
            with_figures("gfx950", registers=96, threads=256, shared_memory=32_000),
            with_figures("gfx950", registers=96, threads=256, shared_memory=80_000),
            ScriptRequest(room=AMD_TIGHT, resident="20 waves per CU (5 blocks of 4 waves)"),
        ),
        (with_figures(), with_figures(sync={LATE_WAITS: 2}), ScriptRequest(faults=(LATE_WAITS,))),
        (with_figures(sync={LATE_WAITS: 1}), with_figures(sync={LATE_WAITS: 2}), ScriptRequest()),
        (with_figures(), with_figures(sync={"barrier": 2}), ScriptRequest()),
    ],
)
def test_what_is_asked_for_is_what_the_baseline_had(before, record, script_request, tmp_path):
    request = reproduce._request(record, before)
    assert request == script_request
    request.write(tmp_path)
    assert ScriptRequest.read(tmp_path) == request


def test_a_record_that_holds_no_figures_is_refused(say, folder):
    wrong = dataclasses.replace(RECORD, observed={"resources": {"spills": "many"}})
    status, output = say(CASE, "--run", folder("run", wrong), "--baseline", folder("baseline", RECORD))
    assert status == 2
    assert "has unusable figures: observed.resources.spills: Expected `int`, got 'many'" in output


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_none_is_refused(say, seconds):
    with pytest.raises(SystemExit):
        say(CASE, "--timeout", seconds)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["test_store"], "give the whole id, or its run with --run"),
        (["test_a.py::test_none"], "there is no case test_a.py::test_none in a plain run here: give its run"),
        ([CASE, "--timeout", "0.5"], "did not end within 0.5 s and left no script: give it longer with --timeout"),
    ],
    ids=["part-of-an-id", "no-such-case", "past-its-time"],
)
def test_why_there_is_no_script(say, words, message):
    status, output = say(*words)
    assert (status, message in output) == (2, True), output


def test_a_case_that_passes_gives_no_script_and_the_command_that_runs_it(say, folder):
    status, output = say(CASE, "--run", folder("run", RECORD))
    assert status == 2
    assert "gives no script: here it ends as" in output
    assert "to run the case itself: conformance run '--conformance-case=" in output


def test_code_that_had_more_with_the_baseline_is_shown(say, folder):
    """The compiled code lacks the WGMMA of the baseline's record."""
    case = "test_matrix_units.py::test_matrix_units[mm-bf16-32x32x16-s1-w2-sm_90]"
    runs = [with_code(["MMA", "WGMMA"]), with_code(["MMA"])]
    before, after = (dataclasses.replace(record, case=case, kernel="mm") for record in runs)
    status, output = say(case, "--run", folder("run", after), "--baseline", folder("baseline", before))
    assert status == 0, output
    assert "WGMMA was in the code of the stack on which all is fine" in Path(output.strip()).read_text()


@pytest.mark.long(25)
def test_a_case_that_takes_its_process_with_it_leaves_a_script(say, tmp_path, monkeypatch):
    """The interpreter multiplies with numpy, which aborts here: the same happens to the script."""
    (tmp_path / "sitecustomize.py").write_text("import os, numpy\nnumpy.matmul = lambda *a, **k: os.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    status, output = say(CASE)
    assert status == 0, output
    script = output.strip()
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, "FAULT: the launch dies: SIGABRT" in done.stdout) == (1, True), done.stdout + done.stderr
    monkeypatch.delenv("PYTHONPATH")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_id_that_no_command_line_takes(say):
    status, text = say(f"test_a.py::{'x' * 500_000}")
    assert status == cli.USAGE
    assert text.endswith(" cannot be run here: Argument list too long\n")
    assert len(text) < 500
