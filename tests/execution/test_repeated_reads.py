"""Terms of a sum that two programs add to the same elements are named, from what the programs touched."""

from __future__ import annotations

import pytest

from conformance.execution.interpreter.repeated_reads import lost_stores, repeated_reads
from conformance.families.attention.problem import Attention
from conformance.families.gemm.problem import mm
from tests.execution.test_missing_reads import SPLIT, Run

ATTENTION = Attention("attention", 1, 1, 8, 8, 4)


def parts(*ranges: tuple[int, int], rows: slice = slice(0, 4)) -> Run:
    """Programs that each add one range of k to rows of the output."""
    run = Run(SPLIT)
    a, b, out = (run.tensors[name] for name in ("a", "b", "out"))
    for number, (first, last) in enumerate(ranges):
        run.program(number, out[rows], a=a[rows, first:last], b=b[first:last])
    return run


@pytest.mark.parametrize(
    ("ranges", "fact"),
    [
        (((0, 4), (4, 8)), []),
        (((0, 5), (4, 8)), ["k 4 counted twice: programs (0, 0, 0) and (1, 0, 0), which both add to out, read it"]),
        (((0, 4), (4, 8), (2, 6)), [
            "k 2..3 counted twice: programs (0, 0, 0) and (2, 0, 0), which both add to out, read it"
        ]),
    ],
)  # fmt: skip
def test_k_that_two_programs_add_is_counted_twice(ranges: tuple[tuple[int, int], ...], fact: list[str]) -> None:
    run = parts(*ranges)
    assert repeated_reads(run.problem, run.footprints) == fact


def test_a_part_without_any_k_counts_nothing_twice() -> None:
    run = parts((0, 8))
    run.program(1, run.tensors["out"][:4])
    assert repeated_reads(run.problem, run.footprints) == []


def test_parts_that_are_stored_and_not_added_are_lost() -> None:
    """Programs that read the same store the same: tiles of some kernels overlap."""
    text = "programs (0, 0, 0) and (1, 0, 0) store to the same elements of out, and neither adds to them"
    run = parts((0, 4), (4, 8))
    assert lost_stores(run.problem, run.footprints) == [text]
    for footprint in run.footprints.footprints:
        footprint.changed.add("out")
    assert lost_stores(run.problem, run.footprints) == []
    alike = parts((0, 8), (0, 8))
    assert lost_stores(alike.problem, alike.footprints) == []


def test_programs_of_other_elements_may_read_the_same() -> None:
    run = Run(mm(4, 6, 8))
    a, b, out = (run.tensors[name] for name in ("a", "b", "out"))
    run.program(0, out[:2], a=a[:2], b=b)
    run.program(1, out[2:], a=a[2:], b=b)
    assert repeated_reads(run.problem, run.footprints) == []


def test_an_operand_that_parts_share_is_no_term() -> None:
    """Parts of the keys read all of q. A term is a key with an element of q, and no two parts have the same key."""
    run = Run(ATTENTION)
    tensors = run.tensors
    for number, keys in enumerate((slice(0, 4), slice(4, 8))):
        k, v = tensors["k"][:, :, keys], tensors["v"][:, :, keys]
        run.program(number, tensors["out"], q=tensors["q"], k=k, v=v)
    assert repeated_reads(run.problem, run.footprints) == []
