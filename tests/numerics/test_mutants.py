"""Wrong kernels are caught, and the fill that is there for the fault is the one that catches it.

Each fault is planted in an emulated kernel that is correct otherwise; BLOCK is its tile size along every dimension.
"""

import math
from dataclasses import replace

import pytest
import torch
from gemm_emulation import FP8_PROMOTED, HOPPER, accumulate, caught_by, correct, epilogue

from conformance.families.gemm.problem import Bias, addmm, mm, scaled_mm
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.rounding import bits, round_to

BLOCK = 32
M, N, K = 80, 104, 88
EXACT = {"transparent", "wide-A", "wide-B"}
FP16 = (mm(M, N, K, "fp16"), Contract("fp16", HOPPER))
BF16 = (mm(M, N, K, "bf16"), Contract("bf16", HOPPER))
FP16_FP32 = (mm(M, N, K, "fp16", out_dtype="fp32"), Contract("fp32", HOPPER))
TF32 = (mm(M, N, K, "fp32", precision="tf32"), Contract("fp32", HOPPER, operand="tf32"))
IEEE = (mm(M, N, K, "fp32"), Contract("fp32", FMA))
FP8 = (scaled_mm(M, N, K, bias=Bias()), Contract("bf16", FP8_PROMOTED))
ADDMM = (addmm(M, N, K, "bf16"), Contract("bf16", HOPPER))
ADDMM_MN = (addmm(M, N, K, "fp16", bias=Bias("mn")), Contract("fp16", HOPPER))
ADDMM_M1 = (addmm(M, N, K, "fp16", bias=Bias("m1")), Contract("fp16", HOPPER))
ALL = {"fp16": FP16, "bf16": BF16, "fp16->fp32": FP16_FP32, "tf32": TF32, "ieee": IEEE, "fp8": FP8, "addmm": ADDMM}


def finish(case, inputs, raw):
    problem, contract = case
    return round_to(epilogue(problem, inputs, raw).double(), contract.out_dtype, overflow=contract.overflow)


def plain(case, inputs):
    """The correct product, as an accumulator that rounds once."""
    return round_to(inputs["a"].double() @ inputs["b"].double(), "fp32").double()


def with_element(matrix, place, value):
    matrix = matrix.clone()
    matrix[place] = value
    return matrix


def plus_one_unit(value):
    """One unit of bf16 (of 8 bits in general) more."""
    fraction, exponent = math.frexp(float(value))
    return math.ldexp(fraction + 2.0**-8, exponent)


FIRST, SECOND = slice(BLOCK), slice(BLOCK, 2 * BLOCK)
#: name -> what a kernel multiplies instead of A and B, which are in fp64
OPERAND_FAULTS = {
    "last k-block skipped": lambda a, b: (a[:, : 2 * BLOCK], b[: 2 * BLOCK]),
    "last k skipped": lambda a, b: (a[:, :-1], b[:-1]),
    "tail of ones": lambda a, b: (torch.cat([a, torch.ones(M, 8)], 1), torch.cat([b, torch.ones(8, N)])),
    "stale A": lambda a, b: (a.slice_scatter(a[:, FIRST], 1, BLOCK, 2 * BLOCK), b),
    "stale B": lambda a, b: (a, b.slice_scatter(b[FIRST], 0, BLOCK, 2 * BLOCK)),
    "k-block twice": lambda a, b: (torch.cat([a, a[:, SECOND]], 1), torch.cat([b, b[SECOND]])),
    "k-block negated": lambda a, b: (a.slice_scatter(-a[:, SECOND], 1, BLOCK, 2 * BLOCK), b),
    "k pair swapped": lambda a, b: (a[:, [1, 0, *range(2, K)]], b),
    "rows of others": lambda a, b: (a.slice_scatter(a[8:16], 0, 0, 8), b),
    "one sign bit": lambda a, b: (with_element(a, (37, 51), -a[37, 51]), b),
    "one unit in the last place": lambda a, b: (with_element(a, (37, 51), plus_one_unit(a[37, 51])), b),
    "one percent": lambda a, b: (a, with_element(b, (51, 37), b[51, 37] * 1.01)),
}


@pytest.mark.parametrize("name", ALL)
def test_the_unmutated_kernel_passes(name):
    case = ALL[name]
    assert caught_by(*case, lambda inputs: finish(case, inputs, plain(case, inputs))) == set()


@pytest.mark.parametrize("fault", OPERAND_FAULTS)
@pytest.mark.parametrize("name", ALL)
def test_operand_faults(name, fault):
    case = ALL[name]

    def kernel(inputs):
        a, b = OPERAND_FAULTS[fault](inputs["a"].double(), inputs["b"].double())
        return finish(case, inputs, round_to(a @ b, "fp32").double())

    for seed in (0, 1):
        assert "transparent" in caught_by(*case, kernel, seed)


# -- faults of the result, which each function changes
def tile_missing(out):
    out[BLOCK : 2 * BLOCK, BLOCK : 2 * BLOCK] = 0


def tile_of_the_neighbour(out):
    out[:BLOCK, :BLOCK] = out[:BLOCK, BLOCK : 2 * BLOCK].clone()


def last_row_missing(out):
    out[-1] = 0


def one_unit_in_the_last_place(out):
    bits(out)[41, 17] += 1


@pytest.mark.parametrize(
    "fault",
    [tile_missing, tile_of_the_neighbour, last_row_missing, one_unit_in_the_last_place],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("name", ALL)
def test_result_faults(name, fault):
    case = ALL[name]

    def kernel(inputs):
        out = finish(case, inputs, plain(case, inputs))
        fault(out)
        return out

    assert caught_by(*case, kernel) >= EXACT


# -- faults of precision
def toward_zero(case, inputs):
    problem, contract = case
    exact = epilogue(problem, inputs, plain(case, inputs)).double()
    out = round_to(exact, contract.out_dtype)
    pattern = bits(out)
    pattern[(out.double().abs() > exact.abs()) & exact.isfinite()] -= 1
    return out


def rounded_twice(case, inputs):
    problem, contract = case
    exact = epilogue(problem, inputs, plain(case, inputs)).double()
    return round_to(round_to(exact, "tf32").double(), contract.out_dtype)


def accumulator(dtype):
    def kernel(case, inputs):
        total = torch.zeros(M, N, dtype=torch.float64)
        for start in range(0, K, 16):
            part = inputs["a"][:, start : start + 16].double() @ inputs["b"][start : start + 16].double()
            total = round_to(total + part, dtype).double()
        return finish(case, inputs, total)

    return kernel


def unit(figures):
    def kernel(case, inputs):
        return finish(case, inputs, accumulate(inputs["a"], inputs["b"], figures, torch.arange(K)))

    return kernel


def operands_as(dtype):
    def kernel(case, inputs):
        a, b = (round_to(inputs[name].double(), dtype).double() for name in "ab")
        return finish(case, inputs, round_to(a @ b, "fp32").double())

    return kernel


def split_k_partials_as(dtype):
    def kernel(case, inputs):
        a, b = inputs["a"].double(), inputs["b"].double()
        halves = [round_to(a[:, part] @ b[part], dtype).double() for part in (slice(0, 48), slice(48, K))]
        return finish(case, inputs, sum(halves))

    return kernel


NARROW13 = Accumulator(alignment_bits=13, result_bits=13, chunk=16)
PRECISION_FAULTS = {
    "output truncated, fp16": (FP16, toward_zero, {"wide-A", "wide-B", "randn"}),
    "output truncated, bf16": (BF16, toward_zero, {"wide-A", "wide-B", "randn"}),
    "output truncated, fp8": (FP8, toward_zero, {"wide-A", "wide-B"}),
    "output rounded twice, bf16": (BF16, rounded_twice, {"wide-A", "wide-B"}),
    "output rounded twice, fp8": (FP8, rounded_twice, {"wide-A", "wide-B"}),
    "fp16 accumulator": (FP16, accumulator("fp16"), EXACT),
    "fp16 accumulator, fp32 out": (FP16_FP32, accumulator("fp16"), EXACT),
    "bf16 accumulator": (BF16, accumulator("bf16"), EXACT),
    "13-bit accumulator, fp16": (FP16, unit(NARROW13), EXACT),
    "13-bit accumulator, tf32": (TF32, unit(NARROW13), EXACT),
    "tf32 for ieee": (IEEE, operands_as("tf32"), {"wide-A", "wide-B", "randn"}),
    "bf16 for ieee": (IEEE, operands_as("bf16"), EXACT),
    "bf16 for tf32": (TF32, operands_as("bf16"), EXACT),
    "bf16 for fp16": (FP16, operands_as("bf16"), EXACT),
    "split-K partials in bf16": (BF16, split_k_partials_as("bf16"), EXACT),
    "split-K partials in fp16": (FP16_FP32, split_k_partials_as("fp16"), EXACT),
}


@pytest.mark.parametrize("name", PRECISION_FAULTS)
def test_precision_faults(name):
    case, kernel, expected = PRECISION_FAULTS[name]
    for seed in (0, 1, 2):
        assert caught_by(*case, lambda inputs: kernel(case, inputs), seed) >= expected


def test_fast_accumulation_where_promotion_was_promised():
    problem = scaled_mm(48, 56, 520)
    contract = Contract("bf16", replace(FP8_PROMOTED, promote=128))
    fast = replace(contract, accumulator=replace(FP8_PROMOTED, promote=None))
    for seed in (0, 1, 2):
        assert caught_by(problem, contract, lambda inputs: correct(problem, contract, inputs, 0), seed) == set()
        catchers = caught_by(problem, contract, lambda inputs: correct(problem, fast, inputs, 0), seed)
        assert catchers >= {"wide-A", "wide-B"}


# -- faults of the epilogue: a changed set of operands for a correct epilogue
def with_bias(change):
    return lambda case, inputs, raw: epilogue(case[0], {**inputs, "bias": change(inputs["bias"])}, raw)


def with_scales(change_a, change_b=lambda s: s):
    changed = {"scale_a": change_a, "scale_b": change_b}

    def kernel(case, inputs, raw):
        return epilogue(case[0], {**inputs, **{name: change(inputs[name]) for name, change in changed.items()}}, raw)

    return kernel


def local(vector, dim):
    """Indexed within the tile."""
    return vector.index_select(dim, torch.arange(vector.shape[dim]) % BLOCK)


def zero_last(vector, dim):
    result = vector.clone()
    result.select(dim, -1).zero_()
    return result


def scales_swapped(case, inputs, raw):
    scale_a = torch.cat([inputs["scale_b"].T] * 2)[:M]
    scale_b = torch.cat([inputs["scale_a"].T] * 2, 1)[:, :N]
    return epilogue(case[0], {**inputs, "scale_a": scale_a, "scale_b": scale_b}, raw)


def changed_problem(**fields):
    return lambda case, inputs, raw: epilogue(replace(case[0], **fields), inputs, raw)


def bias_scaled(case, inputs, raw):
    scale = inputs["scale_a"] * inputs["scale_b"]
    return (raw.float() + inputs["bias"].float()) * scale


EPILOGUE_FAULTS = {
    "bias twice": (ADDMM, with_bias(lambda bias: bias * 2)),
    "bias missing": (ADDMM, with_bias(torch.zeros_like)),
    "bias local to the tile": (ADDMM, with_bias(lambda bias: local(bias, 0))),
    "bias without its last": (ADDMM, with_bias(lambda bias: zero_last(bias, 0))),
    "bias per row": (ADDMM, with_bias(lambda bias: bias[:M, None])),
    "bias of its first element": (ADDMM, with_bias(lambda bias: bias[:1].expand(N))),
    "bias matrix shifted": (ADDMM_MN, with_bias(lambda bias: bias.roll(1, 1))),
    "bias matrix as its first row": (ADDMM_MN, with_bias(lambda bias: bias[:1].expand(M, N))),
    "bias column shifted": (ADDMM_M1, with_bias(lambda bias: bias.roll(1, 0))),
    "alpha ignored": (ADDMM, changed_problem(alpha=1.0)),
    "beta ignored": (ADDMM, changed_problem(beta=1.0)),
    "alpha and beta swapped": (ADDMM, changed_problem(alpha=0.5, beta=2.0)),
    "scales swapped": (FP8, scales_swapped),
    "scale of A broadcast": (FP8, with_scales(lambda s: s[:1].expand(M, 1))),
    "scale of B broadcast": (FP8, with_scales(lambda s: s, lambda s: s[:, :1].expand(1, N))),
    "scale of A local to the tile": (FP8, with_scales(lambda s: local(s, 0))),
    "scale of B local to the tile": (FP8, with_scales(lambda s: s, lambda s: local(s, 1))),
    "scale of A without its last": (FP8, with_scales(lambda s: zero_last(s, 0))),
    "scale of B ignored": (FP8, with_scales(lambda s: s, torch.ones_like)),
    "scaled bias": (FP8, bias_scaled),
    "bias twice, fp8": (FP8, with_bias(lambda bias: bias * 2)),
}


@pytest.mark.parametrize("name", EPILOGUE_FAULTS)
def test_epilogue_faults(name):
    case, fault = EPILOGUE_FAULTS[name]

    def kernel(inputs):
        result = fault(case, inputs, plain(case, inputs))
        return round_to(result.double(), case[1].out_dtype)

    for seed in (0, 1):
        assert "transparent" in caught_by(*case, kernel, seed)


@pytest.mark.parametrize("factor", ["alpha", "beta"])
def test_a_factor_of_zero_lets_nan_through(factor):
    problem = addmm(M, N, K, "fp16", **{factor: 0.0})
    contract = Contract("fp16", HOPPER)

    def kernel(inputs):
        raw = inputs["a"].float() @ inputs["b"].float()
        return (raw * problem.alpha + inputs["bias"].float() * problem.beta).half()

    names = {"transparent", "randn"} | (set() if factor == "alpha" else EXACT | {"hot", "special"})
    assert caught_by(problem, contract, kernel) == names


def test_special_values():
    """Faults that only NaN, infinities, subnormals and overflow show."""
    problem, contract = FP16

    def kernel(change):
        return lambda inputs: change(finish(FP16, inputs, plain(FP16, inputs)))

    for change in (
        lambda out: torch.where(out.isnan(), 0.0, out),
        lambda out: torch.where(out.isinf(), -out, out),
        lambda out: out.clamp(-65504, 65504),
        lambda out: torch.where(out.isinf(), math.nan, out),
        lambda out: torch.where(out.abs() < 6.1e-5, 0.0, out),
    ):
        assert caught_by(problem, contract, kernel(change)) == {"special"}


@pytest.mark.parametrize("overflow", ["ieee", "saturate", "nan"])
@pytest.mark.parametrize("out", ["e4m3", "e5m2"])
def test_fp8_overflow_by_contract(out, overflow):
    problem = scaled_mm(M, N, K, "e5m2", scaling="tensor", out_dtype=out)
    contract = Contract(out, HOPPER, overflow=overflow)

    def kernel(rule):
        def run(inputs):
            raw = inputs["a"].double() @ inputs["b"].double()
            return round_to(epilogue(problem, inputs, round_to(raw, "fp32").double()).double(), out, overflow=rule)

        return run

    for rule in ("ieee", "saturate", "nan"):
        same = rule == overflow or (out == "e4m3" and {rule, overflow} == {"ieee", "nan"})
        assert caught_by(problem, contract, kernel(rule)) == (set() if same else {"special"})
