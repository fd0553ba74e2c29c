"""Functions of rows: sizes around a block, layouts of all kinds, sizes as constants, far offsets."""

from typing import Any

from conformance.cases.scenarios import named, scenario, where
from conformance.cases.tier_rows import CROSSED
from conformance.problems import Layout

#: Columns from one to more blocks than the pipeline has stages, as functions of a block and the stages.
COLUMNS = {
    "one": lambda block, stages: 1,
    "one-less-than-a-block": lambda block, stages: max(block - 1, 1),
    "one-block": lambda block, stages: block,
    "one-more-than-a-block": lambda block, stages: block + 1,
    "many-blocks": lambda block, stages: (stages + 2) * block + 3,
}
#: Rows, likewise, as functions of a block.
ROWS = {
    "one": lambda block: 1,
    "one-more-than-a-block": lambda block: block + 1,
    "several-blocks": lambda block: 3 * block,
}

#: Layouts of the operands and of the outputs that are all unlike, so that no stride can stand for another.
LAYOUTS: dict[str, dict[str, Layout]] = {
    "padded": {"layout_x": Layout(pad=3), "layout_out": Layout(pad=8)},
    "columns-first": {"layout_x": Layout("col"), "layout_out": Layout("col", pad=1)},
    "unlike": {"layout_x": Layout("col", pad=5), "layout_out": Layout("row")},
    "strided": {"layout_x": Layout(step=2), "layout_out": Layout(step=3, pad=1)},
    "unaligned": {"layout_x": Layout(offset=1), "layout_out": Layout(offset=3)},
}


@scenario(
    where(family="rows"),
    columns=list(COLUMNS),
    rotate={"rows": list(ROWS), "static": [False, True]},
    configs=2,
    quick=named(
        "softmax",
        "layer_norm",
        "add_rms_norm",
        "swiglu",
        "cross_entropy",
        "row_max",
        "layer_norm_backward",
        "quantize_e4m3",
        "quantize_mxfp4",
        "sort",
    ),
)
def test_sizes(conform, kernel, target, dtype, config, columns, rows, static):
    """The last block of columns is ragged or whole, and so is the last block of rows."""
    sizes = ROWS[rows](config.block_m), COLUMNS[columns](config.block_n, config.num_stages)
    conform(kernel, kernel.problem(dtype, *sizes), config=config, target=target, static=static)


@scenario(
    where(family="rows"),
    empty=["rows", "columns"],
    configs=1,
    quick=named("log_softmax", "rms_norm_backward", "quantize_int8", "scatter_add"),
)
def test_nothing(conform, kernel, target, dtype, config, empty):
    """Without a row nothing is launched; without a column each program runs, and stores what nothing gives."""
    sizes = (0, 5) if empty == "rows" else (5, 0)
    conform(kernel, kernel.problem(dtype, *sizes), config=config, target=target)


@scenario(
    where(family="rows"),
    layouts=list(LAYOUTS),
    configs=1,
    quick=named(
        "log_softmax",
        "rms_norm",
        "geglu",
        "rotary",
        "cross_entropy_smoothed_backward",
        "dequantize_codebook",
        "dropout",
        "top_k",
    ),
)
def test_layouts(conform, kernel, target, dtype, config, layouts):
    """Rows and columns with any strides, of the operands and of the outputs."""
    problem = kernel.problem(dtype, 2 * config.block_m + 1, config.block_n + 9, **LAYOUTS[layouts])
    conform(kernel, problem, config=config, target=target)


#: Matrices whose last row or column lies 2**31 elements or more after the first.
FAR: dict[str, tuple[str, str]] = {
    "rows-of-x": ("layout_x", "row"),
    "columns-of-x": ("layout_x", "col"),
    "rows-of-out": ("layout_out", "row"),
    "columns-of-out": ("layout_out", "col"),
}


def far_matrices(kernel: Any) -> list[str]:
    """Returns the matrices of ``kernel`` that have a layout: not a result with a number per row."""
    matrices = [
        field
        for part, field in ((kernel.function.operands[0], "layout_x"), (kernel.function.outputs[0], "layout_out"))
        if len(part.axes) == 2
    ]
    return [name for name, (field, _) in FAR.items() if field in matrices]


@scenario(
    where(family="rows"),
    far=far_matrices,
    dtypes=("bf16",),
    configs=1,
    quick=named("l2_norm", "gelu", "rotary_neighbours", "cross_entropy_smoothed", "quantize_int8_static", "gather"),
)
def test_strides_past_2_31_elements(conform, harness, kernel, target, dtype, config, far):
    """The last row or column lies that far behind the first. Below the full tier one fill shows what was read and
    written."""
    rows, columns = config.block_m + 1, config.block_n + 1
    layout, order = FAR[far]
    pad = 2**31 // ((rows if order == "row" else columns) - 1) + 16
    fields: dict[str, Any] = {layout: Layout(order, pad=pad)}
    fills = None if harness.settings.tier in CROSSED else ("exact-rows",)
    conform(kernel, kernel.problem(dtype, rows, columns, **fields), config=config, target=target, fills=fills)
