"""Grouped products: groups of any size, empty ones wherever they stand, and the operands split in each dimension."""

from conformance.cases.scenarios import scenario, unlike_blocks, where
from conformance.families.examples import stored_dtype
from conformance.families.grouped.problem import KINDS
from conformance.judging.plan_rules import expect_refusal
from conformance.kernels.kernel import Variant
from conformance.problems import Layout, itemsize
from conformance.records import ReasonCode

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
#: Of two kernels with one loop the first has all rows in the quick tier.
UNSCALED = where(family="grouped", scaled=False)
SOME = ("more", "none", "part")
MANY = ("part", "none", "block", "part", "none", "part", "more", "part")


def _problem(kernel, kind, groups, dtype, config, **fields):
    """Ragged in every dimension; the groups' extents are those of EXTENTS, and in a plain batch all the same. Groups
    that descriptors load begin at multiples of 16 bytes of a row."""
    blocks = dict(zip("MNK", config.tile, strict=True))
    split = KINDS[kind]
    # one ragged tile of rows or columns, two of the other, three ragged blocks of k
    extents = {"M": config.block_m - 3, "N": config.block_n + 5, "K": 2 * config.block_k + 7}
    if not split:
        return kernel.problem(dtype, kind, (extents["M"],) * len(groups), **extents, **fields)
    deeper = 2 if split == "K" else 1
    sizes = [int(deeper * EXTENTS[name] * blocks[split]) for name in groups]
    if kernel.descriptors and (split != "M" or fields.get("layout_a", Layout()).order == "col"):
        step = 16 // itemsize(stored_dtype(dtype))
        sizes = [-(-size // step) * step for size in sizes]
        sizes[-1] -= 3 if sizes[-1] else 0
    return kernel.problem(dtype, kind, tuple(sizes), **{**extents, split: None}, **fields)


@scenario(where(family="grouped"), case=GROUPS, configs=1)
def test_groups(conform, kernel, target, dtype, config, case):
    """Three programs share the tiles of all groups: each begins in the middle of some and skips others. NaN next to a
    group must not get into it."""
    kind, groups = case
    problem = _problem(kernel, kind, groups, dtype, config)
    maker = "host" if kernel.descriptors and groups[0] == "none" else "device"
    fills = ("transparent", "special")
    conform(kernel, problem, config=config, target=target, fills=fills, sms=3, descriptors=maker)


@scenario(
    where(family="grouped", descriptors=True),
    kind=list(KINDS),
    descriptors=["device", "host"],
    rotate={"order": ["row", "col"]},
    configs=2,
    every_row=UNSCALED,
)
def test_described_groups(conform, kernel, target, dtype, config, kind, descriptors, order):
    """Groups of nothing, of one row or a few, and of more than a tile. Descriptors of the device are made for each
    group and end where it does; those of whole tensors go on, and what follows must not be summed."""
    other = {"row": "col", "col": "row"}[order]
    layouts = {"layout_a": Layout(order, pad=16), "layout_b": Layout(other, pad=32), "layout_out": Layout(pad=16)}
    problem = _problem(kernel, kind, MANY, dtype, config, **layouts)
    if problem.ragged == "M" and order == "row":  # those of a column-major A begin at multiples of 16 bytes
        sizes = (1, 0, config.block_m, 1, config.block_m + 1, 7)
        problem = kernel.problem(dtype, kind, sizes, N=problem.N, K=problem.K, **layouts)
    fills = ("transparent", "special")
    conform(kernel, problem, config=config, target=target, fills=fills, sms=3, descriptors=descriptors)


@scenario(
    where(family="grouped", descriptors=True),
    kind=["2d-3d", "2d-2d", "3d-3d"],
    rotate={"descriptors": ["device", "host"]},
    dtypes=("bf16", "fp16", "e4m3"),
    configs=1,
    every_row=UNSCALED,
)
def test_described_results(conform, kernel, target, dtype, config, kind, descriptors):
    """The result leaves by descriptors that end with the group, or with the matrix. Its rows are padded, so that a byte
    too much shows. Only the device knows where a group of rows ends, so the host's are refused."""
    problem = _problem(kernel, kind, SOME, dtype, config)
    extents = {name: getattr(problem, name) for name in "MK"}
    problem = kernel.problem(dtype, kind, problem.sizes, **extents, N=config.block_n + 16, layout_out=Layout(pad=16))
    variant = {"tma_store": True, "descriptors": descriptors}
    conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=3, **variant)


@scenario(where(family="grouped", descriptors=True), kind=["2d-2d", "3d-2d"], descriptors=["device", "host"], configs=1)
def test_groups_begin_within_a_unit(conform, recorder, kernel, target, dtype, config, kind, descriptors):
    """Groups that begin within 16 bytes of a row are refused: a device calls a copy from there illegal."""
    split = KINDS[kind]
    extents = {name: None if name == split else 48 for name in "MNK"}
    problem = kernel.problem(dtype, kind, (config.block_k + 1, 0, 2, config.block_n + 3), **extents)
    run = {"config": config, "target": target, "variant": Variant(descriptors)}
    if kind == "3d-2d" and problem.operand("b").strides[-1] != 1:  # its groups begin at whole rows of B's transpose
        conform(kernel, problem, fills=("transparent",), **run)
    else:
        expect_refusal(conform, recorder, kernel, problem, code=ReasonCode.ALIGNMENT_BASE, **run)


@scenario(
    where(operation="scaled_grouped_mm", family="grouped"),
    kind=list(KINDS),
    scaling=["row", "tensor"],
    rotate={"fast_accum": [False, True], "out": ["bf16", "fp32", "fp16"], "descriptors": ["device", "host"]},
    configs=2,
    every_row=where(family="grouped", descriptors=False),
)
def test_scales(conform, kernel, target, dtype, config, kind, scaling, fast_accum, out, descriptors):
    """Scales of each row and column, or one for each matrix of a group; rows of all groups share a vector where the
    groups share the rows."""
    fields = {"scaling": scaling, "fast_accum": fast_accum, "out_dtype": out}
    problem = _problem(kernel, kind, ("more", "none", "part", "more"), dtype, config, **fields)
    maker = descriptors if kernel.descriptors else "device"
    conform(kernel, problem, config=config, target=target, sms=3, descriptors=maker)


@scenario(
    where(family="grouped", descriptors=False),
    kind=["2d-3d", "3d-3d", "3d-2d"],
    even=[True, False],
    dtypes=("bf16", "fp16"),
    configs=1,
)
def test_known_sizes(conform, kernel, target, dtype, config, kind, even):
    """The compiler knows the sizes that are the same in all groups: if blocks of k are whole, loads have no
    mask of k."""
    blocks, split = dict(zip("MNK", config.tile, strict=True)), KINDS[kind]
    extents = {"M": config.block_m - 3, "N": config.block_n + 5, "K": 3 * config.block_k + (0 if even else 7)}
    groups = [int(EXTENTS[name] * blocks[split]) if split else extents["M"] for name in SOME]
    fields = {**extents, split: None} if split else extents
    problem = kernel.problem(dtype, kind, tuple(groups), **fields, layout_a=Layout(pad=3), layout_b=Layout(pad=3))
    conform(kernel, problem, config=config, target=target, fills=("transparent", "special"), static=True, sms=3)


#: Columns, and the tile rows of a band; the last band has more tiles than a tile has columns.
EDGES = {
    "columns-exact": (lambda c: 2 * c.block_n, 2),
    "columns-one-over": (lambda c: 2 * c.block_n + 1, 2),
    "one-band": (lambda c: c.block_n**2 // 2 - 8, 2**14),
}


@scenario(
    where(family="grouped"),
    edge=list(EDGES),
    dtypes=("bf16", "fp16", "e4m3"),
    configs=1,
    every_row=UNSCALED,
)
def test_tile_edges(conform, kernel, target, dtype, config, edge):
    """No extent of a group can be one more or one less, and no number of the config can stand for another. A group ends
    one row after a tile, one is empty, and one ends with a tile."""
    columns, group_m = EDGES[edge]
    config = unlike_blocks(config, group_m)
    sizes = (2 * config.block_m + 1, 0, 3 * config.block_m)
    problem = kernel.problem(dtype, "2d-3d", sizes, N=columns(config), K=config.block_k + 7)
    conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=3)


@scenario(where(family="grouped"), dtypes=("bf16", "e4m3"), configs=1)
def test_groups_past_2_31_elements(conform, kernel, target, dtype, config):
    """The last group begins past 2**31 elements of A and of the output, and spans as many. The memory between is not
    used."""
    rows = config.block_m + 8
    far = Layout(pad=-(-(2**31) // (rows - 1) // 16) * 16)
    problem = kernel.problem(dtype, "2d-3d", (rows, 0, rows + 1), N=24, K=40, layout_a=far, layout_out=far)
    conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=3)


@scenario(
    where(family="grouped"),
    kind=list(KINDS),
    rotate={"orders": [("row", "col", "row", "outer"), ("col", "row", "col", "inner"), ("row", "row", "row", "inner")]},
    configs=1,
    every_row=where(family="grouped", scaled=False, descriptors=False),
)
def test_layouts(conform, kernel, target, dtype, config, kind, orders):
    """Groups that follow each other along either dimension of an operand, padded, or interleaved, with strides of its
    own for each operand."""
    names = zip(("layout_a", "layout_b", "layout_out"), orders, (8, 16, 3), strict=False)
    layouts = {name: Layout(order, pad=pad, batch=orders[3]) for name, order, pad in names}
    problem = _problem(kernel, kind, SOME, dtype, config, **layouts)
    conform(kernel, problem, config=config, target=target, fills=("wide-A",), sms=3)


@scenario(where(family="grouped"), case=[("2d-3d", 2), ("2d-2d", 7)], dtypes=("bf16", "fp16", "e4m3"), configs=2)
def test_more_groups_than_programs(conform, recorder, kernel, target, dtype, config, case):
    """The grid does not depend on the sizes of the groups, which only the device knows."""
    kind, sms = case
    problem = _problem(kernel, kind, MANY, dtype, config)
    run = conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=sms)
    recorder.verdict("programs", run.plan.grid == (sms,), f"grid {run.plan.grid}, {sms} SMs")


@scenario(where(family="grouped"), kind=["2d-3d", "3d-3d"], dtypes=("bf16", "fp16", "e4m3"), configs=1)
def test_no_k(conform, recorder, kernel, target, dtype, config, kind):
    """Products of no k are zeros in every element."""
    rows = config.block_m + 5
    problem = kernel.problem(dtype, kind, (rows,) * 2, M=None if KINDS[kind] else rows, N=rows, K=0)
    run = conform(kernel, problem, config=config, target=target, sms=3)
    for name, out in run.trial.outputs.items():
        recorder.verdict(f"zeros/{name}", not out.double().any(), "every element is zero")
