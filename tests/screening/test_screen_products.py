"""The products of a screen: exact in any order, right in Triton's interpreter, and compiled to the units they test."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conformance import targets
from conformance.screening import injection, turns
from conformance.screening.fills import Fill, fills
from conformance.screening.findings import Seen, Verdict, verdict
from conformance.screening.units import Unit, unit_of_code, units
from tests.kernels.interpreter_runs import in_interpreter
from tests.screening import interpreted_screens

HOPPER = targets.find("sm_90")
#: Rows and columns of a fill whose sums are followed.
SOME = 64
#: The longest step in which a matrix unit may add products in any order, in k.
STEP = 32


@functools.cache
def named(name: str) -> Unit:
    return next(unit for unit in units(HOPPER) if unit.name == name)


def farthest(unit: Unit, fill: Fill) -> float:
    """Returns the largest sum that any order of the products within a step can reach."""
    step = 1 if fill.name.startswith("swing") else STEP
    left, right = fill.left[:SOME].double(), fill.right[:SOME].double()
    total = torch.full((SOME, SOME), float(fill.start), dtype=torch.float64)
    most = 0.0
    for k in range(0, unit.depth, step):
        a, b = left[:, k : k + step], right[:, k : k + step].T
        positive = (a @ b + a.abs() @ b.abs()) / 2
        most = max(most, float((total + positive).abs().max()), float((total + a @ b - positive).abs().max()))
        total += a @ b
    return most


@pytest.mark.parametrize(
    "name", ["fp16 128x128", "bf16 128x128", "tf32 32x64", "e4m3 128x128", "e5m2 128x128", "fp32 64x64", "fp64 32x32"]
)
def test_sums_are_exact_in_any_order_within_a_step(name):
    unit = named(name)
    for fill in fills(unit):
        assert farthest(unit, fill) <= 2.0 ** (unit.room + 1), fill.name


@pytest.mark.parametrize("name", ["e4m3 128x128 promoted", "e5m2 128x128 promoted"])
def test_partial_sums_that_are_promoted_are_exact(name):
    unit = named(name)
    few_bits = HOPPER.matrix_unit.fp8_bits
    for fill in fills(unit):
        for k in range(0, unit.depth, unit.promote):
            part = dataclasses.replace(
                fill, left=fill.left[:, k : k + unit.promote], right=fill.right[:, k : k + unit.promote], start=0
            )
            assert farthest(dataclasses.replace(unit, depth=unit.promote), part) <= 2.0 ** (few_bits + 1)


TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950", "gfx1201")


def test_every_target_has_exact_fills_without_zeros():
    """One unit of each format and range of sums: others differ in the seeds of their random numbers."""
    every = [unit for target in TARGETS for unit in units(targets.find(target))]
    for unit in {(one.dtype, one.products, one.room, one.depth): one for one in every}.values():
        for fill in fills(unit):
            fill.operands(unit)
            fill.expected(unit)
            assert bool((fill.left != 0).all() & (fill.right != 0).all()), (unit.name, fill.name)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"left": lambda left: left * 1000}, "is not exact in fp16"),
        ({"left": lambda left: left.abs(), "right": lambda right: right.abs()}, "leave the exact range"),
        ({"left": lambda left: left << 42}, "are not exact in fp64"),
    ],
)
def test_a_fill_that_is_not_exact_is_refused(change, why):
    fill = fills(named("fp16 32x64"))[0]
    wrong = dataclasses.replace(fill, **{name: alter(getattr(fill, name)) for name, alter in change.items()})
    with pytest.raises(ValueError, match=why):
        (wrong.operands if "not exact in fp16" in why else wrong.expected)(named("fp16 32x64"))


def test_units_of_hopper():
    names = {unit.name for unit in units(HOPPER)}
    assert {"fp16 128x128", "fp16 32x64", "e4m3 128x128 promoted", "int8 128x128", "fp32 64x64", "fp64 32x32"} <= names
    assert named("bf16 128x128").owed == ("wgmma",)
    assert named("bf16 32x64").owed == ("mma.sync",)
    assert {unit.owed for unit in units(targets.find("gfx942")) if unit.dtype == "e4m3fnuz"} == {("mfma",)}


def test_the_unit_of_code():
    assert unit_of_code("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") == "mma.sync"
    assert unit_of_code("fma.rn.f32 %f1, %f2") == "fma"
    assert unit_of_code("add.f32") == ""


def seen_in_interpreter(function, *arguments) -> Seen:
    return Seen.from_dict(in_interpreter(function, *arguments))


def test_interpreted_products_have_the_expected_bits():
    seen = seen_in_interpreter(interpreted_screens.clean)
    assert {unit.name: unit.turns for unit in seen.units} == dict.fromkeys(interpreted_screens.NAMES, 4)
    assert verdict(seen)[0] is Verdict.CLEAN


def test_a_wrong_element_is_found_at_its_place():
    seen = seen_in_interpreter(interpreted_screens.one_flip_in_two_turns)
    seen.how = "smid"
    answer, why = verdict(seen)
    assert answer is Verdict.SUSPECT
    assert "SM 2: 2 tiles in 2 turns" in why
    first = seen.tiles[0]
    (element,) = first.examples
    assert (first.turn, first.place, first.elements, element.row, element.column) == (1, 2, 1, 2, 5)
    assert int(element.expected, 16) ^ int(element.got, 16) == 1 << 31


def test_a_wrong_comparison_is_not_a_wrong_product():
    (tile,) = seen_in_interpreter(interpreted_screens.wrong_comparison).tiles
    assert (tile.compared, tile.place, tile.elements, tile.examples) == (True, 1, 7, ())


def test_a_unit_that_is_wrong_everywhere_ends_early():
    seen = seen_in_interpreter(interpreted_screens.wrong_everywhere)
    assert seen.turns <= turns.ENOUGH_WRONG + 2 * turns.BATCH
    assert verdict(seen)[0] is Verdict.ALIKE


def test_a_unit_that_does_not_compile_is_not_tested():
    answer, why = verdict(seen_in_interpreter(interpreted_screens.not_compiled))
    assert answer is Verdict.INCOMPLETE
    assert "fp16 32x64: it could not be prepared: RuntimeError: no such instruction" in why


def test_the_proof_finds_corruptions_at_their_places():
    proof = in_interpreter(interpreted_screens.proof, 24)
    assert len(proof.corruptions) == 24
    assert {one.where for one in proof.corruptions} == {injection.STORED, injection.ACCUMULATOR, injection.OPERAND}
    assert proof.holds, injection.table(proof)


def test_a_variant_that_is_wrong_by_itself_shows_no_corruption():
    proof = in_interpreter(interpreted_screens.proof_with_a_wrong_variant)
    (why,) = proof.left_out
    assert "fp16 32x64, INJECT 2: without a corruption" in why
    assert {one.inject for one in proof.corruptions} == {0, 1, 3}
    assert proof.holds, injection.table(proof)


def test_a_proof_that_misses_does_not_hold():
    missed = injection.Corruption(injection.STORED, 0, injection.ONE_BIT, "fp16 32x64", 0, 0, 0, 0, -1, 1)
    found = dataclasses.replace(missed, found=True, located=True)
    inside = dataclasses.replace(found, where=injection.ACCUMULATOR, inject=1)
    assert injection.Proof(corruptions=[found, inside]).holds
    assert not injection.Proof(corruptions=[missed, inside]).holds
    assert not injection.Proof(corruptions=[found, dataclasses.replace(inside, located=False)]).holds
    assert not injection.Proof(corruptions=[found, inside], alarms=1).holds
    assert not injection.Proof(corruptions=[found, inside], not_made=1).holds


def test_what_cannot_be_seen_is_explained():
    narrow = named("e4m3 128x128")
    low_bit = injection.Corruption(injection.ACCUMULATOR, 1, injection.ONE_BIT, narrow.name, 0, 1, 3, 4, -1, 1)
    assert "below the last bit that the sum keeps" in injection.explained(narrow, low_bit, 0)
    assert injection.explained(narrow, dataclasses.replace(low_bit, flip=1 << 20), 0) == ""
    same = dataclasses.replace(low_bit, flip=0)
    assert injection.explained(narrow, same, 0) == "the value had these bits already"
    wide = named("fp16 32x64")
    for inject in (2, 3):
        operand = injection.Corruption(injection.OPERAND, inject, injection.ONE_BIT, wide.name, 0, 1, 3, 4, -1, 1)
        assert injection.explained(wide, operand, 0) == ""


def test_the_classes_have_the_published_parts():
    drawn = in_interpreter(interpreted_screens.classes)
    counts = {kind: sum(one.kind == kind for one in drawn) for kind in injection.CLASSES}
    assert sum(counts.values()) == 1000
    assert counts[injection.NONFINITE] == 10
    assert counts[injection.ONE_BIT] < 0.4 * (1000 - counts[injection.NONFINITE])
    assert sum(one.where == injection.STORED for one in drawn) == 500
    assert all(one.flip or not one.keep for one in drawn)
    assert not any(one.kind == injection.NONFINITE and one.unit.startswith("int8") for one in drawn)


#: Compiles one unit of a target, and prints its unit and whether it reads the SM.
COMPILED = """
import json, sys, triton
from triton.backends.compiler import GPUTarget
from conformance import targets
from conformance.screening.device import exact_product
from conformance.screening.turns import _SUMS, how_located
from conformance.screening.units import unit_of_code, units
import triton.language as tl
target = targets.find(sys.argv[1])
unit = next(one for one in units(target) if one.name == sys.argv[2])
m, n, k = unit.block
constants = dict(
    ROWS=256, COLUMNS=256, K=unit.depth, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, SUM=_SUMS[unit.sum_dtype], PRECISION="ieee",
    PROMOTE=unit.promote, HOW=how_located(target), PLACES=1, INJECT=0, OPERAND_BITS=tl.int16, SUM_BITS=tl.int32,
    spot_ptr=None, hit_ptr=None,
)
types = dict(a_ptr="*fp16", b_ptr="*fp16", start_ptr="*fp32", out_ptr="*fp32", places_ptr="*i32", shift="i32")
names = exact_product.arg_names
source = triton.compiler.ASTSource(
    exact_product, {name: types.get(name, "constexpr") for name in names},
    {(names.index(name),): value for name, value in constants.items()},
    {(number,): [["tt.divisibility", 16]] for number in range(5)},
)
gpu = GPUTarget(target.backend, target.arch, target.warp_size)
code = triton.compile(source, target=gpu, options=dict(num_warps=unit.warps, num_stages=unit.stages)).asm
text = code.get("ptx") or code["amdgcn"]
print(json.dumps([unit_of_code(text), "%smid" in text, "HW_REG_HW_ID" in text, "atom" in text]))
"""


@pytest.mark.parametrize(
    ("target", "unit", "says"),
    [
        ("sm_90", "fp16 128x128", ["wgmma", True, False, False]),
        ("sm_90", "fp16 32x64", ["mma.sync", True, False, False]),
        ("gfx942", "fp16 128x128", ["mfma", False, True, False]),
    ],
)
def test_compiled_without_a_gpu(target, unit, says):
    """The code uses the unit, reads the SM, and has none of the corruption's atomics."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", COMPILED, target, unit]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == says
