"""fp32 products of split operands: "tf32x3", "bf16x3" and "bf16x6", where the installed Triton has them.

They are no dtypes of the kernels' other cases: a product differs in its precision alone, whatever its topic.
"""

from conformance.cases.scenarios import ragged, scenario
from conformance.heuristics.configs import Config
from conformance.problems import SPLIT_PRECISIONS, Layout

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]

#: Tiles of large matrix instructions and, the last, of small ones; parts fit next to the operands.
TILES = {
    "64x64": Config(64, 64, 32, 2, 4),
    "128x64": Config(128, 64, 32, 3, 8),
    "16x32": Config(16, 32, 32, 1, 2),
}


def splits_operands(kernel):
    """True if a kernel takes the precisions that split operands."""
    return SPLIT_PRECISIONS[0] in getattr(kernel.limits, "precisions", ())


@scenario(splits_operands, precision=SPLIT_PRECISIONS, rotate={"tile": list(TILES), "order": ORDERS})
def test_split_operands(conform, kernel, target, precision, tile, order):
    """Sums are as near as the contract says, with operands of 24 bits; integers whose parts are exact stay exact."""
    config, (a, b) = TILES[tile], (Layout(name) for name in order)
    sizes = ragged(kernel, config, precision, aligned=kernel.descriptors)
    problem = kernel.problem(precision, *sizes, layout_a=a, layout_b=b)
    conform(kernel, problem, config=config, target=target, sms=3 if kernel.persistent else None)
