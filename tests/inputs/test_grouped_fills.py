"""Fills of grouped products: what they promise, group by group, and that a wrong group shows."""

import dataclasses

import pytest
import torch

from conformance.families.grouped import reference as grouped
from conformance.families.grouped.problem import GroupedGemm
from conformance.inputs.fills import FillError, fill_names, fills
from conformance.numerics.contract import FMA, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge
from conformance.problems import Layout

CONTRACT = Contract("fp16", FMA)
PROBLEMS = [
    GroupedGemm("2d-3d", (9, 0, 5), None, 7, 11, "fp16"),
    GroupedGemm("3d-2d", (0, 9, 5), 7, None, 11, "fp16"),
    GroupedGemm("2d-2d", (9, 5, 0), 7, 6, None, "fp16"),
    GroupedGemm("3d-3d", (6, 6), 6, 7, 11, "fp16"),
]


def by_id(problem):
    return problem.id


FP8 = {"dtype": "e4m3", "out_dtype": "fp16", "layout_b": Layout("col")}
SCALED = [
    GroupedGemm("2d-3d", (9, 0, 5), None, 7, 64, scaling="row", **FP8),
    GroupedGemm("3d-2d", (0, 9, 5), 7, None, 64, scaling="row", **FP8),
    GroupedGemm("2d-2d", (32, 16, 0), 7, 6, None, scaling="tensor", **FP8),
    GroupedGemm("3d-3d", (6, 6), 6, 7, 64, scaling="row", **FP8),
]


def factor(problem, fill, group, where):
    """The product of the scales of each element of a group's result; 1 without scales."""
    if problem.scaling is None:
        return 1.0
    scale_a, scale_b = (fill.inputs[name].double() for name in ("scale_a", "scale_b"))
    if problem.scaling == "tensor":
        return scale_a[group] * scale_b[group]
    rows = scale_a[where] if problem.ragged == "M" else scale_a[group]
    columns = scale_b[where] if problem.ragged == "N" else scale_b[group]
    return rows[:, None] * columns[None]


@pytest.mark.parametrize("problem", PROBLEMS + SCALED, ids=by_id)
def test_every_fill_and_its_value(problem):
    """The value is written out here once more, by a loop over groups of the operands' own slices."""
    every_fill = fills(problem, CONTRACT)
    names = tuple(name for name in fill_names(problem) if problem.scaling or name != "wide-scales")
    assert tuple(fill.name for fill in every_fill) == names
    for fill in every_fill:
        a, b = (fill.inputs[name].double() for name in "ab")
        pieces = []
        for group, (size, end) in enumerate(zip(problem.sizes, problem.ends, strict=True)):
            where = slice(end - size, end)
            left = a[group] if a.dim() == 3 else a[where] if problem.ragged == "M" else a[:, where]
            right = b[group] if b.dim() == 3 else b[:, where] if problem.ragged == "N" else b[where]
            pieces.append((left @ right) * factor(problem, fill, group, where))
        expected = {"2d-3d": torch.cat, "3d-2d": lambda p: torch.cat(p, 1)}.get(problem.kind, torch.stack)(pieces)
        assert tuple(fill.expected.shape) == problem.output.shape
        torch.testing.assert_close(fill.expected, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
        assert (fill.error is None) == (fill.method == "exact")
        assert fill.error is None or bool((fill.error >= 0).all() | fill.error.isnan().any())


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_deterministic_and_independent_of_layouts(problem):
    other = dataclasses.replace(problem, layout_a=Layout("col", pad=3), layout_out=Layout(pad=1))
    for one, two in zip(fills(problem, CONTRACT, 3), fills(other.dense, CONTRACT, 3), strict=True):
        assert all(torch.equal(one.inputs[n].view(torch.int16), two.inputs[n].view(torch.int16)) for n in "ab")
    first, second = (fills(problem, CONTRACT, seed, ("transparent",))[0] for seed in (0, 1))
    assert not torch.equal(first.expected, second.expected)


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_verdicts(problem):
    """The rounded value passes, and two groups exchanged fail every fill."""
    for fill in fills(problem, CONTRACT, names=("transparent", "wide-A", "randn")):
        out = round_to(fill.expected, "fp16")
        assert judge(problem, CONTRACT, fill, out).passed
        if problem.kind == "3d-3d":
            assert not judge(problem, CONTRACT, fill, out.flip(0)).passed


def test_what_no_product_reads_is_nan():
    fill = fills(PROBLEMS[0], CONTRACT, names=("transparent",))[0]
    assert fill.inputs["b"][1].isnan().all()
    assert not fill.inputs["b"][[0, 2]].isnan().any()
    assert fill.expected.isfinite().all()
    assert fill.inputs["offsets"].tolist() == [9, 9, 14]


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (GroupedGemm("2d-3d", (0, 0), None, 7, 11, "fp16"), ("transparent",)),
        (GroupedGemm("2d-2d", (0, 0), 6, 7, None, "fp16"), ("transparent", "randn")),
        (GroupedGemm("3d-3d", (6, 6), 6, 7, 0, "fp16"), ("transparent", "randn")),
    ],
    ids=lambda value: getattr(value, "id", None),
)
def test_without_products(problem, names):
    every_fill = fills(problem, CONTRACT)
    assert tuple(fill.name for fill in every_fill) == names
    assert all(not fill.expected.any() for fill in every_fill)


def test_groups_put_together_wrongly_are_noticed(monkeypatch):
    """The fill's own check: the value of the whole is compared with that of each group."""
    original = grouped.joined
    monkeypatch.setattr(grouped, "joined", lambda problem, name, parts: original(problem, name, parts[::-1])
                        if name == "b" else original(problem, name, parts))  # fmt: skip
    with pytest.raises(FillError, match="put together"):
        fills(PROBLEMS[3], CONTRACT, names=("transparent",))


def test_what_is_refused():
    with pytest.raises(ValueError, match="codes-A"):
        fills(PROBLEMS[0], CONTRACT, names=("codes-A",))
    with pytest.raises(ValueError, match="its contract says bf16"):
        fills(PROBLEMS[0], Contract("bf16", FMA))
    inputs = dict(fills(PROBLEMS[0], CONTRACT, names=("randn",))[0].inputs)
    with pytest.raises(ValueError, match="offsets are"):
        grouped.value(PROBLEMS[0], {**inputs, "offsets": inputs["offsets"] + 1})
    with pytest.raises(KeyError, match="offsets"):
        grouped.value(PROBLEMS[0], {name: inputs[name] for name in "ab"})


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_magnitude_bounds_the_value_and_parts_invert_joined(problem):
    inputs = fills(problem, CONTRACT, names=("randn",))[0].inputs
    assert (grouped.magnitude(problem, inputs) >= grouped.value(problem, inputs).abs() * (1 - 2.0**-40)).all()
    for name in "ab":
        parts = grouped.parts(problem, name, inputs[name])
        assert len(parts) == problem.groups
        assert torch.equal(grouped.joined(problem, name, parts).view(torch.int16), inputs[name].view(torch.int16))
