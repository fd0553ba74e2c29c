"""Loops that give warps different work, in the forms on which releases of Triton have failed: not flattened, with fp32
operands, and loaded by pointers. The other suites have the form and the dtypes that Inductor uses."""

from conformance.cases.scenarios import every_kernel, quick_fills, ragged, scenario, where
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
    every_row=every_kernel,
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


@scenario(
    where(family="loads", specialised=True, any_order=True),
    order=ORDERS,
    rotate={"static": [False, True], "out": ["row", "col"]},
    dtypes=("bf16", "fp16", "int8"),
    configs=2,
    every_row=every_kernel,
)
def test_orders(conform, harness, kernel, target, dtype, config, order, static, out):
    """Operands of any order, padded, whether pointers or descriptors load them; the loop over k with and without a
    mask, and a result of any order."""
    a, b = (Layout(name, pad=16) for name in order)
    sizes = [extent // 16 * 16 for extent in ragged(kernel, config, dtype, aligned=True)]
    problem = kernel.problem(dtype, *sizes, layout_a=a, layout_b=b, layout_out=Layout(out, pad=3))
    fills = quick_fills(harness.settings.tier)
    conform(kernel, problem, config=config, target=target, fills=fills, static=static, sms=3)


@scenario(where(family="loads", specialised=True), empty=["K", "N"], static=[False, True])
def test_empty(conform, kernel, target, dtype, empty, static):
    """A sum of nothing is zero, and an empty result is not launched: no descriptor is made over an empty operand."""
    sizes = {"M": 80, "N": 0 if empty == "N" else 112, "K": 0 if empty == "K" else 96}
    problem = kernel.problem(dtype, **sizes, layout_out=Layout(pad=16))
    conform(kernel, problem, config=kernel.drawn_configs[0], target=target, static=static, sms=3)


@scenario(where(family="loads", specialised=True, any_order=True), far=["row", "col"], dtypes=("bf16",), configs=2)
def test_far_operands(conform, kernel, target, dtype, config, far):
    """Offsets of the last rows, or of the last columns and k, need over 32 bits."""
    M, N, K = (extent // 16 * 16 for extent in ragged(kernel, config, dtype, aligned=True))

    def apart(rows, columns):
        """Lines so far apart that the last begins past 2**31 elements."""
        lines, length = (rows, columns) if far == "row" else (columns, rows)
        return Layout(far, pad=-(-(2**31) // (lines // 2)) // 16 * 16 + 16 - length % 16)

    layouts = {"layout_a": apart(M, K), "layout_b": apart(K, N), "layout_out": apart(M, N)}
    problem = kernel.problem(dtype, M, N, K, **layouts)
    conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=3)
