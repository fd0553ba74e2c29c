"""How described tiles move where they are more than whole blocks that TMA loads: without a TMA."""

from conformance.cases.quick_fills import quick_fills
from conformance.cases.scenarios import ragged, scenario, where
from conformance.problems import Layout

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]


@scenario(
    where(family="loads", without_tma=True),
    order=ORDERS,
    rotate={"tma_store": [False, True], "descriptors": ["device", "host"], "flatten": [False, True]},
    dtypes=("bf16", "fp16"),
    configs=1,
    every_row=where(family="loads"),
)
def test_without_tma(conform, harness, kernel, target, dtype, config, order, tma_store, descriptors, flatten):
    """By a data mover of another kind, or by the pointers that the compiler makes of a descriptor. Everything is
    padded, so that a read or a write over the end of a row shows."""
    a, b = (Layout(name, pad=16) for name in order)
    problem = kernel.problem(
        dtype, *ragged(kernel, config, dtype, aligned=True), layout_a=a, layout_b=b, layout_out=Layout(pad=16)
    )
    variant = {"tma_store": tma_store, "descriptors": descriptors, "flatten": flatten, "sms": 3}
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), **variant)
