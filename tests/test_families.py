"""The answers of each family: an empty field has a reason, and the families that lack an answer are listed."""

from __future__ import annotations

import copy

import pytest
import torch

from conformance import reference
from conformance.diagnosis.diagnose import axes, needed
from conformance.families.conv.problem import conv2d
from conformance.families.draw import Draw
from conformance.families.family import REGISTERED, UNKNOWN, Family, family_of
from conformance.families.gemm.problem import Bias, addmm, baddbmm, mm_plus_mm
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.linear_attention.problem import LinearAttention
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.inputs.fills import fills
from conformance.kernels import catalogue
from conformance.machine.entry_point_loading import OutsideError
from conformance.numerics.alterations import Tiling
from conformance.numerics.contract import FMA, Contract
from conformance.problems import Problem

#: The families whose answers are listed here. A new family states what it lacks in its own folder.
LISTED = {
    *("Attention", "Conv", "Gemm", "GroupedGemm", "Int4Gemm", "LinearAttention", "MicroscaledGemm"),
    *("MicroscaledGroupedGemm", "WeightGradient"),
}
#: Families that lack an answer, by field. A family that gets one is taken off. Each has the fields that are not here.
LACKING = {
    "magnitude": {"Attention", "LinearAttention"},
    "axes": {"LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
    "needed": {"LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
    "grid": {"GroupedGemm", "MicroscaledGroupedGemm"},
    "products": {"Attention", "LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
    "alterations": {"MicroscaledGemm", "MicroscaledGroupedGemm"},
    "unit": {"Attention", "Int4Gemm", "LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
}


def test_which_family_lacks_which_answer():
    lacking: dict[str, set[str]] = {}
    for problems, family in REGISTERED.items():
        if problems.__name__ in LISTED:
            for name, reason in family.lacks.items():
                assert len(reason.split()) > 3, f"{problems.__name__} lacks {name}: give the reason as a sentence"
                lacking.setdefault(name, set()).add(problems.__name__)
    assert lacking == LACKING


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lacks": {"axes": "unknown"}}, r"'value'\], lacks explains \['axes'\]"),
        (
            {"grid": lambda *_: (1,), "lacks": UNKNOWN.lacks},
            r"\['alterations', 'axes', 'draw_problem', .* 'unit', 'value'\], lacks explains",
        ),
    ],
)
def test_an_empty_field_needs_a_reason_and_a_filled_one_has_none(fields, message):
    with pytest.raises(ValueError, match=message):
        Family(**fields)


def test_each_kernel_computes_problems_of_a_registered_family():
    for kernel in catalogue.own_kernels().values():
        if kernel.offered:
            problem = kernel.example(kernel.dtype_names()[0], kernel.configs[0])
            assert isinstance(problem, kernel.problems), kernel.name
            assert family_of(problem) is kernel.answers is not UNKNOWN, kernel.name


class Unregistered(Problem):
    op, dtype, id = "none", "fp16", "unregistered"
    operands = outputs = ()
    dense = None


def test_a_class_without_a_family_has_no_answers():
    problem = Unregistered()
    assert family_of(problem) is UNKNOWN
    assert needed(problem, {}, "out", ()) == {}
    with pytest.raises(TypeError, match="registers no record"):
        axes(problem, "a")


def test_a_family_that_does_not_say_what_is_read_says_why():
    kernel = catalogue.get("gated_linear_attention")
    problem = kernel.example(kernel.dtype_names()[0], kernel.configs[0])
    assert REGISTERED[LinearAttention].needed is None
    with pytest.raises(TypeError, match="needs all earlier positions"):
        axes(problem, "a")


def test_a_kernel_has_the_examples_of_its_family(monkeypatch):
    """If the family has no others, the timed and the random problems are examples."""
    kernel = copy.copy(catalogue.get("int4_mm"))
    kernel.problems = Unregistered
    with pytest.raises(OutsideError, match=r"int4_mm has no example, nor has its family \(the family registers no rec"):
        kernel.timed("bf16xint4")
    lacks = {name: reason for name, reason in UNKNOWN.lacks.items() if name != "example"}
    monkeypatch.setitem(REGISTERED, Unregistered, Family(example=lambda *arguments: arguments, lacks=lacks))
    assert kernel.timed("bf16xint4") == (kernel, "bf16xint4", kernel.configs[0], kernel.usual_shape)
    _, dtype, config, shape = kernel.draw_problem(Draw("int4_mm", 0, large=False))
    assert (dtype in kernel.dtype_names(), config in kernel.configs, shape in kernel.shapes) == (True, True, True)


#: M, N and K of each kind of grouped product.
GROUPED = {"2d-3d": (None, 6, 7), "3d-2d": (5, None, 7), "2d-2d": (5, 6, None)}
IMAGES = conv2d(2, 4, (6, 5), 6, (3, 2), groups=2, bias=True, stride=(2, 1), padding=(1, 1))


@pytest.mark.parametrize(
    "problem",
    [
        addmm(5, 6, 7),
        baddbmm(5, 6, 7, batch=3, bias=Bias("bmn")),
        mm_plus_mm(5, 6, 7),
        *(GroupedGemm(kind, (3, 0, 4), *sizes, "fp16") for kind, sizes in GROUPED.items()),
        IMAGES,
        WeightGradient(IMAGES),
    ],
    ids=lambda problem: problem.id,
)
def test_the_products_of_a_family_are_its_output(problem):
    """Each product of the first output multiplies to its part of that output, and no wrong element is in none."""
    (fill,) = fills(problem, Contract(problem.output_dtype, FMA), 1, ("transparent",))
    out, wrong = fill.expected, torch.ones(problem.output.shape, dtype=torch.bool)
    found = list(family_of(problem).products(problem, fill, out, wrong, Tiling((4, 4, 2))))
    for product in found:
        torch.testing.assert_close(
            reference.value(product.problem, product.fill.inputs), product.output, rtol=0, atol=0
        )
    assert sum(int(product.bad.sum()) for product in found) == out.numel()


def test_alterations_of_a_grouped_product_are_for_exact_fills():
    problem = GroupedGemm("2d-3d", (3, 0, 4), None, 6, 7, "fp16")
    alterations, contract = family_of(problem).alterations, Contract("fp16", FMA)
    assert list(alterations(problem, contract, Tiling((4, 4, 2)), True))
    assert not list(alterations(problem, contract, Tiling((4, 4, 2)), False))
