"""No command prints a control character or a line of its own from any text of a stranger's records and run.json."""

from __future__ import annotations

import pytest

from conformance.commands import CommandError, compare, mustpass, records, reproduce, show, sweep
from conformance.records import CaseRecord, Fault, FaultClass, Reason, ReasonCode, Rerun, RunInfo, Status, Verdict
from tests.command_runs import call, write_run

HOSTILE = "\x1b]0;pwn\x07\u202e\nPASSED: all\n::error::gone\n##[error]x"
FAULT = Fault(FaultClass.INFRASTRUCTURE, HOSTILE, HOSTILE)
VERDICTS = (Verdict("numerics/a", True), Verdict(HOSTILE, False, HOSTILE, {HOSTILE: HOSTILE}))
INFO = {"id": HOSTILE, "started": HOSTILE, "tier": HOSTILE, "seed": 0, "problems": (HOSTILE,), "faults": (FAULT,)}
INFO |= {"targets": (HOSTILE,), "gpus": (HOSTILE,), "stack": {"torch": HOSTILE, HOSTILE: HOSTILE}, "reruns": HOSTILE}
INFO |= {"bill": {HOSTILE: HOSTILE}, "required": HOSTILE, "proof": {HOSTILE: 1}, "wall_s": 1.0}


def case(number: int, status: Status, **fields) -> CaseRecord:
    named = {"id": HOSTILE, HOSTILE: HOSTILE}
    return CaseRecord(
        f"test_a.py::test_b[{number}-{HOSTILE}]",
        HOSTILE,
        status,
        kernel=HOSTILE,
        target=HOSTILE,
        problem=named,
        config=named,
        options=named,
        observed=named,
        stack=named,
        artefacts={HOSTILE: f"{HOSTILE}/{HOSTILE}"},
        worker=HOSTILE,
        gpu=HOSTILE,
        outcome=HOSTILE,
        diagnosis=HOSTILE,
        repro=HOSTILE,
        tier=HOSTILE,
        executor=HOSTILE,
        **{"verdicts": VERDICTS, **fields},
    )


RECORDS = [
    case(0, Status.PASS, verdicts=VERDICTS[:1]),
    case(1, Status.FAIL, reruns=(Rerun(Status.FAIL, (HOSTILE,), HOSTILE, HOSTILE, FAULT),)),
    case(2, Status.CRASH, fault=FAULT),
    case(3, Status.NOT_RUN, reason=Reason(ReasonCode.NO_DEVICE, HOSTILE, HOSTILE)),
    case(4, Status.EXPECTED_FAIL, reason=Reason(ReasonCode.DTYPE, HOSTILE, HOSTILE)),
]
GOOD = [case(number, Status.PASS, verdicts=VERDICTS[:1]) for number in range(5)]
COMMANDS = {
    "show": lambda bad, good: (show, "[1-", "--run", bad),
    "show-crash": lambda bad, good: (show, "[2-", "--run", bad),
    "compare": lambda bad, good: (compare, good, bad),
    "compare-from": lambda bad, good: (compare, bad, good),
    "compare-markdown": lambda bad, good: (compare, good, bad, "--markdown", "-"),
    "compare-json": lambda bad, good: (compare, good, bad, "--json", "-"),
    "records": lambda bad, good: (records, bad),
    "sweep": lambda bad, good: (sweep, bad),
    "mustpass": lambda bad, good: (mustpass, "check", bad),
    "reproduce": lambda bad, good: (reproduce, "[1-", "--run", bad),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("info", [None, RunInfo(**INFO)], ids=["without-run-json", "with-run-json"])
def test_no_text_of_a_stranger_forges_what_a_command_prints(tmp_path, capsys, monkeypatch, name, info):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    bad, good = write_run(tmp_path / "bad", RECORDS, info), write_run(tmp_path / "good", GOOD, info)
    command, *words = COMMANDS[name](bad, good)
    try:
        call(command, *words)
        output = ""
    except (CommandError, SystemExit) as error:
        output = str(error)
    captured = capsys.readouterr()
    output += captured.out + captured.err
    assert output.strip()
    for line in output.splitlines():
        assert all(char.isprintable() or char == "\t" for char in line), line
        assert not line.startswith(("PASSED: all", "::error::gone", "##[error]x")), line
