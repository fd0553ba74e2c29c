"""Products of block-scaled operands: every format and packing, ends of blocks, orders, batches, far offsets."""

from dataclasses import replace

from conformance.cases.scenarios import every_kernel, scenario, where
from conformance.cases.tier_rows import CROSSED
from conformance.families.examples import matrix_sizes
from conformance.heuristics.configs import BatchConfig, Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout

#: A x B, and along which dimension the codes of each are packed. The first are for every target, the others for those
#: with e4m3, which nvfp4 has in its scales.
FORMATS = (
    "mxfp4.mxfp4.kk",
    "mxfp4.mxfp8e5.kk",
    "bf16.mxfp4.kk",
    "mxfp4.bf16.kk",
    "fp16.mxfp4.kk",
    "mxfp4.mxfp4.kn",
    "mxfp4.mxfp4.mk",
    "mxfp4.mxfp4.mn",
    "bf16.mxfp4.kn",
)
E4M3_FORMATS = (
    "mxfp8.mxfp8.kk",
    "mxfp8e5.mxfp8.kk",
    "mxfp8.mxfp4.kk",
    "nvfp4.nvfp4.kk",
    "mxfp8.bf16.kk",
    "mxfp8.mxfp4.kn",
    "nvfp4.nvfp4.mn",
)
#: Selects the targets with e4m3, in tests that do not take a dtype.
E4M3 = ("e4m3",)

#: K, from nothing and one pair of codes to a block of k and one pair of the next block of scales.
DEPTHS = {
    "none": lambda config: 0,
    "one-pair": lambda config: 2,
    "less-than-a-scale": lambda config: 24,
    "one-scale": lambda config: 32,
    "one-block": lambda config: config.block_k,
    "one-pair-over": lambda config: config.block_k + 2,
    "one-scale-over": lambda config: config.block_k + 32,
    "half-a-scale-over": lambda config: config.block_k + 48,
}

#: Of A, B and the scales.
ORDERS = {
    "row.row": (Layout("row", pad=3), Layout("row", pad=5), Layout("col", pad=1)),
    "row.col": (Layout("row", pad=16), Layout("col", offset=1), Layout("row", pad=2, offset=3)),
    "col.row": (Layout("col", pad=1), Layout("row", offset=16), Layout("col")),
    "col.col": (Layout("col", offset=3), Layout("col", pad=16), Layout("row", pad=16)),
}

#: Of A, B and the scales, as descriptors take codes: unit strides, bases and pitches of 32 bytes.
DESCRIBED = {
    "row.row": (Layout("row", offset=32), Layout("row", pad=32), Layout("col", pad=1)),
    "row.col": (Layout("row", pad=32), Layout("col", offset=64), Layout("row", pad=2, offset=3)),
    "col.row": (Layout("col", pad=32), Layout("row", offset=32), Layout("row")),
    "col.col": (Layout("col", offset=32), Layout("col", pad=64), Layout("col")),
}

DESCRIBED_FORMATS = (
    "mxfp8.mxfp8.kk",
    "mxfp4.mxfp4.kk",
    "mxfp8.mxfp4.kk",
    "mxfp8e5.bf16.kk",
    "nvfp4.nvfp4.mn",
    "mxfp4.mxfp8e5.kk",
    "bf16.mxfp4.kk",
)

#: Lines of A and B and blocks of k beyond whole tiles of swizzled scales, and how these tiles lie.
SWIZZLED = {
    "whole-tiles": (0, 0, 0, Layout()),
    "one-line-over": (1, 2, 0, Layout("col")),
    "one-block-over": (0, 34, 1, Layout(pad=1)),
    "blocks-missing": (-2, -32, -2, Layout("col", pad=2)),
    "part-of-a-block": (98, 64, -1.5, Layout(offset=512)),
}

#: Layouts of A, B, the scales and the result of a batch, and elements between matrices of each.
BATCHES = {
    "packed": ((None, None, Layout(), Layout()), (0, 0, 0, 0)),
    "apart": ((None, None, Layout(pad=1), Layout(pad=16)), (64, 96, 3, 48)),
    "turned": ((Layout("col"), Layout("row", pad=32), Layout("col"), Layout(pad=32)), (32, 64, 1, 16)),
}

#: Batches of nothing: of no matrix, of one, of no k, of no columns.
LEAST_BATCHES = {"no-matrix": {"batch": 0}, "one-matrix": {"batch": 1}, "no-k": {"K": 0}, "no-column": {"N": 0}}

#: Formats and depths of tiles of several matrices, for every target and for those with e4m3.
TILE_FORMATS = ("mxfp4.mxfp4.kk", "mxfp4.mxfp8e5.kk", "bf16.mxfp4.kk", "mxfp4.bf16.kk")
TILE_DEPTHS = ["one-pair", "less-than-a-scale", "one-block", "half-a-scale-over"]
E4M3_TILE_FORMATS = ("mxfp8.mxfp8.kk", "mxfp8.mxfp4.kk", "nvfp4.nvfp4.kk", "mxfp8e5.mxfp8.kk")

#: Four blocks that differ, in bands of two tile rows.
UNLIKE = Config(32, 64, 128, 2, 4, group_m=2)
#: M, N and K: three tile rows, more tile columns, and four blocks of k. The last block has one k, with which a block of
#: scales begins; or one band with more tiles than a tile has columns.
EDGES = {
    "rows-one-over": (UNLIKE, 65, 256, 385),
    "columns-one-over": (UNLIKE, 96, 257, 385),
    "one-band": (Config(64, 32, 128, 2, 4, group_m=2**14), 91, 1021, 130),
}


#: Selects the kernel that has all rows of these tests in the quick tier.
by_pointers = where(family="microscaled", persistent=False, batched=False)
#: Selects kernels for tests whose answer does not depend on who loads: the specialised kernel has the persistent one's
#: code.
unspecialised = where(family="microscaled", specialised=False, batched=False)
#: Selects kernels that load scales by descriptors, or by pointers where these do not fit.
in_described_scales = where(family="microscaled", described_scales=True, batched=False)
#: Selects kernels of batches by descriptors.
in_batches = where(family="microscaled", batched=True, descriptors=True)
#: Selects kernels whose tiles have several matrices of a batch.
in_tiles = where(family="microscaled", batched=True, descriptors=False)


def any_format(kernel):
    """Selects kernels that have a case of each format here: of those for batches the one with scales by pointers and
    codes by descriptors."""
    return kernel.family == "microscaled" and (
        not kernel.batched or (kernel.descriptors and not kernel.described_scales)
    )


#: Fills whose results are one product each: which elements are read and written decides them.
SINGLE_PRODUCTS = ("codes-A", "codes-B")


def quick_fills(harness):
    """The fills of the quick tier where a test is about which codes and scales are read. In the other tiers None, which
    stands for all fills."""
    return (*SINGLE_PRODUCTS, "randn") if harness.settings.tier == "quick" else None


def problem_of(kernel, formats, *sizes, **fields):
    """The problem of ``formats``, an element of :data:`FORMATS`."""
    a, b, (packed_a, packed_b) = formats.split(".")
    return kernel.problem((a, b), *sizes, packed_a=packed_a, packed_b=packed_b, **fields)


@scenario(by_pointers, formats=FORMATS, rotate={"out": ["fp32", "bf16"]}, configs=1, every_row=every_kernel)
def test_formats(conform, kernel, target, config, formats, out):
    """Two by two tiles and three blocks of k, the last of each ragged."""
    sizes = matrix_sizes(config, "e4m3", "ragged")
    conform(kernel, problem_of(kernel, formats, *sizes, out_dtype=out), config=config, target=target)


@scenario(
    any_format,
    dtypes=E4M3,
    formats=E4M3_FORMATS,
    rotate={"out": ["fp32", "bf16"]},
    configs=1,
    every_row=by_pointers,
)
def test_formats_with_e4m3(conform, kernel, target, config, formats, out):
    """The same of formats that not every target has."""
    sizes = matrix_sizes(config, "e4m3", "ragged")
    conform(kernel, problem_of(kernel, formats, *sizes, out_dtype=out), config=config, target=target)


@scenario(
    unspecialised,
    dtypes=E4M3,
    depth=list(DEPTHS),
    rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "nvfp4.nvfp4.kk", "bf16.mxfp4.kk"]},
    configs=1,
    every_row=by_pointers,
)
def test_depths(conform, kernel, target, config, depth, formats):
    """K ends with a block of scales, within one, and right behind one."""
    problem = problem_of(kernel, formats, config.block_m + 2, config.block_n - 2, DEPTHS[depth](config))
    conform(kernel, problem, config=config, target=target)


@scenario(
    where(family="microscaled", descriptors=False, batched=False),
    dtypes=E4M3,
    order=list(ORDERS),
    batch=[None, 3],
    rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "mxfp8.mxfp4.kk"]},
    configs=1,
    every_row=by_pointers,
)
def test_orders(conform, kernel, target, config, order, batch, formats):
    """Either order of each operand and of the scales, with gaps between rows, odd bases, and matrices of a batch."""
    layout_a, layout_b, layout_scale = ORDERS[order]
    fields = {"layout_a": layout_a, "layout_b": layout_b, "layout_out": Layout("col", pad=1)}
    fields |= {"layout_scale": layout_scale, "batch": batch}
    sizes = (config.block_m + 10, config.block_n + 6, config.block_k + 40)
    conform(kernel, problem_of(kernel, formats, *sizes, **fields), config=config, target=target)


@scenario(unspecialised, dtypes=E4M3, edge=list(EDGES), every_row=by_pointers)
def test_tile_edges(conform, harness, kernel, target, edge):
    """No extent can be one more or one less, and no number of the config can stand for another."""
    config, *sizes = EDGES[edge]
    problem = problem_of(kernel, "mxfp8.mxfp8.kk", *sizes)
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness))


def far_strides(kernel):
    """Returns the dimensions along which elements can be far apart. Kernels of one matrix take no batch."""
    return ["row", "col"] if kernel.descriptors else ["row", "col", "batch", "swizzled"]


@scenario(unspecialised, dtypes=E4M3, far=far_strides, configs=1, every_row=by_pointers)
def test_strides_past_2_31_elements(conform, harness, kernel, target, config, far):
    """Offsets need over 32 bits. They are those of the last rows or columns of every operand, of the last blocks of k,
    and of a batch's last matrix. The memory between is not used. Below the full tier one fill shows what was read and
    written."""
    M, N, K = config.block_m + 16, config.block_n + 16, 2 * config.block_k
    if far == "swizzled":  # the second tile of scales in each direction
        M, N, K = 136, 136, 160
        layouts = {"scale": Layout(pad=2**22)}
    elif far == "batch":
        layouts = dict.fromkeys(("a", "b", "out", "scale"), Layout(batch_pad=2**30))
    else:
        lines = {"a": (M, K), "b": (K, N), "out": (M, N), "scale": (min(M, N), K // 32)}
        layouts = {
            name: Layout(far, pad=2**31 // (extents[far == "col"] - 1) // 16 * 16 + 16)
            for name, extents in lines.items()
        }
    fields = {f"layout_{name}": layout for name, layout in layouts.items()}
    batch = 3 if far == "batch" else None
    problem = problem_of(kernel, "mxfp8.mxfp8.kk", M, N, K, batch=batch, swizzled=far == "swizzled", **fields)
    fills = None if harness.settings.whole_tier else SINGLE_PRODUCTS
    conform(kernel, problem, config=config, target=target, fills=fills)


@scenario(
    by_pointers,
    dtypes=E4M3,
    rotate={
        "formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "bf16.mxfp4.kk", "mxfp8.mxfp4.kk"],
        "swizzled": [False, False, True],
    },
    configs=1,
    every_row=every_kernel,
)
def test_least_scale(conform, kernel, target, config, formats, swizzled):
    """The scale byte 0 stands for 2**-127, not for zero."""
    problem = problem_of(kernel, formats, *matrix_sizes(config, "e4m3", "ragged"), swizzled=swizzled)
    conform(kernel, problem, config=config, target=target, fills=("least-scale",))


@scenario(
    where(family="microscaled", descriptors=True, batched=False),
    dtypes=E4M3,
    order=list(DESCRIBED),
    rotate={
        "formats": list(DESCRIBED_FORMATS),
        "variant": ["device", "host", "device.store", "host.flat", "host.store"],
        "out": ["fp32", "bf16"],
    },
    configs=2,
    every_row=lambda kernel: (
        kernel.name == "microscaled_mm_persistent_tma"
    ),  # each maker of descriptors meets each order
)
def test_descriptors(conform, kernel, target, config, order, formats, variant, out):
    """Either order of codes behind descriptors of either maker, stores of both kinds, nested and flattened loops."""
    layout_a, layout_b, layout_scale = DESCRIBED[order]
    fields = {"layout_a": layout_a, "layout_b": layout_b, "layout_scale": layout_scale, "out_dtype": out}
    sizes = (config.block_m + 64, 2 * config.block_n - 64, config.block_k + 128)
    maker, _, how = variant.partition(".")
    form = Variant(maker, tma_store=how == "store", flatten=how == "flat", sms=2)
    conform(kernel, problem_of(kernel, formats, *sizes, **fields), config=config, variant=form, target=target)


@scenario(
    where(family="microscaled", batched=False),
    dtypes=E4M3,
    scales=list(SWIZZLED),
    rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "nvfp4.nvfp4.kk", "bf16.mxfp4.kk"]},
    configs=2,
    every_row=lambda kernel: by_pointers(kernel) or in_described_scales(kernel),
)
def test_swizzled_scales(conform, harness, kernel, target, config, scales, formats):
    """Scales in tiles of 128 lines by 4 blocks, as tcgen05 reads them. Tiles are full, or have padding, which is NaN
    past the last line."""
    more_m, more_n, more_blocks, layout = SWIZZLED[scales]
    block = 16 if formats.startswith("nvfp4") else 32
    sizes = (128 + more_m, 128 + more_n, int((8 + more_blocks) * block))
    fields = {"swizzled": True, "layout_scale": layout}
    if not kernel.descriptors and scales == "one-block-over":
        fields["batch"] = 2
    problem = problem_of(kernel, formats, *sizes, **fields)
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness))


@scenario(
    in_described_scales,
    dtypes=E4M3,
    scales=list(SWIZZLED),
    made=["device", "host"],
    rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "nvfp4.nvfp4.kk", "bf16.mxfp4.kk", "mxfp8e5.bf16.kk"]},
    configs=1,
    every_row=every_kernel,
)
def test_described_scales(conform, kernel, target, config, scales, made, formats):
    """Tiles of scales by descriptors of either maker. The padding of the last tiles is loaded, where it is NaN past the
    last line, and zeros behind them."""
    more_m, more_n, more_blocks, layout = SWIZZLED[scales]
    block = 16 if formats.startswith("nvfp4") else 32
    sizes = (128 + more_m, 128 + more_n, int((8 + more_blocks) * block))
    problem = problem_of(kernel, formats, *sizes, layout_scale=layout)
    conform(kernel, problem, config=config, target=target, variant=Variant(made, sms=2))


@scenario(
    where(family="microscaled", descriptors=True, batched=False),
    dtypes=E4M3,
    rotate={"made": ["device", "host"]},
    configs=1,
)
def test_zeros_are_stored_by_descriptor(conform, kernel, target, config, made):
    """No k: no descriptor of an operand is made, and the result is zeros in every element of several tiles."""
    problem = kernel.problem(("mxfp8", "mxfp4"), config.block_m + 8, 2 * config.block_n + 4, 0)
    conform(kernel, problem, config=config, variant=Variant(made, tma_store=True, sms=2), target=target)


@scenario(
    in_batches,
    dtypes=E4M3,
    gaps=list(BATCHES),
    made=["device", "host"],
    rotate={
        "formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk", "mxfp8.mxfp4.kk", "nvfp4.nvfp4.kk", "mxfp8e5.bf16.kk"],
        "how": ["pointers", "store", "flat"],
        "swizzled": [False, True],
    },
    configs=2,
)
def test_batches(conform, kernel, target, config, gaps, made, formats, how, swizzled):
    """Three matrices, one behind the other or with gaps, which hold what no product may have. Rows, columns and k end
    within blocks, and k within a block of scales."""
    # together with eight-bit codes tcgen05 takes rows of whole 128 codes
    columns, depth = (64, 128) if formats == "mxfp8.mxfp4.kk" else (32, 40)
    sizes = (config.block_m + 32, 2 * config.block_n - columns, config.block_k + depth)
    layouts, apart = BATCHES[gaps]
    names = ("layout_a", "layout_b", "layout_scale", "layout_out")
    fields = {name: layout for name, layout in zip(names, layouts, strict=True) if layout is not None}
    swizzled = swizzled or kernel.described_scales
    problem = problem_of(kernel, formats, *sizes, batch=3, swizzled=swizzled, **fields)
    pads = zip(names, apart, strict=True)
    problem = replace(problem, **{name: replace(getattr(problem, name), batch_pad=pad) for name, pad in pads})
    form = Variant(made, tma_store=how == "store", flatten=how == "flat", sms=3)
    conform(kernel, problem, config=config, variant=form, target=target)


@scenario(
    in_batches,
    dtypes=E4M3,
    # the quick tier has the ones in which a descriptor of either maker stores
    least={"quick": ["no-k"], **dict.fromkeys(("default", *CROSSED), tuple(LEAST_BATCHES))},
    rotate={"made": ["device", "host"]},
    configs=1,
    every_row=in_batches,
)
def test_least_batches(conform, recorder, kernel, target, config, least, made):
    """A batch of no matrix launches nothing, and so does one without columns. That of one matrix may have any stride
    from one to the next. Products of no k are zeros, also where a descriptor stores them."""
    sizes = {"M": config.block_m + 8, "N": 2 * config.block_n + 4, "K": config.block_k + 32, "batch": 2}
    problem = kernel.problem(("mxfp8", "mxfp8"), **(sizes | LEAST_BATCHES[least]))
    if least == "one-matrix":
        problem = replace(problem, layout_a=replace(problem.layout_a, batch_pad=5))
    form = Variant(made, tma_store=least == "no-k", sms=2)
    run = conform(kernel, problem, config=config, variant=form, target=target)
    empty = least in ("no-matrix", "no-column")
    recorder.verdict("launch", (0 in run.plan.grid) == empty, f"grid {run.plan.grid}")


@scenario(where(family="microscaled", batched=True, descriptors=True, described_scales=False), dtypes=E4M3, configs=1)
def test_far_batches(conform, harness, kernel, target, config):
    """The last matrix of each operand and of the result, and its scales, begin past 2**31 elements. The memory between
    is not used. Below the full tier one fill shows what was read and written."""
    far = Layout(batch_pad=2**30)
    layouts = {"layout_a": far, "layout_b": replace(far, order="col"), "layout_scale": far, "layout_out": far}
    sizes = (config.block_m + 16, config.block_n + 16, 2 * config.block_k)
    problem = problem_of(kernel, "mxfp8.mxfp8.kk", *sizes, batch=3, **layouts)
    fills = None if harness.settings.whole_tier else SINGLE_PRODUCTS
    conform(kernel, problem, config=config, target=target, fills=fills)


def of_batches(kernel, pair, order, config, batch, **fields):
    """A problem whose matrices lie apart in memory, in one of :data:`ORDERS`; rows, columns and k end within blocks,
    and k within a block of scales."""
    layouts = zip(("layout_a", "layout_b", "layout_scale"), ORDERS[order], (7, 16, 3), strict=True)
    fields |= {name: replace(layout, batch_pad=gap) for name, layout, gap in layouts}
    fields |= {"batch": batch, "layout_out": Layout("col", pad=1, batch_pad=5)}
    sizes = (config.block_m + 10, config.block_n + 6, config.block_k + 40)
    return problem_of(kernel, pair, *sizes, **fields)


@scenario(
    in_tiles,
    pair=TILE_FORMATS,
    batch=[4, 3],
    rotate={"order": list(ORDERS), "out": ["fp32", "bf16"]},
    configs=2,
)
def test_batch_tiles(conform, kernel, target, config, pair, batch, order, out):
    """The last tile has all of its matrices, or some. Memory next to them must not be read or written."""
    problem = of_batches(kernel, pair, order, config, batch, out_dtype=out)
    conform(kernel, problem, config=config, target=target)


@scenario(
    in_tiles,
    dtypes=E4M3,
    pair=E4M3_TILE_FORMATS,
    batch=[4, 3],
    rotate={"order": list(ORDERS), "out": ["fp32", "bf16"]},
    configs=2,
)
def test_batch_tiles_with_e4m3(conform, kernel, target, config, pair, batch, order, out):
    """The same of formats that not every target has."""
    problem = of_batches(kernel, pair, order, config, batch, out_dtype=out)
    conform(kernel, problem, config=config, target=target)


@scenario(in_tiles, dtypes=E4M3, least=list(LEAST_BATCHES), configs=1)
def test_least_batch_tiles(conform, recorder, kernel, target, config, least):
    """A batch of no matrix launches nothing, and so does one without columns. One of a single matrix has one tile, and
    products of no k are zeros."""
    sizes = {"M": config.block_m + 8, "N": 2 * config.block_n + 4, "K": config.block_k + 32, "batch": 2}
    problem = kernel.problem(("mxfp8", "mxfp4"), **(sizes | LEAST_BATCHES[least]))
    run = conform(kernel, problem, config=config, target=target)
    empty = least in ("no-matrix", "no-column")
    recorder.verdict("launch", (0 in run.plan.grid) == empty, f"grid {run.plan.grid}")


@scenario(in_tiles, dtypes=E4M3, depth=TILE_DEPTHS, rotate={"formats": ["mxfp8.mxfp8.kk", "mxfp4.mxfp4.kk"]}, configs=1)
def test_depths_of_batch_tiles(conform, kernel, target, config, depth, formats):
    """K ends with a block of scales, within one, and right behind one."""
    problem = problem_of(kernel, formats, config.block_m + 2, config.block_n - 2, DEPTHS[depth](config))
    conform(kernel, problem, config=config, target=target)


@scenario(in_tiles, dtypes=E4M3, far=["row", "col", "batch"], configs=1)
def test_far_batch_tiles(conform, harness, kernel, target, config, far):
    """Offsets need over 32 bits: of the last rows or columns of every operand, or of the last matrix. The memory
    between is not used. Below the full tier one fill shows what was read and written."""
    M, N, K = config.block_m + 16, config.block_n + 16, 2 * config.block_k
    lines = {"a": (M, K), "b": (K, N), "out": (M, N), "scale": (min(M, N), K // 32)}
    if far == "batch":
        layouts = dict.fromkeys(lines, Layout(batch_pad=2**30))
    else:
        layouts = {
            name: Layout(far, pad=2**31 // (extents[far == "col"] - 1) // 16 * 16 + 16)
            for name, extents in lines.items()
        }
    fields = {f"layout_{name}": layout for name, layout in layouts.items()}
    problem = problem_of(kernel, "mxfp8.mxfp8.kk", M, N, K, batch=3 if far == "batch" else 1, **fields)
    fills = None if harness.settings.whole_tier else SINGLE_PRODUCTS
    conform(kernel, problem, config=config, target=target, fills=fills)


@scenario(in_tiles, dtypes=E4M3)
def test_batch_tile_edges(conform, harness, kernel, target):
    """No extent can be one more or one less, and no number of the config can stand for another."""
    config = BatchConfig(32, 64, 128, 2, 4, group_m=2, matrices=2)
    problem = problem_of(kernel, "mxfp8.mxfp8.kk", 65, 257, 385, batch=5)
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness))
