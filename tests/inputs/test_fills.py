import dataclasses
import hashlib
import math

import pytest
import torch

from conformance import reference
from conformance.families.gemm import exact, integer_budget
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import Bias, addmm, mm, scaled_mm
from conformance.families.gemm.reference import growth
from conformance.inputs.fills import Draws, FillError, fill_names, fills
from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.rounding import bits
from conformance.problems import Layout
from tests.inputs.fill_quality import NARROW, check_promises, contract_of, visible_shares

PROMOTED = dataclasses.replace(NARROW, promote=128)

#: The suites' typical problems: every operation, dtype, output and shape class.
TYPICAL = [
    *(
        mm(*sizes, dtype)
        for dtype in ("fp16", "bf16", "fp32")
        for sizes in ((168, 248, 88), (129, 65, 33), (31, 77, 257))
    ),
    mm(168, 248, 88, "fp32", precision="tf32"),
    mm(168, 248, 88, "fp16", out_dtype="fp32"),
    mm(168, 248, 88, "fp32", out_dtype="bf16"),
    *(
        addmm(168, 248, 88, dtype, bias=Bias(kind))
        for dtype in ("fp16", "bf16", "fp32")
        for kind in ("n", "1n", "m1", "mn")
    ),
    addmm(168, 248, 88, "fp16", alpha=-4.0, beta=0.0),
    addmm(168, 248, 88, "fp16", alpha=0.0),
    addmm(168, 248, 88, "fp16", alpha=256.0, beta=-(2.0**-8)),
    addmm(168, 248, 88, "fp16", alpha=-(2.0**-8), beta=256.0),
    *(
        scaled_mm(168, 248, 88, dtype, scaling=scaling, bias=bias, out_dtype=out)
        for dtype in ("e4m3", "e5m2")
        for scaling in ("row", "tensor")
        for bias in (None, Bias())
        for out in ("bf16", "fp16", "fp32", "e4m3", "e5m2")
    ),
    scaled_mm(300, 520, 1031, bias=Bias()),
    scaled_mm(168, 248, 88, "e4m3", b_dtype="e5m2"),
]
SMALL = [(1, 1, 1), (1, 5, 3), (5, 1, 4), (2, 2, 2), (1, 1, 300), (3, 64, 1)]
EMPTY = [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)]


@pytest.mark.parametrize("problem", TYPICAL, ids=lambda problem: problem.id)
def test_typical_fills_hold_what_they_promise(problem):
    contract = contract_of(problem)
    every_fill = fills(problem, contract, seed=2)
    expected = fill_names(problem) if problem.has_product else ("transparent", "randn")
    if problem.scaling is None:
        expected = tuple(name for name in expected if name != "wide-scales")
    assert tuple(fill.name for fill in every_fill) == expected
    for fill in every_fill:
        check_promises(problem, fill)
        assert torch.equal(fill.expected.isnan(), reference.value(problem, fill.inputs).isnan())
        assert fill.error is None or bool((fill.error[fill.expected.isfinite() & (fill.expected != 0)] > 0).all())


def test_wide_fills_use_their_budget():
    for problem in (mm(168, 248, 88), mm(64, 64, 1031, "fp32", precision="tf32"), scaled_mm(300, 520, 1031)):
        for fill in fills(problem, contract_of(problem), names=["wide-A", "wide-B"]):
            assert fill.meta["max_subset_sum"] > 2 ** (fill.meta["budget_bits"] - 1)


def test_wide_fills_pass_one_chunk_where_the_contract_promotes():
    problem = scaled_mm(300, 520, 1031)
    for fill in fills(problem, contract_of(problem, PROMOTED), names=["wide-A", "wide-B"]):
        assert fill.meta["max_subset_sum"] < 2**14 < fill.meta["max_subset_sum_total"]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "e4m3"])
@pytest.mark.parametrize("sizes", [*SMALL, *EMPTY])
def test_tiny_and_empty_problems(sizes, dtype):
    problem = scaled_mm(*sizes) if dtype == "e4m3" else addmm(*sizes, dtype)
    every_fill = fills(problem, contract_of(problem))
    assert every_fill[0].name == "transparent"
    for fill in every_fill:
        assert fill.expected.shape == (problem.M, problem.N)
        assert {name: tuple(t.shape) for name, t in fill.inputs.items()} == {o.name: o.shape for o in problem.operands}
    if 0 in sizes[:2]:
        assert len(every_fill) == 1


@pytest.mark.parametrize("problem", [mm(16, 16, 16384), scaled_mm(16, 16, 16384), scaled_mm(8, 8, 40000, "e5m2")])
def test_density_falls_where_the_room_is_small(problem):
    for fill in fills(problem, contract_of(problem), names=["transparent", "wide-A", "wide-B"]):
        assert fill.meta["max_subset_sum"] < 2 ** fill.meta["budget_bits"]
        assert visible_shares(fill, problem)["nonzero"] > 0.5


def test_only_what_the_contract_allows():
    uneven = addmm(40, 40, 40, alpha=0.3)
    assert [fill.name for fill in fills(uneven, contract_of(uneven))] == ["wide-A", "randn", "special"]
    ignored = addmm(40, 40, 40, alpha=2.0, beta=0.0)
    assert len(fills(ignored, contract_of(ignored))) == 6
    tensor = mm(40, 40, 40)
    assert [fill.name for fill in fills(tensor, contract_of(tensor), names=["hot", "wide-A"])] == ["wide-A", "hot"]
    with pytest.raises(ValueError, match=r"\['wide'\] are unknown"):
        fills(tensor, contract_of(tensor), names=["wide"])
    with pytest.raises(ValueError, match="its contract says bf16"):
        fills(tensor, Contract("bf16", Accumulator()))


def test_ignored_operands_are_nan():
    for fields, names in (({"beta": 0.0}, {"bias"}), ({"alpha": 0.0}, {"a", "b"})):
        problem = addmm(20, 30, 40, **fields)
        for fill in fills(problem, contract_of(problem)):
            whole = {name for name, t in fill.inputs.items() if bool(t.isnan().all())}
            assert whole == names
            assert bool(fill.expected.isfinite().any())


def test_tf32_inputs_are_representable():
    problem = mm(40, 48, 88, "fp32", precision="tf32")
    for fill in fills(problem, contract_of(problem)):
        for name in "ab":
            assert not (bits(fill.inputs[name])[fill.inputs[name].isfinite()] & 0x1FFF).any()
    # and those of an ieee contract are not
    wide = fills(mm(40, 48, 88, "fp32"), contract_of(mm(40, 48, 88, "fp32")), names=["wide-A"])[0]
    assert (bits(wide.inputs["a"]) & 0x1FFF).bool().double().mean() > 0.9


def test_scales():
    row = scaled_mm(64, 80, 40)
    for fill in fills(row, contract_of(row)):
        scale_a, scale_b = fill.inputs["scale_a"], fill.inputs["scale_b"]
        if fill.name == "wide-scales":
            assert len(set(scale_a.flatten().tolist())) > 32
            assert not torch.equal(scale_a.bfloat16().float(), scale_a), "a scale cast to bf16 must show"
            assert not torch.equal(scale_b.half().float(), scale_b), "a scale cast to fp16 must show"
        elif fill.method == "exact":
            assert set(scale_a.flatten().tolist()) == {2.0, 4.0}
            assert set(scale_b.flatten().tolist()) == {0.25, 0.5}
            for scale in (scale_a.flatten(), scale_b.flatten()):
                assert all(not torch.equal(scale[period:], scale[:-period]) for period in range(1, 40))
        else:
            mantissas = torch.frexp(torch.cat([scale_a.flatten(), scale_b.flatten()]))[0]
            assert not (mantissas == 0.5).any()
            assert bool((mantissas > 0).all())
    tensor = scaled_mm(64, 80, 40, scaling="tensor")
    for fill in fills(tensor, contract_of(tensor)):
        assert float(fill.inputs["scale_a"] * fill.inputs["scale_b"]) != 1


def test_special_fill_holds_every_kind():
    problem = mm(64, 64, 88, "bf16", out_dtype="fp16")
    fill = fills(problem, contract_of(problem), names=["special"])[0]
    for name, vectors in (("a", fill.inputs["a"]), ("b", fill.inputs["b"].T)):
        kinds = {
            "nan": vectors.isnan().any(1),
            "+inf": (vectors == math.inf).any(1),
            "-inf": (vectors == -math.inf).any(1),
            "-0": ((vectors == 0) & vectors.signbit()).all(1),
            "largest": (vectors == torch.finfo(torch.bfloat16).max).any(1),
            "subnormal": (vectors.abs() < torch.finfo(torch.bfloat16).tiny).all(1) & (vectors != 0).any(1),
        }
        assert {kind for kind, rows in kinds.items() if bool(rows.any())} == set(kinds), name
        assert not vectors[:, -1].isfinite().all() or bool((vectors[:, -1].abs() > 1e30).any()), "the last k holds one"
    finite = fill.expected.isfinite()
    assert 0.25 < finite.double().mean() < 1
    assert bool((fill.expected[finite].abs() > 65504).any()), "one row overflows fp16"
    flushing = dataclasses.replace(contract_of(problem), flushes_subnormals=True)
    plain = fills(problem, flushing, names=["special"])[0].inputs["a"]
    assert not ((plain != 0) & (plain.abs() < torch.finfo(torch.bfloat16).tiny)).any()


def test_e4m3_holds_no_infinity():
    problem = scaled_mm(64, 64, 88)
    fill = fills(problem, contract_of(problem), names=["special"])[0]
    assert fill.inputs["a"].float().isnan().any()
    assert not fill.expected.isinf().any()


def digest(every_fill):
    state = hashlib.sha256()
    for fill in every_fill:
        for tensor in fill.inputs.values():
            state.update(bits(tensor).numpy().tobytes())
    return state.hexdigest()[:16]


def test_same_bits_everywhere():
    """A change of these digests is a change of every recorded case."""
    computed = {
        problem.id: digest(fills(problem, contract_of(problem), 7)) for problem in (mm(40, 24, 33), scaled_mm(9, 8, 70))
    }
    assert computed == {
        "mm-40x24x33-fp16-row.row.row": "1cb807c292111ea0",
        "scaled_mm-9x8x70-e4m3-row.col.row-row": "be4aabb6f2f43fc9",
    }


def test_layouts_do_not_change_values_and_seeds_do():
    problem = mm(40, 24, 33)
    strided = mm(40, 24, 33, layout_a=Layout("col", pad=8), layout_out=Layout(offset=1))
    assert digest(fills(problem, contract_of(problem), 3)) == digest(fills(strided, contract_of(problem), 3))
    assert digest(fills(problem, contract_of(problem), 3)) != digest(fills(problem, contract_of(problem), 4))


def test_draws():
    draws = Draws(11, "test")
    assert set(draws.nonzero(2, (1000,)).tolist()) == {-2, -1, 1, 2}
    assert set(draws.below(3, (1000,)).tolist()) == {0, 1, 2}
    assert sorted(draws.permutation(50).tolist()) == list(range(50))
    normal = draws.normal((40000,))
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.02
    assert 0 < draws.uniform((1000,)).min() <= draws.uniform((1000,)).max() <= 1
    assert abs(draws.chance(0.25, (10000,)).mean() - 0.25) < 0.02
    with pytest.raises(ValueError, match="seed is -1"):
        Draws(-1, "test")


# -- planted faults of the oracle itself
def test_budget_check_trips(monkeypatch):
    problem = mm(40, 48, 88)

    def greedy(draws, budget, sizes, *rest):
        full = 1 + draws.below(2047, (sizes[0], budget.k))
        return full, 1 + draws.below(2047, (budget.k, sizes[1]))

    monkeypatch.setattr(exact, "_wide_pair", greedy)
    with pytest.raises(FillError, match=r"wide-A: max\(P, N\) is \d+ units .* below 16777216"):
        fills(problem, contract_of(problem), names=["wide-A"])


def test_budget_is_that_of_a_chunk():
    problem = scaled_mm(40, 48, 256)
    contract = contract_of(problem, PROMOTED)
    integer_budget.check_budget(problem, contract, "planted", 16383, 32000)
    with pytest.raises(FillError, match="16384 units in a chunk of 128 k"):
        integer_budget.check_budget(problem, contract, "planted", 16384, 32000)
    with pytest.raises(FillError, match="in all"):
        integer_budget.check_budget(problem, contract, "planted", 16383, 2**24)


def test_subset_sums_by_hand():
    a = torch.tensor([[3, -2, 5, 1]])
    b = torch.tensor([[2], [4], [-1], [7]])
    # products 6, -8, -5, 7: P = 13, N = 13; in any two neighbours: (6, 8), (0, 13) and (7, 5)
    assert integer_budget.subset_sums(a, b, 4) == (13, 13)
    assert integer_budget.subset_sums(a, b, 2) == (13, 13)
    assert integer_budget.subset_sums(a, b, 1) == (8, 13)


@pytest.mark.parametrize("place", [0, 3, 6])
def test_subset_sums_see_every_block_of_rows(monkeypatch, place):
    monkeypatch.setattr(integer_budget, "OUTPUTS_AT_ONCE", 4)  # two rows
    a = torch.ones(7, 6, dtype=torch.int64)
    a[place] = 5
    b = torch.ones(6, 2, dtype=torch.int64)
    assert integer_budget.subset_sums(a, b, 2) == (10, 30)


def test_subset_sums_of_a_chunk_that_is_longer_than_all():
    ones = torch.ones(1, 6, dtype=torch.int64)
    assert [integer_budget.subset_sums(ones, ones.T, chunk, 3) for chunk in (2, 6, 100)] == [(2, 6), (3, 6), (3, 6)]


def test_freivalds_check_trips(monkeypatch):
    problem = mm(40, 48, 88)
    right = gemm.product

    def wrong(*args, **kwargs):
        raw = right(*args, **kwargs)
        raw[3, 5] += 2.0**-7
        return raw

    monkeypatch.setattr(gemm, "product", wrong)
    with pytest.raises(FillError, match="Freivalds"):
        fills(problem, contract_of(problem), names=["transparent"])


def test_values_that_do_not_fit_are_refused():
    operand = mm(4, 4, 4).operand("a")
    with pytest.raises(FillError, match="do not fit fp16"):
        integer_budget.exactly([[4095.0]], 0, operand, ("fp16",))


def test_shares_of_poor_fills_are_small():
    problem = mm(40, 48, 88)
    contract = contract_of(problem)
    fill = fills(problem, contract, names=["transparent"])[0]
    poor = dataclasses.replace(fill, expected=torch.zeros_like(fill.expected))
    assert visible_shares(poor, problem)["nonzero"] == 0
    opaque = dataclasses.replace(fill, expected=fill.expected * 4096)
    assert visible_shares(opaque, problem)["transparent"] < 0.5
    assert growth(contract.accumulator, 0) == 0
