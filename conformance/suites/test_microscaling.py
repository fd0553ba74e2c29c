"""Products of block-scaled operands: every format and packing, ends of blocks, orders, batches."""

from conformance.cases.scenarios import every_kernel, scenario, where
from conformance.problems import Layout

#: A x B, and along which dimension the codes of each are packed.
FORMATS = (
    "mxfp8.mxfp8.kk",
    "mxfp8e5.mxfp8.kk",
    "mxfp8.mxfp4.kk",
    "mxfp4.mxfp8e5.kk",
    "mxfp4.mxfp4.kk",
    "nvfp4.nvfp4.kk",
    "bf16.mxfp4.kk",
    "mxfp4.bf16.kk",
    "fp16.mxfp4.kk",
    "mxfp8.bf16.kk",
    "mxfp4.mxfp4.kn",
    "mxfp4.mxfp4.mk",
    "mxfp4.mxfp4.mn",
    "mxfp8.mxfp4.kn",
    "bf16.mxfp4.kn",
    "nvfp4.nvfp4.mn",
)

#: K, from one pair of codes to a block of k and one pair of the next block of scales.
DEPTHS = {
    "one-pair": lambda config: 2,
    "less-than-a-scale": lambda config: 24,
    "one-scale": lambda config: 32,
    "one-block": lambda config: config.block_k,
    "one-pair-over": lambda config: config.block_k + 2,
    "one-scale-over": lambda config: config.block_k + 32,
    "half-a-scale-over": lambda config: config.block_k + 48,
}

ORDERS = {
    "row.row": (Layout("row", pad=3), Layout("row", pad=5)),
    "row.col": (Layout("row", pad=16), Layout("col", offset=1)),
    "col.row": (Layout("col", pad=1), Layout("row", offset=16)),
    "col.col": (Layout("col", offset=3), Layout("col", pad=16)),
}


def problem_of(kernel, formats, *sizes, **fields):
    """The problem of ``formats``, an element of :data:`FORMATS`."""
    a, b, (packed_a, packed_b) = formats.split(".")
    return kernel.problem((a, b), *sizes, packed_a=packed_a, packed_b=packed_b, **fields)


@scenario(where(family="microscaled"), formats=FORMATS, rotate={"out": ["fp32", "bf16"]}, every_row=every_kernel)
def test_formats(conform, kernel, target, config, formats, out):
    """Two by two tiles and three blocks of k, the last of each ragged."""
    sizes = kernel.sizes(config, "ragged")
    conform(kernel, problem_of(kernel, formats, *sizes, out_dtype=out), config=config, target=target)


@scenario(
    where(family="microscaled"),
    depth=list(DEPTHS),
    rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "nvfp4.nvfp4.kk", "bf16.mxfp4.kk"]},
    configs=2,
    every_row=every_kernel,
)
def test_depths(conform, kernel, target, config, depth, formats):
    """K ends with a block of scales, within one, and right behind one."""
    problem = problem_of(kernel, formats, config.block_m + 2, config.block_n - 2, DEPTHS[depth](config))
    conform(kernel, problem, config=config, target=target)


@scenario(
    where(family="microscaled"),
    order=list(ORDERS),
    batch=[None, 3],
    rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "mxfp8.mxfp4.kk"]},
    configs=1,
    every_row=every_kernel,
)
def test_orders(conform, kernel, target, config, order, batch, formats):
    """Either order of each operand, with gaps between rows, odd bases, and matrices of a batch that lie apart."""
    layout_a, layout_b = ORDERS[order]
    fields = {"layout_a": layout_a, "layout_b": layout_b, "layout_out": Layout("col", pad=1), "batch": batch}
    sizes = (config.block_m + 10, config.block_n + 6, config.block_k + 40)
    conform(kernel, problem_of(kernel, formats, *sizes, **fields), config=config, target=target)


@scenario(
    where(family="microscaled"),
    rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "bf16.mxfp4.kk", "mxfp8.mxfp4.kk"]},
    configs=2,
    every_row=every_kernel,
)
def test_least_scale(conform, kernel, target, config, formats):
    """The scale byte 0 stands for 2**-127, not for zero."""
    problem = problem_of(kernel, formats, *kernel.sizes(config, "ragged"))
    conform(kernel, problem, config=config, target=target, fills=("least-scale",))
