"""Numbers at each index that an output needs change it, axis by axis, and those at no other do."""

from __future__ import annotations

import pytest
import torch

from conformance import reference
from conformance.diagnosis.diagnose import axes, needed
from conformance.families.attention.problem import Attention, Mask, Score
from conformance.families.conv.problem import Conv, conv2d, conv_transpose2d
from conformance.families.gemm.problem import (
    Bias,
    Fusion,
    addmm,
    baddbmm,
    dual_mm,
    fused_mm,
    mm_plus_mm,
    mm_with_sums,
    scaled_mm,
)
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.inputs.fills import fills
from conformance.numerics.contract import FMA, Contract

PROBLEMS = [
    addmm(5, 6, 7),
    addmm(5, 6, 7, beta=0.0),
    addmm(5, 6, 7, alpha=0.0),
    baddbmm(5, 6, 7, batch=3, bias=Bias("bmn")),
    mm_plus_mm(5, 6, 7),
    dual_mm(5, 6, 7),
    mm_with_sums(5, 6, 7),
    scaled_mm(5, 16, 16),
    scaled_mm(130, 16, 144, scaling="1x128/128x128"),
    scaled_mm(130, 16, 144, scaling="128x128/1x128"),
    fused_mm(5, 6, 7, fusion=Fusion("gather", None, ("residual",))),
    fused_mm(5, 6, 7, fusion=Fusion("scale", None, ("bias",)), bias=Bias()),
    GroupedGemm("2d-3d", (3, 0, 4), None, 6, 7, "fp16"),
    GroupedGemm("3d-2d", (3, 0, 4), 5, None, 7, "fp16"),
    GroupedGemm("2d-2d", (3, 0, 4), 5, 6, None, "fp16"),
    conv2d(2, 4, (6, 5), 6, (3, 2), groups=2, bias=True, stride=(2, 1), padding=(1, 1)),
    conv_transpose2d(2, 4, (6, 5), 6, (3, 2), groups=2, bias=True, stride=(2, 1), padding=(1, 1)),
    WeightGradient(conv2d(2, 4, (6, 5), 6, (3, 2), groups=2, bias=True, stride=(2, 1), padding=(1, 1))),
    Attention("attention", 2, 4, 5, 9, 16, kv_heads=2, mask=Mask("sliding-window", 3)),
    Attention("attention", 2, 2, 5, 9, 16, kv_batch=1, score=Score("alibi")),
    Attention("attention", 1, 4, 5, 23, 16, kv_heads=2, mask=Mask("packed", 2), page=4),
    Attention("attention_backward", 2, 4, 5, 9, 16, kv_heads=2, mask=Mask("causal")),
]


def value(problem, inputs, output):
    if isinstance(problem, Attention):
        from conformance.families.attention import reference as attention

        return (attention.backward if problem.backward else attention.forward)(problem, inputs).outputs[output]
    if output == "grad_bias":
        return inputs["grad_out"].double().sum((0, 2, 3))
    return inputs["a"].double().sum(1) if output == "sums" else reference.value(problem, inputs)


def changed_along(tensor, axis, index):
    """``tensor`` with other numbers wherever the index along ``axis`` is ``index``."""
    result = tensor.double().clone()
    part = result.select(axis, index)
    part += torch.rand(part.shape, generator=torch.Generator().manual_seed(index), dtype=torch.float64) + 0.5
    return result


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_every_axis_of_an_output_has_a_name(problem):
    for output in problem.outputs:
        if isinstance(problem, (Conv, WeightGradient)):  # of an operand, the same names would mean something else
            with pytest.raises(KeyError):
                axes(problem, output.name)
        else:
            names = axes(problem, output.name)
            assert len(names) == len({*names}) == len(output.shape)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_other_numbers_at_every_needed_index_change_the_output_and_no_others_do(problem):
    inputs = fills(problem, Contract(problem.outputs[0].dtype, FMA), 1, ("randn",))[0].inputs
    for output in problem.outputs:
        right = value(problem, inputs, output.name)
        place = tuple(extent // 2 for extent in output.shape)
        stored = [torch.arange(extent) == at for extent, at in zip(output.shape, place, strict=True)]
        for name, indices in needed(problem, inputs, output.name, stored).items():
            tensor = inputs[name]
            assert len(axes(problem, name)) == len(indices) == tensor.dim()
            if not tensor.is_floating_point():
                continue
            for axis, index in enumerate(indices):
                assert len(index) == tensor.shape[axis]
                for number in range(len(index)):
                    changed = {**inputs, name: changed_along(tensor, axis, number)}
                    reached = value(problem, changed, output.name)[place] != right[place]
                    assert bool(reached) == bool(index[number]), (output.name, name, axis, number)


def test_what_no_output_depends_on_is_not_needed():
    assert "bias" not in needed(PROBLEMS[1], {}, "out", [torch.ones(5).bool(), torch.ones(6).bool()])
    assert set(needed(PROBLEMS[2], {}, "out", [torch.ones(5).bool(), torch.ones(6).bool()])) == {"bias"}
    assert needed(PROBLEMS[0], {}, "out", [torch.zeros(5).bool(), torch.ones(6).bool()]) == {}
