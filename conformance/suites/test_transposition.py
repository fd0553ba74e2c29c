"""Every order of the operands in memory, with sizes known when compiling or launching, and each kind of store."""

from conformance.cases.scenarios import named, not_own, quick_fills, ragged, scenario, where
from conformance.codegen_checks import POINTER_STORE, TMA_STORE
from conformance.problems import Layout

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]


@scenario(
    where(descriptors=False, any_order=True),
    order=ORDERS,
    static=[False, True],
    configs=2,
    every_row=not_own,
    quick=named("baddbmm", "mm_fp64", "mm_chained", "mm_with_sums"),
)
def test_transposed_operands(conform, kernel, target, dtype, config, order, static):
    """A and B in both orders, odd sizes, so that no dimension is a multiple of a tile or of 16."""
    a, b = (Layout(name) for name in order)
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=False), layout_a=a, layout_b=b)
    conform(kernel, problem, config=config, target=target, static=static)


@scenario(
    where(descriptors=True, any_order=True),
    order=ORDERS,
    static=[False, True],
    tma_store=[False, True],
    rotate={"descriptors": ["device", "host"], "flatten": [False, True]},
    configs=1,
)
def test_transposed_descriptors(conform, kernel, target, dtype, config, order, static, tma_store, descriptors, flatten):
    """The same through descriptors; three programs share the tiles, so that each computes more than one."""
    a, b = (Layout(name) for name in order)
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True), layout_a=a, layout_b=b)
    variant = {"static": static, "tma_store": tma_store, "descriptors": descriptors, "flatten": flatten, "sms": 3}
    run = conform(kernel, problem, config=config, target=target, **variant)
    if target.capability("tma").available:
        run.requires(TMA_STORE if tma_store else POINTER_STORE)
        run.forbids(POINTER_STORE if tma_store else TMA_STORE)


@scenario(
    where(operation="scaled_mm", block_scaled=False),
    static=[False, True],
    scaling=["tensor", "row"],
    fast_accum=[False, True],
    configs=2,
)
def test_column_major_weight(conform, harness, kernel, target, dtype, config, static, scaling, fast_accum):
    """fp8 products take A row-major and B column-major only; the other orders are refusals (test_alignment)."""
    fields = {"scaling": scaling, "fast_accum": fast_accum}
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True), **fields)
    variant = {"static": static, "sms": 3 if kernel.persistent else None}
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), **variant)
