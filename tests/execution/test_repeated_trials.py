"""A fault that comes and goes shows when a launch is judged several times."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest
import torch

from conformance.execution.trial.repeated_trials import repeated
from conformance.execution.trial.trial import PATTERNS, trial
from conformance.judging.harness import Harness
from tests.execution.test_trial import KERNEL, PLAN, TorchExecutor, Undetermined

FILLS = ("transparent", "randn")
RUNS = len(FILLS) * len(PATTERNS)


def judged(repeats, fault=None):
    executor = TorchExecutor(fault)
    judge = functools.partial(trial, KERNEL, PLAN, executor, names=FILLS)
    harness = SimpleNamespace(settings=SimpleNamespace(repeats=repeats))
    return Harness.repeated(harness, judge), executor.runs


def failing(result):
    return {verdict.check: verdict.text for verdict in result.verdicts if not verdict.passed}


def in_trial(number, change):
    """A fault of every run of one trial, so that the two runs of each fill agree."""

    def fault(executor, a, out):
        if (executor.runs - 1) // RUNS == number - 1:
            change(out)

    return fault


def test_trials_that_agree_pass_and_are_counted():
    result, runs = judged(3)
    assert (runs, failing(result)) == (3 * RUNS, {})
    assert (
        next(verdict.text for verdict in result.verdicts if verdict.check == "repeat") == "3 trials agree in every bit"
    )


def test_one_trial_is_left_as_it_is():
    result, runs = judged(1)
    assert runs == RUNS
    assert result.verdicts == trial(KERNEL, PLAN, TorchExecutor(), names=FILLS).verdicts


def test_a_trial_that_is_wrong_now_and_then_fails_and_says_which_it_was():
    result, _ = judged(4, in_trial(3, lambda out: out.zero_()))
    wrong = failing(result)
    assert wrong["numerics/transparent"].startswith("trial 3 of 4: ")
    assert wrong["repeat/randn"].startswith(
        "trials 1 and 3 of 4 of one input differ: the kernel is not deterministic; a kernel that rounds sums"
    )


def last_bit(out):
    out.view(torch.int16)[0, 0] ^= 1


def test_one_other_bit_is_no_agreement():
    result, _ = judged(2, in_trial(2, last_bit))
    assert "repeat/randn" in failing(result)


@pytest.mark.parametrize("number", [1, 2])
def test_which_trial_fails_first_does_not_matter(number):
    assert not judged(2, in_trial(number, lambda out: out.zero_()))[0].passed


def test_trials_of_a_kernel_that_promises_no_equal_bits_may_differ_within_their_bounds():
    executor = TorchExecutor(in_trial(2, last_bit))
    result = repeated(functools.partial(trial, Undetermined(), PLAN, executor, names=FILLS), 2)
    assert "repeat/randn" not in failing(result)
    assert "numerics/transparent" in failing(result)
