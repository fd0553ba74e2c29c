"""Wide fills of graphs: what they show of generated code that small integers do not, and what they prove first."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import pytest
import torch

from conformance.execution.compile.compile_worker import named
from conformance.inductor.compile.program import dense, program_of
from conformance.inductor.replay import exact
from conformance.inductor.replay.graph_evaluation import NotExact, evaluate
from conformance.inductor.replay.graph_fills import ENOUGH_TIES, GraphFill, graph_fills
from conformance.numerics.contract import FMA, Accumulator
from conformance.problems import DTYPES, Operand
from conformance.targets import Target
from tests.inductor.planted_code import Fault, in_kept_process, missed
from tests.numerics.gemm_emulation import HOPPER, accumulate

GRAPHS = "conformance.inductor.topics"

# --- faults of a product with an epilogue -----------------------------------------------------------------------------


def wide(inductor: Any, target: Target) -> None:
    operands = [dense("a", 104, 56, dtype="fp16"), dense("b", 56, 72, dtype="fp16")]
    settings = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"}
    graph, only = f"{GRAPHS}.choices:relu_mm", inductor.choices_of("mm")
    inductor.exact(graph, operands, target, settings=settings, templates=only, pick=0)


def small(inductor: Any, target: Target) -> None:
    """The same with the integers that a graph has without wide fills."""
    from conformance.judging import inductor_judge

    with mock.patch.object(inductor_judge, "graph_fills", side_effect=NotExact("graph", "as before")):
        wide(inductor, target)


CASES = {"wide": wide, "small": small}

LOADED = r"^( *)(a = tl\.load\(A \+ .*)$"
#: Half a unit of fp16 is added to the size of an fp32 sum, and what fp16 has no bits for is cut off.
AWAY = r"\1acc = ((acc.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)\n\1# rematerialize"

FAULTS = (
    Fault("rounded away from zero", "wide", r"^( *)# rematerialize", AWAY, ("numerics/0/wide-B",)),
    Fault("rounded down", "wide", r"^( *)# rematerialize", AWAY.replace("4096", "0"), ("numerics/0/wide-B",)),
    Fault("sums in fp16", "wide", r"(ACC_TYPE : .* = )tl\.float32", r"\1tl.float16", ("numerics",)),
    Fault("A as bf16", "wide", LOADED, r"\1\2\n\1a = a.to(tl.bfloat16).to(tl.float16)", ("numerics/0/wide-A",)),
    Fault(
        "one element of another row",
        "wide",
        r"56\*idx_m",
        "56*tl.where((idx_m == 5) & (idx_n == 7), 6, idx_m)",
        ("numerics/0/wide-A", "numerics/0/wide-B"),
    ),
    Fault("block of k dropped", "wide", r"tl\.cdiv\(K, BLOCK_K\)", "tl.cdiv(K, BLOCK_K) - 1", ("numerics",)),
)
#: What small integers do not show.
HIDDEN = ("rounded away from zero", "rounded down", "sums in fp16", "A as bf16")
WIDE = FAULTS
FAULTS += tuple(dataclasses.replace(fault, name=f"{fault.name}, small", case="small", caught=()) for fault in FAULTS)


def test_wide_fills_show_what_small_integers_hide() -> None:
    failures = in_kept_process(f"from tests.inductor.planted_code import table; result = table({__name__!r})")
    assert failures["wide"] == failures["small"] == []
    text = missed(WIDE, failures)
    assert not text, text
    assert {fault.name for fault in WIDE if not failures[f"{fault.name}, small"]} == set(HIDDEN)


# --- the fills --------------------------------------------------------------------------------------------------------


def matrices(dtype: str, *shapes: tuple[int, ...]) -> list[Operand]:
    return [dense(name, *shape, dtype=dtype) for name, shape in zip("abcd", shapes, strict=False)]


def fills_of(graph: str, operands: list[Operand], modules: tuple[str, ...] = (), **arguments: Any) -> list[GraphFill]:
    program = program_of(f"{GRAPHS}.{graph}", operands, {}, arguments=tuple(arguments.items()))
    return graph_fills(program, modules, 0, {})


ONCE = {"alpha": 1.0, "beta": 1.0}


@pytest.mark.parametrize(
    ("graph", "shapes", "arguments"),
    [
        ("gemm:mm", ((48, 64), (64, 80)), {}),
        ("gemm:addmm", ((48, 64), (64, 80), (80,)), ONCE),
        ("gemm:mm_plus_mm", ((40, 64), (64, 48), (40, 64), (64, 48)), {}),
        ("gemm:bmm", ((3, 40, 64), (3, 64, 48)), {}),
        ("gemm:baddbmm", ((3, 40, 64), (3, 64, 48), (3, 40, 48)), ONCE),
        ("gemm:convolution", ((2, 8, 10, 10), (16, 8, 3, 3)), {}),
        ("memory:sum_mm_relu", ((32, 32), (32, 32), (32, 32)), {}),
        ("choices:stacked_mm", ((32, 128), (128, 64)), {}),
    ],
)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_an_output_of_16_bits_has_ties(graph: str, shapes: Any, arguments: Any, dtype: str) -> None:
    first, second = fills_of(graph, matrices(dtype, *shapes), **arguments)
    assert (first.name, second.name) == ("wide-A", "wide-B")
    assert second.ties > ENOUGH_TIES / 2
    for fill in (first, second):
        assert all(bool(one.isfinite().all()) for right in fill.right for one in right)
        assert [value.dtype for value in fill.values] == [DTYPES[dtype]] * len(shapes)
    sizes = torch.frexp(first.values[0].double())
    assert len(torch.unique(sizes[0].abs())) > 50  # nearly all bits of the factor


@pytest.mark.parametrize("graph", ["prologues:multiple_fusions", "operations:cat_addmm", "prologues:multiple_nodes"])
def test_sums_of_fp32_are_exact_in_any_order(graph: str) -> None:
    operands = matrices("fp32", (72, 72), (72, 72), (72, 72))[: 3 if "cat" in graph else 2]
    first, second = fills_of(graph, operands)
    function = named(f"{GRAPHS}.{graph}")
    for fill, full in ((first, 0), (second, len(operands) - 1)):
        assert fill.values[full].abs().max() >= 2**10
        order = torch.randperm(72, generator=torch.Generator().manual_seed(1))
        a, b = fill.values[0][:, order], fill.values[1][order]
        if "cat" not in graph:  # the product of two operands: k in another order
            assert torch.equal(function(a, b), fill.right[0][0])
        assert torch.equal(function(*fill.values), fill.right[0][0])


def test_a_product_may_be_rounded_before_its_epilogue_or_not() -> None:
    """Both results are right, and where they agree one alone."""
    operands = [*matrices("fp16", (48, 64), (64, 80)), dense("c", 80, dtype="fp16")]
    for fill in fills_of("gemm:addmm", operands, **ONCE):
        late, early = fill.right[0]
        a, b, bias = (value.double() for value in fill.values)
        assert torch.equal(late, (a @ b + bias).half())
        assert torch.equal(early, ((a @ b).half().double() + bias).half())
        assert 0 < (late != early).double().mean() < 0.5
        assert exact._among("numerics", torch.where(late > 0, late, early), (late, early), 0.0).passed
        assert not exact._among("numerics", torch.nextafter(late, late + 1), (late, early), 0.0).passed


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_correct_kernels_never_alarm(dtype: str, seed: int) -> None:
    """An emulated tensor core, or fp32 additions, in any order of k; a sum that begins with the bias, one sum for two
    products, and products that are rounded before they are added."""

    def product(unit: Accumulator, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return accumulate(a, b, unit, torch.randperm(a.shape[1], generator=generator)).float()

    def narrow(values: torch.Tensor) -> torch.Tensor:
        return values.to(DTYPES[dtype]).float()

    generator = torch.Generator().manual_seed(seed)
    m, n, k = (int(torch.randint(5, high, (1,), generator=generator)) for high in (40, 50, 240))
    operands = matrices(dtype, (m, k), (k, n), (m, k), (k, n))
    bias = dense("bias", n, dtype=dtype)
    for unit in (HOPPER, Accumulator(alignment_bits=24, result_bits=23, chunk=8), FMA):
        for fill in fills_of("gemm:addmm", [*operands[:2], bias], **ONCE):
            a, b, added = (value.float() for value in fill.values)
            begun = product(unit, torch.cat([torch.ones(m, 1), a], 1), torch.cat([added[None], b]))
            plain = product(unit, a, b)
            for sums in (begun, plain + added, narrow(plain) + added):
                assert exact._among("numerics", sums.to(DTYPES[dtype]), fill.right[0], 0.0).passed
        for fill in fills_of("gemm:mm_plus_mm", operands):
            a, b, c, d = (value.float() for value in fill.values)
            first, second = product(unit, a, b), product(unit, c, d)
            for sums in (product(unit, torch.cat([a, c], 1), torch.cat([b, d])), first + narrow(second)):
                assert exact._among("numerics", sums.to(DTYPES[dtype]), fill.right[0], 0.0).passed


def test_a_relu_commutes_with_rounding() -> None:
    (right,) = fills_of("choices:relu_mm", matrices("bf16", (48, 64), (64, 80)))[1].right
    assert len(right) == 1


@pytest.mark.parametrize(
    ("graph", "operands", "modules", "subject"),
    [
        ("choices:sin_mm", matrices("fp32", (8, 8), (8, 8)), (), "sin"),
        ("gemm:mm", matrices("fp16", (8, 8), (8, 8)), ("extern_kernels.mm(a, b, out=c)",), "a"),
        ("memory:in_a_row", matrices("fp32", *[(72, 72)] * 4), (), "graph"),
        ("gemm:mm", matrices("fp32", (8192, 4096), (4096, 8)), (), "operands"),
        ("gemm:mm", matrices("fp32", (8, 0), (0, 8)), (), "operands"),
    ],
)
def test_a_graph_without_wide_fills_has_a_reason(
    graph: str, operands: list[Operand], modules: tuple[str, ...], subject: str
) -> None:
    with pytest.raises(NotExact) as raised:
        fills_of(graph, operands, modules)
    assert raised.value.reason.subject == subject


# --- what is proved ---------------------------------------------------------------------------------------------------


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@pytest.mark.parametrize(("k", "excess"), [(1024, 0), (2048, 0), (4096, 1)])
def test_sums_past_the_accumulator_are_seen(k: int, excess: int) -> None:
    """Each product is 2**13: 2**24 is the largest sum that is exact in any order."""
    a, b = torch.full((3, k), 127.0), torch.full((k, 5), 64.0)
    b[0] = 65.0  # so that the unit is 1
    evaluation = evaluate(product, [a, b], {})
    assert round(max(evaluation.excess, 0)) == excess


def test_the_unit_is_that_of_a_row_and_a_column() -> None:
    a, b = torch.ones(3, 2**12), torch.ones(2**12, 5)
    a[1] *= 2.0**20
    b[:, 2] *= 2.0**-30
    assert evaluate(product, [a, b], {}).excess == 0
    a[1, 0] = 1.0
    assert evaluate(product, [a, b], {}).excess > 0


def test_a_value_that_fp32_does_not_hold_is_seen() -> None:
    x = torch.tensor([[2.0**20 + 1]])
    assert evaluate(lambda x: x * x, [x], {}).excess > 0
    assert evaluate(lambda x: x + x, [x], {}).excess == 0


def test_what_is_changed_in_place_is_seen_by_its_views() -> None:
    def graph(x: torch.Tensor) -> torch.Tensor:
        doubled = x + x
        doubled.diagonal().add_(1)
        return doubled

    (result,) = evaluate(graph, [torch.eye(3)], {}).results
    assert torch.equal(result, 3.0 * torch.eye(3, dtype=torch.float64))


def test_what_is_added_to_a_product_must_fit_beside_it() -> None:
    """A kernel may begin its sum with the addend, or add two products in one sum."""
    a, b = torch.full((3, 2), 2.0**11), torch.full((2, 5), 2.0**11)  # sums are a fourth of what fits
    a[:, 1] = b[1] = 1.0
    one, two = torch.full((3, 5), 2.0**23), torch.full((3, 5), 2.0**24)
    for addend, fits in ((one, True), (two, False)):
        assert (evaluate(torch.addmm, [addend, a, b], {}).excess <= 0) is fits
        assert (evaluate(lambda x, a, b: x + a @ b, [addend, a, b], {}).excess <= 0) is fits
    assert evaluate(lambda a, b: a @ b + a @ b, [a, b], {}).excess <= 0
    assert evaluate(lambda a, b: a @ b + (a / 4) @ b, [a, b], {}).excess > 0
