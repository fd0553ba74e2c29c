"""Split fp32 operands: exact fills stay exact in any order of the parts, bounds hold and are not wide."""

import itertools

import pytest
import torch

from conformance.families.gemm.problem import mm
from conformance.inputs.fills import fills
from conformance.numerics.contract import FMA, SPLITS, Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge

SIZES = [(40, 56, 88), (40, 24, 1031), (24, 24, 3), (24, 24, 1)]
HOPPER = Accumulator(chunk=8)


def contract_of(precision, out="fp32", accumulator=HOPPER):
    return Contract(out, accumulator, precision)


def fills_of(precision, sizes, out="fp32", names=None):
    problem, contract = mm(*sizes, "fp32", precision=precision, out_dtype=out), contract_of(precision, out)
    built = {fill.name: fill for fill in fills(problem, contract, names=names)}
    assert names is None or set(built) == set(names)
    return problem, contract, built


def cut(values, bits):
    """Rounded towards zero to so many significant bits, as some units take the last part."""
    fraction, exponent = torch.frexp(values)
    return torch.ldexp(torch.trunc(torch.ldexp(fraction, torch.tensor(bits))), exponent - bits)


def parts(values, precision):
    """The parts of fp32 ``values`` in fp64."""
    if precision == "tf32x3":
        first = round_to(values, "tf32").double()
        return [first, cut(values - first, 11)]
    found = []
    for _ in range(2 if precision == "bf16x3" else 3):
        found.append(round_to(values, "bf16").double())
        values = values - found[-1]
    return found


def kept(precision):
    """The pairs of parts whose products are summed, the smallest first."""
    count = 3 if precision == "bf16x6" else 2
    pairs = [(i, j) for i, j in itertools.product(range(count), repeat=2) if i + j < count]
    return sorted(pairs, key=lambda pair: (-sum(pair), pair))


def summed(inputs, precision, pairs):
    """Products of the pairs of parts, which fp32 holds, one after the other, each k in turn; sums of fp32."""
    a, b = ([part.float() for part in parts(inputs[name].double(), precision)] for name in "ab")
    total = torch.zeros(a[0].shape[0], b[0].shape[1])
    for i, j in pairs:
        for left, right in zip(a[i].T, b[j], strict=True):
            total += left[:, None] * right
    return total.double()


def test_as_many_products_of_parts_are_summed_as_the_contract_says():
    for precision, split in SPLITS.items():
        assert len(kept(precision)) == split.products


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("precision", SPLITS)
def test_exact_fills_are_exact_in_either_order_of_the_parts(precision, sizes):
    for out in ("fp32", "fp16"):
        problem, contract, built = fills_of(precision, sizes, out, ("transparent", "wide-A", "wide-B"))
        for name in built:
            for pairs in (kept(precision), kept(precision)[::-1]):
                result = round_to(summed(built[name].inputs, precision, pairs), out)
                assert judge(problem, contract, built[name], result).passed, (name, out)


@pytest.mark.parametrize(("name", "operand"), [("wide-A", "a"), ("wide-B", "b")])
@pytest.mark.parametrize("precision", SPLITS)
def test_wide_fills_show_a_lost_part(precision, name, operand):
    problem, contract, built = fills_of(precision, SIZES[0], names=(name,))
    last = len(parts(torch.zeros(1, dtype=torch.float64), precision)) - 1
    lost = (last, 0) if operand == "a" else (0, last)
    result = round_to(summed(built[name].inputs, precision, [pair for pair in kept(precision) if pair != lost]), "fp32")
    assert not judge(problem, contract, built[name], result).passed


@pytest.mark.parametrize("precision", SPLITS)
def test_bounds_hold_and_show_a_lost_product_of_first_and_second_parts(precision):
    for sizes in SIZES[:2]:
        problem, contract, built = fills_of(precision, sizes, names=("randn", "hot"))
        for name, fill in built.items():
            result = round_to(summed(fill.inputs, precision, kept(precision)), "fp32")
            assert judge(problem, contract, fill, result).passed, name
    problem, contract, built = fills_of(precision, SIZES[0], names=("randn",))
    for lost in ((0, 1), (1, 0)):
        fewer = [pair for pair in kept(precision) if pair != lost]
        result = round_to(summed(built["randn"].inputs, precision, fewer), "fp32")
        assert not judge(problem, contract, built["randn"], result).passed, lost


def test_what_is_dropped_of_one_product_is_within_the_bound_and_near_it():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(200_000, generator=generator).double() for _ in range(2))
    for precision, split in SPLITS.items():
        of_a, of_b = parts(a, precision), parts(b, precision)
        lost = (a * b - sum(of_a[i] * of_b[j] for i, j in kept(precision))).abs() / (a * b).abs()
        assert split.dropped / 8 < float(lost.max()) <= split.dropped, precision


def test_fills_have_operands_of_more_than_one_part_and_nothing_of_which_nothing_is_promised():
    for precision, split in SPLITS.items():
        _, _, built = fills_of(precision, SIZES[0])
        for name, operand in (("wide-A", "a"), ("wide-B", "b"), ("randn", "a"), ("randn", "b")):
            values = built[name].inputs[operand].double()
            assert not torch.equal(cut(values, split.part_bits), values), (precision, name)
        for values in built["special"].inputs.values():
            assert not values.isinf().any()
            assert values.isnan().any()


def test_the_interpreter_counts_no_parts_but_what_they_drop():
    problem = mm(40, 56, 88, "fp32", precision="bf16x3")
    device, interpreted = (
        next(fill for fill in fills(problem, contract_of("bf16x3", accumulator=unit)) if fill.name == "randn")
        for unit in (HOPPER, FMA)
    )
    assert torch.equal(device.inputs["a"], interpreted.inputs["a"])
    assert (interpreted.error < device.error).all()
