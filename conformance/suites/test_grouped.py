"""Grouped products: groups of any size, empty ones wherever they stand, and the operands split in each dimension."""

from conformance.cases.scenarios import scenario, where
from conformance.cases.unlike_blocks import unlike_blocks
from conformance.problems import GroupedGemm, Layout
from conformance.problems.grouped import KINDS

#: Extents of the groups by name -> what they are in blocks of the dimension that is split.
EXTENTS = {"none": 0.0, "part": 0.4, "block": 1.0, "more": 1.3}

#: An empty group first, in the middle and last, nothing but empty ones, one group, and an exact block between two.
GROUPS = (
    ("2d-3d", ("more", "block", "part")),
    ("2d-3d", ("none", "more")),
    ("2d-3d", ("none", "none")),
    ("3d-2d", ("part", "none", "none", "more")),
    ("3d-2d", ("more",)),
    ("2d-2d", ("more", "part", "none")),
    ("2d-2d", ("none", "block", "more")),
    ("2d-2d", ("none", "none")),
)
SOME = ("more", "none", "part")
MANY = ("part", "none", "block", "part", "none", "part", "more", "part")


def _problem(kind, groups, dtype, config, **fields):
    """Ragged in every dimension; the groups' extents are those of EXTENTS, and in a plain batch all the same."""
    if dtype == "tf32":
        dtype, fields = "fp32", {**fields, "precision": "tf32"}
    blocks = dict(zip("MNK", config.tile, strict=True))
    split = KINDS[kind]
    # one ragged tile of rows or columns, two of the other, three ragged blocks of k
    extents = {"M": config.block_m - 3, "N": config.block_n + 5, "K": 2 * config.block_k + 7}
    if not split:
        return GroupedGemm(kind, (extents["M"],) * len(groups), **extents, dtype=dtype, **fields)
    deeper = 2 if split == "K" else 1
    sizes = tuple(int(deeper * EXTENTS[name] * blocks[split]) for name in groups)
    return GroupedGemm(kind, sizes, **{**extents, split: None}, dtype=dtype, **fields)


@scenario(where(family="grouped"), case=GROUPS, configs=4)
def test_groups(conform, kernel, target, dtype, config, case):
    """Three programs share the tiles of all groups: each begins in the middle of some and skips others. NaN that stands
    beside a group must not get into it."""
    kind, groups = case
    problem = _problem(kind, groups, dtype, config)
    conform(kernel, problem, config=config, target=target, fills=("transparent", "special"), sms=3)


@scenario(
    where(family="grouped"), kind=["2d-3d", "3d-3d", "3d-2d"], even=[True, False], dtypes=("bf16", "fp16"), configs=1
)
def test_known_sizes(conform, kernel, target, dtype, config, kind, even):
    """What is the same in all groups is known to the compiler: of whole blocks of k loads have no mask of k."""
    blocks, split = dict(zip("MNK", config.tile, strict=True)), KINDS[kind]
    extents = {"M": config.block_m - 3, "N": config.block_n + 5, "K": 3 * config.block_k + (0 if even else 7)}
    groups = [int(EXTENTS[name] * blocks[split]) if split else extents["M"] for name in SOME]
    fields = {**extents, split: None} if split else extents
    problem = GroupedGemm(kind, tuple(groups), **fields, dtype=dtype, layout_a=Layout(pad=3), layout_b=Layout(pad=3))
    conform(kernel, problem, config=config, target=target, fills=("transparent", "special"), static=True, sms=3)


#: Columns, and the tile rows of a band; the last band has more tiles than a tile has columns.
EDGES = {
    "columns-exact": (lambda c: 2 * c.block_n, 2),
    "columns-one-over": (lambda c: 2 * c.block_n + 1, 2),
    "one-band": (lambda c: c.block_n**2 // 2 - 8, 2**14),
}


@scenario(
    where(family="grouped"), edge=list(EDGES), dtypes=("bf16", "fp16"), configs=1, every_row=where(family="grouped")
)
def test_tile_edges(conform, kernel, target, dtype, config, edge):
    """No extent of a group can be one more or one less, and no number of the config can stand for another: a group ends
    one row after a tile, one is empty, and one ends with a tile."""
    columns, group_m = EDGES[edge]
    config = unlike_blocks(config, group_m)
    sizes = (2 * config.block_m + 1, 0, 3 * config.block_m)
    problem = GroupedGemm("2d-3d", sizes, None, columns(config), config.block_k + 7, dtype)
    conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=3)


@scenario(where(family="grouped"), dtypes=("bf16",), configs=1)
def test_groups_past_2_31_elements(conform, kernel, target, dtype, config):
    """The last group begins past 2**31 elements of A and of the output, and spans as many. The memory between is not
    used."""
    rows = config.block_m + 8
    far = Layout(pad=-(-(2**31) // (rows - 1) // 16) * 16)
    problem = GroupedGemm("2d-3d", (rows, 0, rows + 1), None, 24, 40, dtype, layout_a=far, layout_out=far)
    conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=3)


@scenario(
    where(family="grouped"),
    kind=list(KINDS),
    rotate={"orders": [("row", "col", "row", "outer"), ("col", "row", "col", "inner"), ("row", "row", "row", "inner")]},
    configs=4,
    every_row=where(family="grouped"),
)
def test_layouts(conform, kernel, target, dtype, config, kind, orders):
    """Groups that follow each other along either dimension of an operand, padded, or interleaved, with strides of its
    own for each operand."""
    names = zip(("layout_a", "layout_b", "layout_out"), orders, (8, 16, 3), strict=False)
    layouts = {name: Layout(order, pad=pad, batch=orders[3]) for name, order, pad in names}
    problem = _problem(kind, SOME, dtype, config, **layouts)
    conform(kernel, problem, config=config, target=target, fills=("wide-A",), sms=3)


@scenario(where(family="grouped"), case=[("2d-3d", 2), ("2d-2d", 7)], dtypes=("bf16", "fp16"), configs=2)
def test_more_groups_than_programs(conform, recorder, kernel, target, dtype, config, case):
    """The grid does not depend on the sizes of the groups, which only the device knows."""
    kind, sms = case
    problem = _problem(kind, MANY, dtype, config)
    run = conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=sms)
    recorder.verdict("programs", run.plan.grid == (sms,), f"grid {run.plan.grid}, {sms} SMs")


@scenario(where(family="grouped"), kind=["2d-3d", "3d-3d"], dtypes=("bf16", "fp16"), configs=1)
def test_no_k(conform, recorder, kernel, target, dtype, config, kind):
    """Products of no k are zeros in every element."""
    rows = config.block_m + 5
    problem = GroupedGemm(kind, (rows,) * 2, None if KINDS[kind] else rows, rows, 0, dtype)
    run = conform(kernel, problem, config=config, target=target, sms=3)
    for name, out in run.trial.outputs.items():
        recorder.verdict(f"zeros/{name}", not out.double().any(), "every element is zero")
