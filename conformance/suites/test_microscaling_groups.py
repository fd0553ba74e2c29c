"""Grouped products of block-scaled operands: groups of any size, empty ones, layouts, and far offsets."""

from conformance.cases.scenarios import scenario, unlike_blocks, where
from conformance.problems import Layout

#: Rows of each group in blocks of a tile's. There is an empty group first, in the middle and last, nothing but empty
#: ones, and one group alone. Another group ends with a tile between two.
GROUPS = {
    "exact-in-the-middle": (1.3, 1.0, 0.4),
    "first-empty": (0.0, 1.3),
    "two-empty": (0.4, 0.0, 0.0, 1.3),
    "last-empty": (1.3, 0.4, 0.0),
    "all-empty": (0.0, 0.0),
    "one": (2.3,),
    "more-than-programs": (0.4, 0.0, 1.0, 0.2, 0.0, 0.4, 1.3, 0.1),
}
FORMATS = ("mxfp8.mxfp8", "mxfp4.mxfp4", "bf16.mxfp4", "mxfp8.mxfp4", "nvfp4.nvfp4")
#: Of A, B, the result and the scales.
ORDERS = {
    "rows": (Layout(pad=3), Layout("row", pad=5, batch_pad=7), Layout("col", pad=1), Layout("row", pad=2, offset=3)),
    "columns": (Layout("col", offset=1), Layout("col", pad=1), Layout(pad=3), Layout("col", pad=1, batch_pad=5)),
    "interleaved": (Layout(), Layout("col", batch="inner"), Layout(), Layout(batch="inner")),
}


def sizes_of(config, shares):
    return tuple(int(config.block_m * share) for share in shares)


@scenario(
    where(family="microscaled-grouped"),
    dtypes=("e4m3",),
    groups=list(GROUPS),
    rotate={"formats": FORMATS, "out": ["fp32", "bf16"]},
    configs=2,
)
def test_groups(conform, kernel, target, config, groups, formats, out):
    """Three programs share the tiles of all groups: each begins in the middle of some and skips others. K ends within a
    block of scales."""
    sizes, (n, k) = sizes_of(config, GROUPS[groups]), (config.block_n + 6, 2 * config.block_k + 16)
    a, b = formats.split(".")
    problem = kernel.problem((a, b), sizes, n, k, out_dtype=out)
    conform(kernel, problem, config=config, target=target, sms=3)


@scenario(where(family="microscaled-grouped"), dtypes=("e4m3",), order=list(ORDERS), configs=1)
def test_layouts(conform, kernel, target, config, order):
    """Groups' matrices in either order, apart or interleaved, and strides of its own for each operand."""
    names = ("layout_a", "layout_b", "layout_out", "layout_scale")
    layouts = dict(zip(names, ORDERS[order], strict=True))
    sizes, (n, k) = sizes_of(config, (1.3, 0.0, 0.4)), (config.block_n + 6, config.block_k + 40)
    problem = kernel.problem(("mxfp8", "mxfp4"), sizes, n, k, **layouts)
    conform(kernel, problem, config=config, target=target, sms=2)


#: Of these B's and A's rows are multiples of 128 codes, as tcgen05 needs them of four-bit codes that meet eight-bit
#: ones.
DESCRIBED_FORMATS = ("mxfp8.mxfp8", "mxfp8.mxfp4", "mxfp4.mxfp4", "bf16.mxfp4")


@scenario(
    where(family="microscaled-grouped", descriptors=True),
    dtypes=("e4m3",),
    order=["rows", "columns"],
    descriptors=["device", "host"],
    rotate={"formats": DESCRIBED_FORMATS},
    configs=2,
    every_row=where(family="microscaled-grouped"),
)
def test_described_groups(conform, kernel, target, config, order, descriptors, formats):
    """Groups of nothing, of one row and of more than a tile; descriptors of either maker, and B in either order. What
    follows a group's rows is loaded and must not be stored."""
    a, b = formats.split(".")
    fields = {"layout_a": Layout(pad=32), "layout_b": Layout("row" if order == "rows" else "col", pad=32, batch_pad=64)}
    sizes = (1, 0, config.block_m, 1, config.block_m + 1, 7)
    problem = kernel.problem((a, b), sizes, config.block_n + 64, 2 * config.block_k + 128, **fields)
    conform(kernel, problem, config=config, target=target, sms=3, descriptors=descriptors)


@scenario(where(family="microscaled-grouped"), dtypes=("e4m3",), k=["none", "one-pair"], configs=1)
def test_little_k(conform, kernel, target, config, k):
    """Products of no k are zeros in every element; those of two k have part of one block of scales."""
    depth = 0 if k == "none" else 2
    problem = kernel.problem(("mxfp8", "mxfp4"), (config.block_m + 5, 0, 3), 40, depth)
    conform(kernel, problem, config=config, target=target, sms=2)


@scenario(where(family="microscaled-grouped"), dtypes=("e4m3",), columns=["exact", "one-over"], configs=1)
def test_tile_edges(conform, kernel, target, config, columns):
    """No extent of a group can be one more or one less, and no number of the config can stand for another."""
    config = unlike_blocks(config, 2)
    n = 2 * config.block_n + (columns == "one-over")
    problem = kernel.problem(("mxfp8", "mxfp8"), (2 * config.block_m + 1, 0, 3 * config.block_m), n, 130)
    conform(kernel, problem, config=config, target=target, fills=("codes-A", "codes-B"), sms=3)


@scenario(where(family="microscaled-grouped"), dtypes=("e4m3",), far=["rows", "groups"], configs=1)
def test_strides_past_2_31_elements(conform, kernel, target, config, far):
    """The last group begins past 2**31 elements of A and of the result, or its B and the scales of it lie there. The
    memory between is not used."""
    rows = config.block_m + 8
    if far == "rows":
        layout = Layout(pad=-(-(2**31) // (rows - 1) // 16) * 16)
        layouts = {"layout_a": layout, "layout_out": layout}
    else:
        layouts = {"layout_b": Layout("col", batch_pad=2**30), "layout_scale": Layout(batch_pad=2**30)}
    problem = kernel.problem(("mxfp8", "mxfp8"), (rows, 0, 2), 24, 80, out_dtype="bf16", **layouts)
    conform(kernel, problem, config=config, target=target, fills=("codes-A", "codes-B"), sms=3)
