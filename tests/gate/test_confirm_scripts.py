"""A reproducer is confirmed only by what it says itself, in both environments."""

import sys
import time

import pytest

from conformance.gate.stacks.confirm_scripts import (
    OUTPUT_LIMIT,
    Attempt,
    Confirmation,
    ScriptOutcome,
    attempt,
    confirm,
    state_baseline,
)
from conformance.gate.stacks.environments import Environment
from conformance.gate.stacks.stack_file import Stack

FINE = "print('FINE: all is well')"
FAULT = "print('FAULT: 3 of 4 elements are wrong'); raise SystemExit(1)"
NO_GPU = "print('CANNOT RUN: a GPU is needed'); raise SystemExit(2)"
SCRIPT = "import os\nexec(os.environ['DOES'])\n"


@pytest.fixture
def confirmed(tmp_path):
    """Returns the finding of running a script that does one thing in the baseline and another in the candidate."""

    def run(baseline, candidate):
        script = tmp_path / "case.py"
        script.write_text(SCRIPT)
        stacks = [Environment(Stack(does), tmp_path, {"DOES": does}) for does in (baseline, candidate)]
        return confirm(script, *stacks)

    return run


@pytest.mark.parametrize(
    ("baseline", "candidate", "outcome", "text"),
    [
        (FINE, FAULT, ScriptOutcome.CONFIRMED, ""),
        (FINE, FINE, ScriptOutcome.NOT_REPRODUCED, ""),
        (FAULT, FINE, ScriptOutcome.NOT_REPRODUCED, ""),
        (FAULT, FAULT, ScriptOutcome.BOTH_FAIL, ""),
        (FINE, NO_GPU, ScriptOutcome.CANNOT_RUN, "candidate it ended with 2 (CANNOT RUN: a GPU is needed)"),
        ("import no_such_module", FAULT, ScriptOutcome.CANNOT_RUN, ""),
        # Python ends with 1 after an exception of the script's own: that is no finding
        (FINE, "raise RuntimeError('FAULT')", ScriptOutcome.CANNOT_RUN, ""),
        (FINE, "os.abort()", ScriptOutcome.CONFIRMED, "in the candidate (it died by SIGABRT) and"),
        ("os.abort()", "os.abort()", ScriptOutcome.BOTH_FAIL, ""),
        ("os.abort()", FINE, ScriptOutcome.NOT_REPRODUCED, ""),
        # what ends a process from outside, such as the end of memory, is no finding
        (FINE, "os.kill(os.getpid(), 9)", ScriptOutcome.CANNOT_RUN, "in the candidate it died by SIGKILL"),
    ],
)
def test_what_two_runs_show(confirmed, baseline, candidate, outcome, text):
    confirmation = confirmed(baseline, candidate)
    assert confirmation.outcome is outcome
    assert text in confirmation.text


def test_no_module_beside_a_script_is_found(confirmed, tmp_path):
    (tmp_path / "beside.py").write_text("")
    confirmation = confirmed(FINE, f"import beside; {FAULT}")
    assert confirmation.outcome is ScriptOutcome.CANNOT_RUN
    assert "No module named 'beside'" in confirmation.candidate.output


def test_a_script_that_hangs_is_ended_with_what_it_started(tmp_path):
    mark = tmp_path / "still-there"
    child = f"import time; time.sleep(4); open({str(mark)!r}, 'w')"
    hangs = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert attempt([sys.executable, "-c", hangs], {}, seconds=2.0) == Attempt(None, "")
    time.sleep(3)
    assert not mark.exists()


def test_a_script_that_hangs_shows_a_fault():
    hung = Attempt(None, "")
    assert hung.faulty
    confirmation = Confirmation(ScriptOutcome.CONFIRMED, Attempt(0, ""), hung)
    assert confirmation.text == "the fault shows in the candidate (it ran past its time) and not in the baseline"


def test_only_the_end_of_a_long_output_is_kept(confirmed):
    confirmation = confirmed(FINE, f"print('x' * 10**6); {FAULT}")
    assert confirmation.outcome is ScriptOutcome.CONFIRMED
    assert len(confirmation.candidate.output) <= OUTPUT_LIMIT


def test_the_stack_on_which_a_script_is_fine_is_written_into_it(tmp_path):
    from conformance.reproducers.script_text import NOT_TRIED

    script = tmp_path / "case.py"
    script.write_text(f'"""\nfails with: triton 3.9.0\nfine with:  {NOT_TRIED}\n"""\n')
    state_baseline(script, 'triton 3.8.0"""\nimport os')
    text = script.read_text()
    compile(text, "case.py", "exec")
    assert "fine with:  triton 3.8.0????import os\n" in text
