"""The diagnosis names what went wrong where the data prove it, and nothing where they do not.

Faults are applied to the fp64 value of a fill, so the right name is known; planted faults in real kernels are in
tests/planted.
"""

import time
from dataclasses import replace

import pytest
import torch

from conformance import reference
from conformance.diagnosis import diagnose as diagnosis
from conformance.diagnosis import fault_model, wrapped_numbers
from conformance.diagnosis.diagnose import diagnose
from conformance.families.attention.problem import Attention
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.alterations import other_factors
from conformance.families.gemm.problem import Bias, addmm, bmm, fused_mm, int_mm, mm, mm_plus_mm, scaled_mm
from conformance.inputs import guarded_memory
from conformance.inputs.fills import applicable_fills, fills
from conformance.numerics.contract import FMA, INT32, Accumulator, Contract
from conformance.numerics.rounding import round_to

BLOCK = (32, 32, 16)
M, N, K = 72, 88, 72  # 3 x 3 ragged tiles, a tail of 8 in the fifth k-block
MM = (mm(M, N, K), Contract("fp16", FMA))
WIDE = (mm(M, N, K, out_dtype="fp32"), Contract("fp32", FMA))
BF16 = (mm(M, N, K, "bf16"), Contract("bf16", FMA))
ADDMM = (addmm(M, N, K, alpha=8.0, beta=0.25), Contract("fp16", FMA))
ADDMM_ROWS = (addmm(M, N, K, bias=Bias("m1"), alpha=8.0, beta=0.25), Contract("fp16", FMA))
SCALED = (scaled_mm(M, N, K, bias=Bias()), Contract("bf16", FMA))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Many small operations: threads would only wait for each other, the more so with other tests running."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fill_of(case, name="transparent", seed=3):
    return fills(*case, seed, names=[name])[0]


def rounded(case, value):
    return round_to(value, case[1].out_dtype, overflow=case[1].overflow)


def correct(case, fill):
    return rounded(case, fill.expected)


def diagnosis_of(case, fill, out, block=BLOCK):
    return diagnose(*case, fill, out, block=block)


def from_product(change):
    """An output whose product is ``change(A, B)`` in fp64, with the right epilogue."""

    def make(case, fill):
        a, b = fill.inputs["a"].double(), fill.inputs["b"].double()
        return rounded(case, gemm.epilogue(case[0], fill.inputs, change(a, b)))

    return make


def from_inputs(**change):
    """An output of the right computation on changed scales or bias."""

    def make(case, fill):
        inputs = {**fill.inputs, **{name: new(fill.inputs) for name, new in change.items()}}
        return rounded(case, reference.value(case[0], inputs))

    return make


def k_block(t):
    return slice(t * BLOCK[2], (t + 1) * BLOCK[2])


def stale_b(a, b):
    return a @ b - a[:, k_block(2)] @ b[k_block(2)] + a[:, k_block(2)] @ b[k_block(1)]


def in_one_tile(change):
    """``change`` in tile (1, 2) only."""

    def mixed(a, b):
        right = a @ b
        right[32:64, 64:] = change(a, b)[32:64, 64:]
        return right

    return mixed


def not_reset(a, b):
    product = a @ b
    product[32:64, 32:64] += (a @ b)[32:64, :32]
    return product


def never_reset(a, b):
    product = a @ b
    product[32:64, 32:64] += (a @ b)[:32, :32] + (a @ b)[:32, 32:64]
    return product


def element_of_a(a, b):
    a = a.clone()
    a[41, 30] *= 2
    return a @ b


def rows_moved(a, b):
    a = a.clone()
    a[32:40] = a[:8].clone()
    return a @ b


def plus_block(factor, t):
    """The product plus ``factor`` times the part of k-block t."""
    return lambda a, b: a @ b + factor * a[:, k_block(t)] @ b[k_block(t)]


#: name -> what was computed wrongly -> the cause, or its beginning
FAULTS = {
    "k-block skipped": (MM, from_product(plus_block(-1, 3)), "k-block 3 of 5 (BLOCK_K=16) is skipped"),
    "last k-block": (
        MM,
        from_product(lambda a, b: a[:, k_block(4)] @ b[k_block(4)]),
        "the last k-block alone is kept: the sum of the others is lost",
    ),
    "k-block twice": (MM, from_product(plus_block(1, 1)), "k-block 1 of 5 (BLOCK_K=16) is used twice"),
    "negated": (MM, from_product(in_one_tile(plus_block(-2, 4))), "k-block 4 of 5 (BLOCK_K=16) is negated"),
    "stale B": (MM, from_product(stale_b), "B of k-block 1 is used with A of k-block 2 (BLOCK_K=16): stale buffer"),
    "last k": (MM, from_product(lambda a, b: a[:, :-1] @ b[:-1]), "the last k is dropped"),
    "tail of ones": (MM, from_product(lambda a, b: a @ b + 8), "the K tail is filled with ones"),
    "not reset": (MM, from_product(not_reset), "tile (1,1) also holds the sums of tile (1,0): the accumulator was"),
    "never reset": (
        MM,
        from_product(never_reset),
        "tile (1,1) also holds the sums of tiles (0,0), (0,1): the accumulator was not reset",
    ),
    "some k twice": (MM, from_product(lambda a, b: a @ b + a[:, 21:35] @ b[21:35]), "k 21..34 are counted twice"),
    "every k three times": (WIDE, from_product(lambda a, b: 3 * (a @ b)), "every k is counted 3 times"),
    "k twice and not at all": (
        ADDMM,
        from_product(in_one_tile(lambda a, b: a @ b + a[:, 3:6] @ b[3:6] - a[:, 40:44] @ b[40:44])),
        "k 3..5 are counted twice and k 40..43 are not counted",
    ),
    "one element": (MM, from_product(element_of_a), "A[41,30] is"),
    "rows moved": (MM, from_product(rows_moved), "rows 32..39 hold the products of rows 0..7"),
    "rows exchanged": (
        MM,
        from_product(lambda a, b: a[torch.arange(M) ^ 4] @ b),
        "rows are exchanged: row i holds the products of row i ^ 4",
    ),
    "no product": (ADDMM, from_product(lambda a, b: 0 * (a @ b)), "the product is absent"),
    "no bias": (ADDMM, from_inputs(bias=lambda i: 0 * i["bias"]), "the bias is absent"),
    "bias twice": (ADDMM, from_inputs(bias=lambda i: 2 * i["bias"]), "the bias is added twice"),
    "bias local": (
        ADDMM,
        from_inputs(bias=lambda i: i["bias"][torch.arange(N) % 32]),
        "the bias is indexed within the tile (columns)",
    ),
    "bias of rows local": (
        ADDMM_ROWS,
        from_inputs(bias=lambda i: i["bias"][torch.arange(M) % 32]),
        "the bias is indexed within the tile (rows)",
    ),
    "scale of the first": (
        SCALED,
        from_inputs(scale_b=lambda i: i["scale_b"][:, :1].expand(1, N)),
        "scale_b: the first one is used for all",
    ),
    "scale local": (
        SCALED,
        from_inputs(scale_a=lambda i: i["scale_a"][torch.arange(M) % 32]),
        "scale_a is indexed within the tile",
    ),
    "no scale": (
        SCALED,
        from_inputs(scale_a=lambda i: torch.ones(M, 1), scale_b=lambda i: torch.ones(1, N)),
        "no scale is applied",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name):
    case, make, cause = FAULTS[name]
    fill = fill_of(case)
    result = diagnosis_of(case, fill, make(case, fill))
    assert len(result.causes) == 1
    assert result.causes[0].startswith(cause), result.text
    assert f"| CAUSE {cause}" in result.text


PARTS = {
    "the bias is counted 3 times: each of 3 parts of K adds it": lambda parts, bias: 8 * sum(parts) + 0.75 * bias,
    "alpha counted twice: each of 3 parts of K applies it to the sum so far": (
        lambda parts, bias: 8 * (8 * (8 * parts[0] + parts[1]) + parts[2]) + 0.25 * bias
    ),
}


@pytest.mark.parametrize("cause", PARTS)
def test_an_epilogue_that_each_part_applies_is_counted(cause):
    case = (addmm(M, N, K, alpha=8.0, beta=0.25, out_dtype="fp32"), Contract("fp32", FMA))
    fill = fill_of(case)
    a, b, bias = (fill.inputs[name].double() for name in ("a", "b", "bias"))
    parts = [a[:, k : k + K // 3] @ b[k : k + K // 3] for k in range(0, K, K // 3)]
    out = rounded(case, PARTS[cause](parts, bias))
    assert diagnose(*case, fill, out, block=BLOCK, splits=3).causes == (cause,)
    assert diagnose(*case, fill, out, block=BLOCK).causes == ()


@pytest.mark.parametrize("cause", [cause for cause, *_ in other_factors(4.0, -0.5)])
def test_factors_that_are_applied_wrongly_are_told_apart(cause):
    """By the factors that a product with a bias has unless it is given others."""
    (factors,) = [other for name, *other in other_factors(4.0, -0.5) if name == cause]
    problem = addmm(M, N, K)
    case, fill = (problem, Contract("fp16", FMA)), fill_of((problem, Contract("fp16", FMA)))
    other = replace(problem, alpha=factors[0], beta=factors[1])
    assert diagnosis_of(case, fill, rounded(case, reference.value(other, fill.inputs))).causes == (cause,)


def test_an_integer_that_overflowed_is_named():
    case = (int_mm(M, N, K), Contract("int32", INT32))
    fill = fill_of(case, next(iter(applicable_fills(*case))))
    values = fill.expected
    assert float(values.abs().max()) > 2**15
    out = (torch.remainder(values + 2.0**15, 2.0**16) - 2.0**15).to(torch.int32)
    assert diagnosis_of(case, fill, out).causes == ("right modulo 2**16: an integer of 16 bits overflowed",)


@pytest.mark.parametrize("power", [32, 16, 8])
def test_only_numbers_that_are_all_right_modulo_a_power_of_two_prove_an_overflow(power):
    expected = torch.arange(20, dtype=torch.float64) * (2.0**power / 8 + 3)
    out = wrapped_numbers.wrapped(expected, power).to(torch.int32)
    bad = out.double() != expected
    cause = f"right modulo 2**{power}: an integer of {power} bits overflowed"
    assert wrapped_numbers.overflow_cause(expected, out, bad, "int32", "wrap") == cause
    out[-1] += 1
    assert wrapped_numbers.overflow_cause(expected, out, bad, "int32", "wrap") == ""


def below(value):
    """Values a little nearer to zero where bf16 would round away from it."""
    return torch.where(round_to(value, "bf16").double().abs() > value.abs(), value * (1 - 2.0**-8), value)


ROUNDINGS = {
    "towards zero": (BF16, below, "the output is rounded towards zero"),
    "twice": (BF16, lambda v: round_to(v, "tf32").double(), "the result is rounded to 11 bits before"),
    "through fp16": (WIDE, lambda v: round_to(v, "fp16").double(), "the result passes through fp16"),
}


@pytest.mark.parametrize("name", ROUNDINGS)
def test_a_rounding_is_named(name):
    case, change, cause = ROUNDINGS[name]
    fill = fill_of(case, "wide-A")
    result = diagnosis_of(case, fill, rounded(case, change(fill.expected)))
    assert cause in "; ".join(result.causes), result.text


def test_narrow_accumulators_are_replayed():
    fill = fill_of(WIDE)
    a, b = fill.inputs["a"].double(), fill.inputs["b"].double()
    total = torch.zeros(M, N, dtype=torch.float64)
    for t in range(5):
        total = round_to(total + a[:, k_block(t)] @ b[k_block(t)], "fp16").double()
    assert (
        "the accumulator is rounded to fp16 after every k-block"
        in diagnosis_of(WIDE, fill, rounded(WIDE, total)).causes[0]
    )


def test_operands_rounded_to_a_narrower_format():
    case = (mm(M, N, K, "fp32"), Contract("fp32", FMA))
    fill = fill_of(case, "wide-B")
    inputs = {name: round_to(values.double(), "tf32") for name, values in fill.inputs.items()}
    assert "rounded to tf32" in diagnosis_of(case, fill, rounded(case, reference.value(case[0], inputs))).causes[0]


# What must not be named


def test_a_right_output_has_no_cause():
    fill = fill_of(MM)
    result = diagnosis_of(MM, fill, correct(MM, fill))
    assert result.causes == ()
    assert result.first is None
    assert "every element is right" in result.text


@pytest.mark.parametrize("case", [MM, BF16, ADDMM, SCALED], ids=["fp16", "bf16", "addmm", "scaled"])
@pytest.mark.parametrize("seed", range(4))
def test_noise_has_no_cause(case, seed):
    fill = fill_of(case, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(-1, 2, (M, N), generator=generator) * 2.0 ** fill.meta["unit_out"]
    result = diagnosis_of(case, fill, rounded(case, fill.expected + noise.double()))
    assert result.causes == (), result.text
    assert "OBSERVED distance from the right value" in result.text


@pytest.mark.parametrize("count", [1, 7])
def test_few_elements_are_listed_and_not_explained(count):
    fill = fill_of(MM)
    out = correct(MM, fill)
    out[40, :count] = 0  # which "the product is absent" would explain
    result = diagnosis_of(MM, fill, out)
    assert result.causes == ()
    assert (result.tile, result.first) == ((1, 0), (40, 0))
    assert "ELEMENTS too few to prove a cause: [40,0] got 0 want" in result.text


def test_two_causes_are_both_named_with_their_shares():
    fill = fill_of(MM)
    a, b = fill.inputs["a"].double(), fill.inputs["b"].double()
    product = a @ b
    product[:32, :32] -= (a[:, k_block(0)] @ b[k_block(0)])[:32, :32]
    product[64:] += (a[:, k_block(2)] @ b[k_block(2)])[64:]
    causes = diagnosis_of(MM, fill, rounded(MM, product)).causes
    assert len(causes) == 2
    assert any("k-block 0 of 5 (BLOCK_K=16) is skipped [1 of 4 wrong tiles]" in cause for cause in causes)
    assert any("k-block 2 of 5 (BLOCK_K=16) is used twice [3 of 4 wrong tiles]" in cause for cause in causes)


# Unwritten elements


@pytest.mark.parametrize("byte", guarded_memory.SENTINEL)
@pytest.mark.parametrize("case", [MM, BF16, SCALED, WIDE], ids=["fp16", "bf16", "scaled", "fp32"])
def test_elements_that_hold_the_sentinel(case, byte):
    fill = fill_of(case)
    out = correct(case, fill)
    out.view(torch.uint8)[32:64, 32 * out.element_size() : 64 * out.element_size()] = byte
    assert diagnosis_of(case, fill, out).causes == ("not written: tile (1,1)",)
    out[-1].view(torch.uint8).fill_(byte)
    cause = diagnosis_of(case, fill, out).causes[0]
    assert cause.startswith(f"not written: {32 * 32 + N} elements, rows 32..{M - 1} cols 0..{N - 1}")


def test_one_byte_that_looks_like_the_sentinel_proves_nothing():
    case = (replace(SCALED[0], out_dtype="e4m3"), Contract("e4m3", FMA, overflow="saturate"))
    fill = fill_of(case)
    out = correct(case, fill)
    out.view(torch.uint8)[3, 5] = 0xFE  # -448 in e4m3
    assert diagnosis_of(case, fill, out).causes == ()


def test_constants_are_those_of_the_guards():
    assert fault_model.POISON == guarded_memory.POISON
    assert diagnosis.SENTINEL == guarded_memory.SENTINEL


# The text


def test_the_line_and_the_map():
    fill = fill_of(MM, seed=7)
    a, b = fill.inputs["a"].double(), fill.inputs["b"].double()
    product = in_one_tile(lambda a, b: a @ b - a[:, k_block(3)] @ b[k_block(3)])(a, b)
    out = rounded(MM, product)
    out[0, 0] += 1
    out[64:, :32].view(torch.uint8).fill_(0xFE)
    wrong = int((out.double() != fill.expected).sum())
    lines = diagnosis_of(MM, fill, out).text.split("\n")
    expected = (
        f"FAIL exact/transparent seed 7 | tile (0,0) rows 0..31 cols 0..31 | {wrong}/{M * N} wrong in 3 of 9 tiles"
    )
    assert lines[0].startswith(
        f"{expected} | first [0,0] got {float(out[0, 0]):.9g} want {float(fill.expected[0, 0]):.9g}"
    )
    assert lines[-4] == "tiles (3 x 3): . right, + some wrong, # all wrong, o not written"
    assert [line.strip()[:2] for line in lines[-3:]] == ["+.", "..", "o."]
    assert lines[-2].strip()[2] in "+#"


def test_bounded_fills_report_how_much_of_the_bound_was_used():
    fill = fill_of(BF16, "randn")
    out = rounded(BF16, fill.expected + 40 * fill.error + 2.0**-7 * fill.expected.abs())
    text = diagnosis_of(BF16, fill, out).text
    assert "TELEMETRY |error|/bound: max" in text
    assert "p50" in text
    assert "t-statistic of the sign" in text
    assert "CAUSE" not in text


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 88, 72), (72, 1, 72), (8, 8, 0), (0, 8, 8), (72, 88, 3)])
@pytest.mark.parametrize("make", [mm, addmm, scaled_mm], ids=["mm", "addmm", "scaled"])
def test_every_shape_is_diagnosed(shape, make):
    case = (problem := make(*shape), Contract(problem.output_dtype, FMA))
    for fill in fills(*case, 1):
        out = correct(case, fill)
        out.view(torch.uint8).bitwise_xor_(0x21)
        result = diagnosis_of(case, fill, out)
        assert "the diagnosis itself failed" not in result.text


def test_an_error_of_the_diagnosis_is_reported_and_not_raised():
    fill = fill_of(MM)
    result = diagnosis_of(MM, fill, correct(MM, fill)[:3])
    assert result.causes == ()
    assert "the diagnosis itself failed" in result.text


@pytest.mark.parametrize("noise", [False, True], ids=["a cause", "no cause"])
def test_large_outputs_are_diagnosed_in_bounded_time(noise):
    case = (mm(1000, 1000, 1000, "bf16"), Contract("bf16", Accumulator()))
    fill = fill_of(case)
    a, b = fill.inputs["a"].double(), fill.inputs["b"].double()
    value = fill.expected * 1.03 if noise else a @ b - a[:, 992:] @ b[992:]
    started = time.process_time()
    result = diagnosis_of(case, fill, rounded(case, value), (64, 64, 32))
    # of this process: the machine may be busy with other tests
    assert time.process_time() - started < 20
    assert [cause.split(" (")[0] for cause in result.causes] == ([] if noise else ["k-block 31 of 32"])


# -- operations whose causes are not searched for: which elements are wrong
def test_a_batch_is_localised():
    case = bmm(40, 56, 33, batch=9), Contract("fp16", FMA)
    fill = fill_of(case)
    out = correct(case, fill)
    assert diagnosis_of(case, fill, out).text.endswith("every element is right")
    out[2:5, 33:36, 50] += 1
    out[7, 39, 50] += 1
    result = diagnosis_of(case, fill, out)
    assert result.causes == ()
    assert (result.tile, result.first) == ((1, 1), (2, 33, 50))
    assert "10/20160 wrong: matrices 2..4, 7 of 9, rows 33..35, 39 of 40, cols 50 of 56" in result.text
    assert "first [2, 33, 50] in tile (1, 1) got" in result.text


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ((int_mm(40, 56, 33), Contract("int32", INT32)), "wide-A"),
        ((mm_plus_mm(40, 56, 33, "bf16"), Contract("bf16", FMA)), "hot"),
        ((fused_mm(40, 56, 33), Contract("fp16", FMA)), "special"),
        ((scaled_mm(40, 56, 33, scaling="1x128/128x128"), Contract("bf16", FMA)), "wide-scales"),
    ],
)
def test_other_operations_and_methods_are_described(case, name):
    fill = fill_of(case, name)
    out = correct(case, fill)
    assert "every element is right" in diagnosis_of(case, fill, out).text
    out[:, :20] = torch.where(fill.expected[:, :20].isfinite(), 1 + 2 * out[:, :20], out[:, :20])
    text = diagnosis_of(case, fill, out).text
    assert text.startswith(f"FAIL {fill.method}/{name}")
    assert "cols 0..19 of 56" in text
    assert ("TELEMETRY" in text) == (fill.method != "exact")


def test_unwritten_and_nan_elements_of_a_batch():
    case = bmm(40, 56, 33), Contract("fp16", FMA)
    fill = fill_of(case)
    out = correct(case, fill)
    out[1, :, 3] = torch.nan
    out[2].view(torch.uint8).fill_(guarded_memory.SENTINEL[0])
    result = diagnosis_of(case, fill, out)
    assert result.causes == ("not written: 2240 elements",)
    assert "OBSERVED 2280 elements are NaN" in result.text or "OBSERVED 40 elements are NaN" in result.text


def test_an_output_of_any_rank_and_dtype_is_described():
    case = Attention("attention", 1, 2, 8, 8, 16), Contract("fp16", FMA)
    fill = fill_of(case, "randn")
    out = correct(case, fill)
    out[0, 1, 5:] += 1
    text = diagnosis_of(case, fill, out).text
    assert "dim 0 0 of 1, dim 1 1 of 2, dim 2 5..7 of 8, dim 3 0..15 of 16" in text
    part = fill.of("lse")
    lse = round_to(part.expected, "fp32")
    lse[0, 0, 0] += 1
    assert "rows 0 of 2" in diagnosis_of(case, part, lse).text


@pytest.mark.parametrize(("overflow", "seen"), [("ieee", True), ("saturate", False)])
def test_a_kernel_that_saturates_against_its_contract(overflow, seen):
    """Results past the largest finite value are NaN in e4m3 by the rule "ieee"; the contract is what is wrong here."""
    case = (mm(M, N, K, out_dtype="e4m3"), Contract("e4m3", FMA, overflow=overflow))
    fill = fill_of(case, "special")
    out = round_to(fill.expected, "e4m3", overflow="saturate")
    text = diagnosis_of(case, fill, out).text
    assert ("results past 448 became 448: the kernel saturates, and its contract says overflow='ieee'" in text) == seen
    assert ("every element is right" in text) != seen
