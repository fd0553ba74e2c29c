"""The answers of each family: an empty field has a reason, and the families that lack an answer are listed."""

from __future__ import annotations

import doctest

import pytest

from conformance.diagnosis.dependence import axes, needed
from conformance.families import index_sets, launch_tiles
from conformance.families.family import REGISTERED, UNKNOWN, Family, family_of
from conformance.families.int4.problem import Int4Gemm
from conformance.kernels import catalogue
from conformance.problems import Problem

#: Families that lack an answer, by field. A family that gets one is taken off, a new family is added with its reason.
LACKING = {
    "axes": {"Int4Gemm", "LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
    "needed": {"Int4Gemm", "LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
    "grid": {"GroupedGemm", "MicroscaledGroupedGemm"},
    "products": {"Attention", "Int4Gemm", "LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
    "alterations": {"Int4Gemm", "LinearAttention", "MicroscaledGemm", "MicroscaledGroupedGemm"},
}


def test_which_family_lacks_which_answer():
    lacking: dict[str, set[str]] = {}
    for problems, family in REGISTERED.items():
        if problems.__module__.startswith("conformance."):
            for name, reason in family.lacks.items():
                assert len(reason.split()) > 3, f"{problems.__name__} lacks {name}: give the reason as a sentence"
                lacking.setdefault(name, set()).add(problems.__name__)
    assert lacking == LACKING


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lacks": {"axes": "unknown"}}, r"'tiles'\], lacks explains \['axes'\]"),
        (
            {"grid": lambda *_: (1,), "lacks": UNKNOWN.lacks},
            r"\['alterations', 'axes', 'needed', 'products', 'tiles'\]",
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
            assert family_of(problem) is not UNKNOWN, kernel.name


def test_a_class_without_a_family_has_no_answers():
    class Unregistered(Problem):
        op, dtype, id = "none", "fp16", "unregistered"
        operands = outputs = ()
        dense = None

    problem = Unregistered()
    assert family_of(problem) is UNKNOWN
    assert needed(problem, {}, "out", ()) == {}
    with pytest.raises(TypeError, match="registers fills and a reference only"):
        axes(problem, "a")


def test_a_family_that_does_not_say_what_is_read_says_why():
    kernel = catalogue.get("int4_mm")
    problem = kernel.example(kernel.dtype_names()[0], kernel.configs[0])
    assert REGISTERED[Int4Gemm].needed is None
    with pytest.raises(TypeError, match="packed weights, scales and zero points"):
        axes(problem, "a")


@pytest.mark.parametrize("module", [index_sets, launch_tiles], ids=lambda module: module.__name__.split(".")[-1])
def test_the_worked_examples(module):
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
