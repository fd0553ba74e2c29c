"""The table of kernels that were tuned for several numbers of rows: its ratios, its gains, and who is measured."""

import pytest

from conformance import size_hints
from conformance.size_hints import DispatchTimes
from conformance.targets import compile_targets

TIMES = DispatchTimes({(64, 64): 1.0, (64, 256): 3.0, (256, 64): 1.5, (256, 256): 2.0})


def test_times_are_relative_to_the_fastest_of_their_size():
    ratios = {(hint, size): TIMES.relative(hint, size) for hint in TIMES.hints for size in TIMES.sizes}
    assert ratios == {(64, 64): 1.0, (64, 256): 1.5, (256, 64): 1.5, (256, 256): 1.0}


def test_gain_is_the_mean_over_all_sizes():
    more = DispatchTimes({**TIMES.times, (64, 512): 4.0, (256, 512): 4.0})
    assert (TIMES.mean_gain(64), TIMES.mean_gain(256)) == (25.0, 25.0)
    assert more.mean_gain(64) == pytest.approx(50 / 3)


def test_lines_say_table_and_gains():
    assert TIMES.lines() == [
        "tuned for       M = 64   M = 256",
        "M = 64           1.000     1.500",
        "M = 256          1.500     1.000",
        "choosing at run time over the kernel for M = 64: 25.00 % mean gain, 2 sizes from 64 to 256",
        "choosing at run time over the kernel for M = 256: 25.00 % mean gain, 2 sizes from 64 to 256",
    ]


class Pool:
    """Compiles at once whatever it is asked for, but no tile of ``broken`` rows."""

    def __init__(self, broken=None):
        self.broken = broken

    def submit(self, request):
        status = (
            size_hints.Status.COMPILE_ERROR if request.payload.config.block_m == self.broken else size_hints.Status.PASS
        )
        return type("Handle", (), {"result": lambda handle: type("Result", (), {"status": status})})()


class Stopwatch:
    """Says that a tile of 64 rows is the fastest at every M, the more rows another has the slower."""

    def __init__(self, plan):
        self.plan = plan

    def milliseconds(self):
        return 1.0 + abs(self.plan.config.block_m - 64) / 64


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(size_hints, "_timed", lambda plans, rows, width, executor: [Stopwatch(plan) for plan in plans])
    return next(target for target in compile_targets() if target.id == "sm_90")


def test_each_hint_is_tuned_and_each_size_is_timed(hopper):
    winners, times = size_hints.dispatch_times(1024, None, hopper, Pool(), rounds=3)
    assert {hint: plan.config.block_m for hint, plan in winners.items()} == {64: 64, 256: 64, 4096: 64}
    assert times.hints == size_hints.HINTS
    assert times.sizes == tuple(range(64, 4097, 64))
    assert set(times.times.values()) == {1.0}


def test_a_config_that_does_not_compile_cannot_win(hopper):
    winners, times = size_hints.dispatch_times(1024, None, hopper, Pool(broken=64), rounds=3)
    assert all(plan.config.block_m != 64 for plan in winners.values())
    assert times.best(64) > 1.0
