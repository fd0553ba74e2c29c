"""Loops that give warps different work, in the forms on which releases of Triton have failed: not flattened, and with
fp32 operands. The other suites have the form and the dtypes that Inductor uses."""

from conformance.cases.quick_fills import quick_fills
from conformance.cases.scenarios import ragged, scenario, where
from conformance.heuristics.configs import Config
from conformance.problems import Layout

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]


@scenario(where(specialised=True), flatten=[False], rotate={"tma_store": [False, True]}, configs=1)
def test_nested_loops(conform, harness, kernel, target, dtype, config, flatten, tma_store):
    """The loop over k stays inside the loop over tiles, which is the one that is specialised."""
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True))
    variant = {"flatten": flatten, "tma_store": tma_store, "sms": 3}
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), **variant)


#: fp32 operands as tcgen05 multiplies them, and in arithmetic that it does not have.
OPERANDS = ["tf32", "fp32"]
#: Configs that fit with operands of 4 bytes: those of the kernels' tables do not.
TILES = {"64x64": Config(64, 64, 32, 2, 4), "128x64": Config(128, 64, 32, 3, 8)}


@scenario(
    where(specialised=True, any_order=True),
    operands=OPERANDS,
    order=ORDERS,
    flatten=[False, True],
    rotate={"tile": list(TILES)},
)
def test_fp32_operands(conform, harness, kernel, target, operands, order, flatten, tile):
    """tcgen05 reads tf32 operands along k only: one of another order is turned inside the loop. fp32 arithmetic has no
    tcgen05, and the loop is specialised nevertheless."""
    config, (a, b) = TILES[tile], (Layout(name) for name in order)
    sizes = ragged(kernel, config, operands, aligned=True)
    problem = kernel.problem(operands, *sizes, layout_a=a, layout_b=b)
    conform(
        kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), flatten=flatten, sms=3
    )
