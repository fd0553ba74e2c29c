"""Launches that differ now and then are counted and named, whatever makes them differ."""

import random

import pytest
import torch

from conformance.execution.trial.repeated_trials import UNWRITTEN, stressed

VALUES = torch.arange(24, dtype=torch.float32).reshape(4, 6)
LAUNCHES = 50


def judged(change, launches=LAUNCHES, dtype=torch.float32):
    """The verdict about launches that write VALUES, and then ``change`` the output, given its number."""
    out, number = torch.empty(4, 6, dtype=dtype), iter(range(launches))
    beside = []

    def launch():
        out.copy_(VALUES)
        change(out, next(number))

    verdict = stressed(launch, {"out": out}, beside.append, launches)
    assert beside == list(range(1, launches))
    return verdict


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32])
def test_equal_launches_pass(dtype):
    verdict = judged(lambda out, number: None, dtype=dtype)
    assert verdict.passed
    assert verdict.text == "50 launches during other work agree in every bit"


def test_two_programs_that_write_one_element_are_seen():
    """The product whose program comes last changes now and then."""

    def race(out, number):
        if number in (3, 17, 40):
            out[2, 4] = 5.0
        if number == 40:
            out[0, 1] = 7.0

    verdict = judged(race)
    assert not verdict.passed
    assert verdict.check == "repeat/stress"
    assert verdict.text.startswith(
        "3 of 50 launches during other work differ from the first: launches 4, 18, 41; 2 elements of 'out', most often "
        "[2, 4], in 3 launches. Programs race, or the kernel is not deterministic; a kernel that rounds sums"
    )
    assert verdict.details == {"launches": 50, "differing": 3}


def test_sums_in_any_order_are_seen():
    terms = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    draw = random.Random(0)

    def add(out, number):
        order = list(range(len(terms)))
        draw.shuffle(order)
        total = torch.zeros(())
        for term in terms[order]:
            total = total + term
        out[0, 0] = total

    verdict = judged(add)
    assert not verdict.passed
    assert verdict.details["differing"] > 25
    assert ", ..." in verdict.text


def test_the_sign_of_zero_and_what_is_not_written_are_seen():
    assert not judged(lambda out, number: out[0, 0].fill_(-0.0 if number == 9 else 0.0)).passed
    written = torch.zeros(3, dtype=torch.int16)

    def forgetful():
        if int(written[0]) == UNWRITTEN and forgetful.runs != 7:
            written.fill_(1)
        forgetful.runs += 1

    forgetful.runs = 0
    verdict = stressed(forgetful, {"out": written}, lambda number: None, 20)
    assert not verdict.passed
    assert "launches 8;" in verdict.text


def test_every_output_is_compared():
    first, second = torch.zeros(2), torch.zeros(3)

    def launch():
        first.fill_(1.0)
        second.fill_(launch.runs // 9)
        launch.runs += 1

    launch.runs = 0
    verdict = stressed(launch, {"first": first, "second": second}, lambda number: None, 10)
    assert "3 elements of 'second'" in verdict.text
    assert "'first'" not in verdict.text
