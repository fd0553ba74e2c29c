"""Operands that are views: padded rows, inner strides, shifted bases, strides past 2**31 elements."""

from conformance.cases.scenarios import every_kernel, has_own_code, named, quick_fills, ragged, scenario, where
from conformance.families.examples import stored_dtype
from conformance.families.gemm.problem import Bias, Fusion
from conformance.problems import Layout, itemsize


def _step(dtype):
    return 16 // itemsize(stored_dtype(dtype))


POINTER_VIEWS = {
    # rows that do not follow one another, each operand with a pad of its own
    "padded": {"layout_a": Layout(pad=7), "layout_b": Layout(pad=3), "layout_out": Layout(pad=5)},
    # the same along columns
    "padded-transposed": {
        "layout_a": Layout("col", pad=7),
        "layout_b": Layout("col", pad=3),
        "layout_out": Layout("col", pad=5),
    },
    # no dimension has stride 1, and the gaps between elements are watched
    "every-other": {"layout_a": Layout(step=2), "layout_b": Layout("col", step=3), "layout_out": Layout(step=2, pad=1)},
    # bases that are not aligned to 16 bytes: no wide loads
    "shifted": {"layout_a": Layout(offset=1), "layout_b": Layout(offset=3), "layout_out": Layout(offset=5)},
}


@scenario(
    where(descriptors=False, any_order=True),
    view=list(POINTER_VIEWS),
    rotate={"static": [False, True]},
    configs=4,
    quick=named("baddbmm", "mm_fp64", "mm_chained", "mm_with_sums"),
)
def test_pointer_views(conform, harness, kernel, target, dtype, config, view, static):
    """Any strides: padded, transposed, with gaps between elements, not aligned."""
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=False), **POINTER_VIEWS[view])
    fills = quick_fills(harness.settings.tier)
    conform(kernel, problem, config=config, target=target, static=static, fills=fills)


#: In which order A and B lie in memory; a descriptor's pitch is that of rows or of columns.
DESCRIPTOR_ORDERS = {"row-row": ("row", "row"), "col-col": ("col", "col"), "row-col": ("row", "col")}


@scenario(
    where(descriptors=True),
    view=list(DESCRIPTOR_ORDERS),
    rotate={"padded": ["all", "a", "b", "out"], "tma_store": [False, True], "descriptors": ["device", "host"]},
    configs=2,
    quick=named("mm_blackwell_ws"),
)
def test_padded_pitches(conform, harness, kernel, target, dtype, config, view, padded, tma_store, descriptors):
    """The pitch is the leading stride, not the extent: each operand padded alone and all together, in each order."""
    order_a, order_b = kernel.orders or DESCRIPTOR_ORDERS[view]
    pads = {name: _step(dtype) * more if padded in (name, "all") else 0 for name, more in (("a", 1), ("b", 3))}
    out = 2 * _step(dtype) if padded in ("out", "all") else 0
    fields = {
        "layout_a": Layout(order_a, pad=pads["a"]),
        "layout_b": Layout(order_b, pad=pads["b"]),
        "layout_out": Layout(pad=out),
    }
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True), **fields)
    variant = {"sms": 3, "tma_store": tma_store, "descriptors": descriptors}
    fills = quick_fills(harness.settings.tier)
    conform(kernel, problem, config=config, target=target, fills=fills, **variant)


#: Each shape that broadcasts to M x N, and the strides that a kernel could mistake for those of the plain one.
BIASES = {
    "vector": Bias("n"),
    "strided-vector": Bias("n", layout=Layout(step=2)),
    "row-matrix": Bias("1n"),
    "column": Bias("m1"),
    "matrix": Bias("mn"),
    "padded-matrix": Bias("mn", layout=Layout(pad=5)),
    "transposed-matrix": Bias("mn", layout=Layout("col", pad=2)),
}


@scenario(where(operation="addmm"), bias=list(BIASES), configs=1, every_row=where(weight=2))
def test_bias_views(conform, harness, kernel, target, dtype, config, bias):
    """A bias of every shape that broadcasts to M x N, read with its own strides."""
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True), bias=BIASES[bias])
    variant = {"sms": 3 if kernel.persistent else None}
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), **variant)


def _far(order, rows, columns):
    """A layout whose last line begins past 2**31 elements: the last row of "row", the last column of "col"."""
    lines = rows if order == "row" else columns
    return Layout(order, pad=-(-(2**31) // (lines - 1) // 16) * 16)


@scenario(
    has_own_code,
    far=["row", "col"],
    dtypes=("bf16", "fp16", "e4m3", "int8", "fp16xint8"),
    configs=1,
    every_row=every_kernel,
)
def test_strides_past_2_31_elements(conform, harness, kernel, target, dtype, config, far):
    """Offsets need over 32 bits. In row order they are those of the last rows of every operand. In column order they
    are those of the last columns and of the second k-block. The memory between is not used, so that it costs nothing in
    the interpreter. Of a batch in column order the matrices are apart instead. Descriptors are made by the device in
    row order and by the host in the other. Below the full tier one fill shows what was read and written."""
    M, N, _ = ragged(kernel, config, dtype, aligned=True)
    N, deep = max(N, 72), config.block_k + _step(dtype)  # a copy of B has tiles of 64
    batched = kernel.operations & {"bmm", "baddbmm"}
    biased = kernel.operations & {"addmm", "baddbmm", "fused_mm"}
    order_a, order_b = kernel.orders or (far, far)
    if batched and far == "col":
        apart = Layout(far, batch_pad=2**30)
        fields = {"layout_a": apart, "layout_b": apart, "layout_out": apart, "batch": 3}
        fields |= {"bias": Bias("bmn", layout=apart)} if biased else {}
    else:
        # half of K: a block of k, and a part of K, begin past 2**31 elements, too
        fields = {
            "layout_a": _far(order_a, M, deep // 2),
            "layout_b": _far(order_b, deep // 2, N),
            "layout_out": _far(far, M, N),
            **({"batch": 1} if batched else {}),  # the memory of one matrix is enough
        }
        fields |= {"bias": Bias("mn", layout=_far(far, M, N))} if biased else {}
    if kernel.operations & {"fused_mm"}:
        fields["fusion"] = Fusion("gather", None, ("bias", "residual"))
    splits = 2 if kernel.family == "split-k" else None
    problem = kernel.problem(dtype, M, N, deep * (splits or 1), **fields)
    descriptors = "host" if kernel.descriptors and far == "col" else "device"
    variant = {"sms": 3 if kernel.persistent else None, "splits": splits, "descriptors": descriptors}
    fills = None if harness.settings.whole_tier else ("transparent",)
    conform(kernel, problem, config=config, target=target, fills=fills, **variant)
