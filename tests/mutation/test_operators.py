"""The faults that are derived from a function: their classes, sources and ids."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.mutation.functions import DeviceFunction
from conformance.mutation.mutants import mutants_of
from conformance.mutation.operators import CLASSES

SOURCE = '''\
def kernel(a_ptr, b_ptr, c_ptr, scale_ptr, M, N, K, stride_am, stride_ak, BLOCK_M: tl.constexpr, EVEN_K: tl.constexpr):
    """Multiplies."""
    tile = tl.program_id(0).to(tl.int64)
    rm = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = (rm < M)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_M)):
        if EVEN_K:
            a = tl.load(a_ptr + rm[:, None] * stride_am + k * stride_ak, mask=inside, other=0.0)
        else:
            a = tl.load(a_ptr, mask=inside & (rn < N)[None, :])
        acc = tl.dot(
            a,
            a.T,
            acc,
            input_precision="ieee",
        )
    acc = acc * tl.load(scale_ptr + rm) * 2
    tl.store(c_ptr + rm[:, None], tl.maximum(acc, 0.0).to(c_ptr.dtype.element_ty), mask=inside)
'''


def made(source=SOURCE):
    """The mutants of ``source`` by id."""
    function = DeviceFunction("file.kernel", SimpleNamespace(fn=None), Path("file.py"), 1, source)
    return {mutant.id: mutant for mutant in mutants_of(function)}


def test_every_class_has_faults():
    assert {mutant.kind for mutant in made().values()} == set(CLASSES)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("mask", "    inside = ((rm <= M))[:, None]"),
        ("mask", "            a = tl.load(a_ptr, mask=(inside))"),
        ("mask", "            a = tl.load(a_ptr + rm[:, None] * stride_am + k * stride_ak)"),
        ("bound", "    inside = ((rm < M - 1))[:, None]"),
        ("bound", "    for k in range(0, tl.cdiv(N, BLOCK_M)):"),
        ("index", "    rm = tile * BLOCK_M + tl.arange(1, BLOCK_M)"),
        ("mask", "    inside = (rm < M)[None, :]"),
        ("stride", "            a = tl.load(a_ptr + rm[:, None] * stride_ak + k * stride_ak, mask=inside, other=0.0)"),
        ("operand", "            a = tl.load(b_ptr + rm[:, None] * stride_am + k * stride_ak, mask=inside, other=0.0)"),
        ("operand", "            a,"),
        ("constant", "    acc = acc * tl.load(scale_ptr + rm) * 3"),
        ("rounding", "    tl.store(c_ptr + rm[:, None], tl.maximum(acc, 0.0), mask=inside)"),
        ("accumulator", "    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float16)"),
        ("loop", "    for k in range(0 + 1, tl.cdiv(K, BLOCK_M)):"),
        ("loop", "    for k in range(0, tl.cdiv(K, BLOCK_M) - 1):"),
        ("predicate", "        if (not EVEN_K):"),
        ("index", "    rm = (tile * BLOCK_M - tl.arange(0, BLOCK_M))"),
        ("arithmetic", "    acc = (acc * tl.load(scale_ptr + rm))"),
        ("function", "    tl.store(c_ptr + rm[:, None], tl.minimum(acc, 0.0).to(c_ptr.dtype.element_ty), mask=inside)"),
        ("statement", "    pass"),
        ("other", "            a = tl.load(a_ptr + rm[:, None] * stride_am + k * stride_ak, mask=inside, other=1)"),
        ("program", "    tile = tl.program_id(1).to(tl.int64)"),
        ("scale", "    acc = (acc * tl.load(scale_ptr + rm) + 2)"),
    ],
)
def test_a_fault_of_a_class(kind, line):
    sources = [without_brackets(mutant.source).split("\n") for mutant in made().values() if mutant.kind == kind]
    assert any(without_brackets(line) in lines for lines in sources)


def without_brackets(text):
    return text.replace("(", "").replace(")", "")


def test_every_mutant_is_python_of_as_many_lines_and_differs_from_all_others():
    mutants = made()
    assert len({mutant.source for mutant in mutants.values()}) == len(mutants)
    for mutant in mutants.values():
        ast.parse(mutant.source)
        assert mutant.source.count("\n") == SOURCE.count("\n")
        assert mutant.source != SOURCE
        assert mutant.diff


def test_ids_and_digests_stay_where_only_lines_move():
    moved = SOURCE.replace("    tile = tl", "    # a comment\n\n    tile = tl")
    assert list(made(moved)) == list(made())
    before = {name: mutant.lines for name, mutant in made().items()}
    assert all(mutant.lines[0] == before[name][0] + 2 for name, mutant in made(moved).items())


def test_lines_are_those_of_the_statement_or_of_its_header():
    lines = {mutant.path: mutant.lines for mutant in made().values()}
    assert lines["body6.body0.test"] == (9, 9)
    assert lines["body6.body1"] == (13, 18)
