"""Products with four-bit weights: codes, packings, groups and zero points, sizes, orders, far offsets."""

from conformance.cases.scenarios import every_kernel, scenario, where
from conformance.families.examples import matrix_sizes
from conformance.families.int4.problem import int4_mm
from conformance.heuristics.configs import Config
from conformance.problems import Layout

#: k that share a scale: 0 stands for all, and 48 is no multiple of any block.
GROUPS = (0, 16, 48, 128)

#: Four blocks that differ, in bands of two tile rows.
UNLIKE = Config(32, 64, 128, 2, 4, group_m=2)
#: M, N and K: three tile rows, five columns and two blocks of K.
EDGES = {"rows-one-over": (65, 258, 130), "columns-one-over": (96, 258, 130)}


def deep(depth):
    """Sizes of one tile and a few elements, with the K that ``depth`` makes of a config."""
    return lambda config: (config.block_m + 2, config.block_n - 2, depth(config))


SIZES = {
    # K, from one pair of codes to a block and one pair of the next group
    "one-pair": deep(lambda config: 2),
    "less-than-a-group": deep(lambda config: 22),
    "one-block": deep(lambda config: config.block_k),
    "one-pair-over": deep(lambda config: config.block_k + 2),
    "many-groups": deep(lambda config: 3 * config.block_k + 136),
    # nothing is launched, and every result is zero
    "no-rows": lambda config: (0, 40, 64),
    "no-columns": lambda config: (24, 0, 64),
    "no-k": lambda config: (24, 40, 0),
}

#: Of A, B and the scales.
ORDERS = {
    "row.row": (Layout("row", pad=3), Layout("row", pad=5), Layout("col", pad=1)),
    "row.col": (Layout("row", pad=16), Layout("col", offset=1), Layout("row", pad=2, offset=3)),
    "col.row": (Layout("col", pad=1), Layout("row", step=2, offset=16), Layout("col")),
    "col.col": (Layout("col", offset=3), Layout("col", pad=16), Layout("row", pad=16)),
}


@scenario(
    where(family="int4"),
    packed=["k", "n"],
    group=list(GROUPS),
    zero=["none", "packed", "float"],
    configs=1,
    rotate={"signed": [True, False], "out": ["", "fp32"]},
)
def test_groups(conform, kernel, target, dtype, config, packed, group, zero, signed, out):
    """Every code under every kind of zero point, in groups below, of and above a block of k."""
    fields = {"packed": packed, "group": group, "zero": zero, "signed": signed, "out_dtype": out}
    conform(kernel, int4_mm(dtype, *matrix_sizes(config, "bf16", "ragged"), **fields), config=config, target=target)


@scenario(
    where(family="int4"),
    size=list(SIZES),
    rotate={"packed": ["k", "n"], "zero": ["float", "packed", "none"], "group": [32, 64, 0]},
    configs=1,
)
def test_sizes(conform, kernel, target, dtype, config, size, packed, zero, group):
    """K ends with a group, within one, and right behind one; tiles in bands; sizes of 0."""
    problem = int4_mm(dtype, *SIZES[size](config), packed=packed, zero=zero, group=group)
    conform(kernel, problem, config=config, target=target)


@scenario(
    where(family="int4"),
    order=list(ORDERS),
    rotate={"packed": ["k", "n"], "zero": ["packed", "float"]},
    configs=1,
)
def test_orders(conform, kernel, target, dtype, config, order, packed, zero):
    """Either order of each operand and of the scales, with gaps between rows or elements, and odd bases."""
    layout_a, layout_b, layout_scale = ORDERS[order]
    layouts = {"layout_a": layout_a, "layout_b": layout_b, "layout_out": Layout("col", pad=1)}
    fields = {**layouts, "layout_scale": layout_scale, "packed": packed, "zero": zero, "group": 32}
    sizes = (config.block_m + 10, config.block_n + 6, config.block_k + 40)
    conform(kernel, int4_mm(dtype, *sizes, **fields), config=config, target=target)


@scenario(where(family="int4"), dtypes=("bf16xint4",), edge=list(EDGES))
def test_tile_edges(conform, kernel, target, dtype, edge):
    """No extent can be one more or one less, and no number of the config can stand for another."""
    conform(kernel, int4_mm(dtype, *EDGES[edge], group=64, zero="packed"), config=UNLIKE, target=target)


@scenario(
    where(family="int4"),
    dtypes=("bf16xint4",),
    far=["row", "col"],
    rotate={"packed": ["k", "n"], "zero": ["packed", "float"]},
    configs=1,
    every_row=every_kernel,
)
def test_strides_past_2_31_elements(conform, harness, kernel, target, dtype, config, far, packed, zero):
    """Offsets need over 32 bits: of the last rows or columns of every operand, and of the last blocks of k. The memory
    between is not used. Below the full tier the fills of codes show what was read and written."""
    M, N, K = config.block_m + 8, config.block_n + 8, 2 * config.block_k + 32
    lines = {"a": (M, K), "b": (K // 2, N // 2), "out": (M, N), "scale": (-(-K // 32), N // 2)}
    fields = {
        f"layout_{name}": Layout(far, pad=2**31 // (extents[far == "col"] - 1) // 16 * 16 + 16)
        for name, extents in lines.items()
    }
    problem = int4_mm(dtype, M, N, K, packed=packed, zero=zero, group=32, **fields)
    fills = None if harness.settings.whole_tier else ("codes-A", "codes-B")
    conform(kernel, problem, config=config, target=target, fills=fills)
