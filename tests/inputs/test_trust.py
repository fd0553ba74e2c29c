"""A fill that shows too little is refused when it is built, unless the problem cannot show more."""

import dataclasses

import pytest
import torch

from conformance.families.conv.problem import Conv, conv2d
from conformance.families.gemm import exact
from conformance.families.gemm import fills as gemm
from conformance.families.gemm.fills import FEWEST_OUTPUTS, check_trust, is_tie
from conformance.families.gemm.problem import Fusion, addmm, fused_mm, mm, scaled_mm
from conformance.inputs.fills import FillError, fills
from conformance.numerics.contract import FMA, Accumulator, Contract
from tests.inputs.fill_quality import NARROW, contract_of

PROBLEM = mm(40, 48, 88)


def of(problem, name, contract=None):
    contract = contract or contract_of(problem)
    return fills(problem, contract, names=[name])[0], contract


def refused(fill, problem, contract, says, **promises):
    with pytest.raises(FillError, match=says):
        check_trust(problem, problem, contract, fill, **promises)


def test_mostly_zero_results_are_refused():
    for name in ("transparent", "wide-A", "randn"):
        fill, contract = of(PROBLEM, name)
        mask = torch.arange(fill.expected.numel()).reshape(fill.expected.shape) % 5 < 2
        refused(
            dataclasses.replace(fill, expected=fill.expected * mask), PROBLEM, contract, "40% of its results are not"
        )
    tiny, contract = of(PROBLEM, "randn")
    refused(dataclasses.replace(tiny, expected=tiny.expected * 2.0**-40), PROBLEM, contract, "not zero")


def test_results_that_hide_a_unit_are_refused():
    fill, contract = of(PROBLEM, "transparent")
    refused(dataclasses.replace(fill, expected=fill.expected * 4096), PROBLEM, contract, "show a change of one unit")


def test_results_without_ties_are_refused():
    fill, contract = of(PROBLEM, "wide-A")
    refused(fill, PROBLEM, contract, "are ties, 25% are required", ties=True)
    check_trust(PROBLEM, PROBLEM, contract, fill)


def test_sums_that_need_no_promotion_are_refused():
    problem = scaled_mm(40, 48, 520)
    contract = Contract("bf16", dataclasses.replace(NARROW, promote=128))
    fill, _ = of(problem, "wide-A", contract)
    small = dataclasses.replace(fill, meta={**fill.meta, "max_subset_sum_total": 2**14 - 1})
    refused(small, problem, contract, "sums up to 16383 need no promotion")


def test_a_run_meets_the_check(monkeypatch):
    """The builders of the families call it: a fill that they make wrong is no fill."""
    right = exact.wide

    def nothing(request):
        fill = right(request)
        return dataclasses.replace(fill, expected=torch.zeros_like(fill.expected))

    monkeypatch.setattr(exact, "wide", nothing)
    with pytest.raises(FillError, match="wide-A, seed 0 shows too little: 0% of its results are not zero"):
        fills(PROBLEM, contract_of(PROBLEM), names=["wide-A"])
    problem = conv2d(2, 20, (7, 6), 24, 3)
    monkeypatch.setattr("conformance.families.conv.fills.check_trust", lambda *args, **_: args[0].fail())
    with pytest.raises(AttributeError):
        fills(problem, contract_of(problem), names=["randn"])


@pytest.mark.parametrize(
    "problem",
    [mm(40, 48, 0), mm(40, 48, 3), addmm(40, 48, 88, alpha=0.0), mm(3, 5, 88)],
    ids=lambda problem: problem.id,
)
def test_what_cannot_show_more_is_exempt(problem):
    fill, contract = of(problem, "transparent")
    assert problem.K < 4 or not problem.has_product or fill.expected.numel() < FEWEST_OUTPUTS
    check_trust(problem, problem, contract, dataclasses.replace(fill, expected=torch.zeros_like(fill.expected)))


def test_zeros_that_the_epilogue_makes_are_allowed():
    problem = fused_mm(40, 48, 88, fusion=Fusion(None, None, ("relu", "dropout")))
    for fill in fills(problem, contract_of(problem)):
        assert (fill.expected != 0).double().mean() < 0.5


def test_ties_by_hand():
    # bf16 has eight bits: 257 lies between 256 and 258, 258 is one, 1.5 fits
    values = torch.tensor([257.0, 258.0, 259.0, 1.5, 257.5, -(2.0**-3) * 511, 0.0], dtype=torch.float64)
    assert is_tie(values, "bf16").tolist() == [True, False, True, False, False, True, False]


def test_every_seed_is_trusted():
    wide = Contract("fp16", Accumulator())
    for seed in range(40):
        fills(mm(16, 16, 33), wide, seed)
        fills(fused_mm(16, 16, 20, fusion=Fusion(None, None, ("relu",))), wide, seed)
    assert set(gemm.FILLS.names) >= {"wide-A", "wide-B"}


def test_an_image_that_is_thinner_than_the_kernel_is_shown():
    orders = dict.fromkeys(("order_x", "order_w", "order_out"), "channels-last")
    problem = Conv("conv3d", 2, 11, (1, 53, 4), 13, (2, 2, 2), (1, 1, 1), (1, 0, 1), dtype="fp32", **orders)
    for seed in range(4):
        fills(problem, Contract("fp32", FMA), seed, ["wide-A", "wide-B"])


def test_outputs_that_no_tap_reaches_are_not_counted():
    """Of 504 outputs some 60 see the image: chance decides how many of them are zero."""
    problem = Conv("conv3d", 2, 8, (4, 4, 9), 2, (1, 1, 1), (2, 3, 2), (3, 3, 2), dtype="fp32")
    for seed in range(60):
        fills(problem, Contract("fp32", FMA), seed, ["special"])
