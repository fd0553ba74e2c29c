"""No fill alarms on a correct kernel, whatever its contract leaves open: a sample of what the module's command runs."""

import pytest

from tests.numerics import convolution_emulation
from tests.numerics.random_correct import judged


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_correct_kernels_pass(first):
    outcomes = [judged(seed) for seed in range(first, first + 10)]
    assert [alarm for _, alarms in outcomes for alarm in alarms] == []
    assert sum(count for count, _ in outcomes) > 20


def test_random_correct_convolutions_pass():
    outcomes = [convolution_emulation.judged(seed) for seed in range(12)]
    assert [alarm for _, alarms in outcomes for alarm in alarms] == []
    assert sum(count for count, _ in outcomes) > 40
