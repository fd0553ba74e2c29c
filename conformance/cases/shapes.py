"""A problem of each shape class for any kernel and config, made from the config's own block sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance import problems
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.contiguous_mm import ContiguousGemm
from conformance.kernels.kernel import Kernel, Variant
from conformance.problems import BLOCK_SCALINGS, FP8, Attention, Conv, Gemm, GroupedGemm, Layout, Mask, Problem
from conformance.problems.gemm import OPERATIONS
from conformance.records import Reason
from conformance.targets import Target

#: "several-tiles" has more tiles than the two programs that a sweep gives a persistent kernel, "many-k-blocks" more
#: k-blocks than the pipeline has stages. N and K are multiples of 16, without which the compiler neither loads 16 bytes
#: at a time nor pipelines; in "several-tiles" they are not. One compilation serves each of the two kinds.
SHAPES = ("smaller-than-a-tile", "ragged", "several-tiles", "many-k-blocks")

#: The dtypes of a scenario: a problem's dtype, with "tf32" for fp32 operands in tf32 precision.
DTYPE_NAMES = {"fp32": ("fp32", "tf32")}

#: What makes M ragged: it is nobody's inner extent, and 16 would be a whole tile of some tables.
ROWS_REST = 8

#: Parts into which a split-K kernel's K is cut in an example.
SPLITS = 2

#: Size of the matrices whose product is timed on a device, and of the image and the sequence.
TIMED_EDGE, TIMED_IMAGE, TIMED_SEQUENCE = 2048, 32, 2048


def stored_dtype(dtype: str) -> str:
    """dtype of A for a scenario's name of a dtype: "tf32" is fp32 operands in tf32 precision, "fp16xint8" fp16 times
    int8."""
    return "fp32" if dtype == "tf32" else dtype.split("x")[0]


def dtype_names(kernel: Kernel) -> list[str]:
    """The dtypes that ``kernel`` takes, by the names of :data:`DTYPE_NAMES`."""
    return [name for dtype in kernel.dtypes for name in DTYPE_NAMES.get(dtype, (dtype,))]


def rest(dtype: str, shape: str = "ragged") -> int:
    """What makes N and K of a shape class ragged; 16 bytes in every dtype."""
    wide = stored_dtype(dtype) in (*FP8, "int8")
    return 8 if shape == "several-tiles" and not wide else 16


def gemm(kernel: Kernel, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
    """A problem of the first operation of a kernel of the GEMM family."""
    dtype, fields = _named(dtype, fields)
    if kernel.block_scaled:
        fields.setdefault("scaling", BLOCK_SCALINGS[1])
    if isinstance(kernel, ContiguousGemm):
        fields.setdefault("layout_b", Layout("col"))  # a B that is contiguous already is not for it
    operation = next(name for name in OPERATIONS if name in kernel.operations)
    problem: Gemm = getattr(problems, operation)(M, N, K, dtype, **fields)
    return problem


def _named(dtype: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The problem's dtype and the fields that a scenario's name of a dtype stands for."""
    if dtype == "tf32":
        return "fp32", {**fields, "precision": "tf32"}
    first, _, second = dtype.partition("x")
    return first, {**fields, "b_dtype": second} if second else fields


def _sizes(config: Config, dtype: str, shape: str) -> tuple[int, int, int]:
    m, n, k, more = config.block_m, config.block_n, config.block_k, rest(dtype, shape)
    if shape == "smaller-than-a-tile":
        return max(m // 32 * 16 - 16, 0) + ROWS_REST, max(n // 32 * 16 - 16 + more, more), max(k - more, more)
    if shape == "ragged":
        return m + ROWS_REST, n + more, 2 * k + more
    if shape == "several-tiles":
        return 2 * m + ROWS_REST, 2 * n + more, k + more
    return m + ROWS_REST, max(n - more, more), (config.num_stages + 1) * k + more


def _gemm(kernel: Kernel, dtype: str, config: Any, shape: str) -> Problem:
    m, n, k = _sizes(config, dtype, shape)
    if "mm_plus_mm" in kernel.operations:
        k = max(k, config.block_k + rest(dtype, shape))  # it takes no K below a block
    return gemm(kernel, dtype, m, n, k)


def _split_k(kernel: Kernel, dtype: str, config: Any, shape: str) -> Problem:
    m, n, k = _sizes(config, dtype, shape)
    return gemm(kernel, dtype, m, n, SPLITS * k)


def _conv(kernel: Kernel, dtype: str, config: Any, shape: str) -> Problem:
    """Positions stand for rows, output channels for columns, channels for k; 1x1 windows where K is to be long."""
    positions, columns, channels = _sizes(config, dtype, shape)
    spatial = 3 if "conv3d" in kernel.operations and "conv2d" not in kernel.operations else 2
    single = kernel.name.startswith("conv1x1")
    window = 1 if single or shape == "many-k-blocks" else 2
    width = min(positions, 8)
    size = (*(1,) * (spatial - 2), -(-positions // width), width)
    padding = tuple(int(window > 1 and edge > 1) for edge in size)
    windows = tuple(min(window, edge + 2 * pad) for edge, pad in zip(size, padding, strict=True))
    order = "contiguous" if shape == "several-tiles" and not single else "channels-last"
    dtype, fields = _named(dtype, {})
    fields |= {"order_x": order, "order_w": order, "order_out": order}
    strides = (1,) * spatial
    return Conv(f"conv{spatial}d", 1, channels, size, columns, windows, strides, padding, 1, dtype, **fields)


def _attention(kernel: Kernel, dtype: str, config: Any, shape: str) -> Problem:
    decoding = "decode" in kernel.name
    rows, columns = (16 if decoding else max(config.tile)), max(config.tile)
    queries, keys = {
        "smaller-than-a-tile": (rows // 2 - 3, columns // 2 - 3),
        "ragged": (rows + 8, columns + 8),
        "several-tiles": (2 * rows + 8, 2 * columns + 8),
        "many-k-blocks": (rows - 8, (config.num_stages + 1) * columns + 8),
    }[shape]
    if decoding:
        queries = min(queries, 8)
    (operation,) = kernel.operations
    dtype, fields = _named(dtype, {})
    mask = Mask("causal") if shape in ("ragged", "many-k-blocks") else Mask()
    return Attention(operation, 1, 2, queries, keys, 64, dtype, kv_heads=1, mask=mask, **fields)


def _grouped(kernel: Kernel, dtype: str, config: Any, shape: str) -> Problem:
    m, n, k = _sizes(config, dtype, shape)
    dtype, fields = _named(dtype, {})
    return GroupedGemm("2d-3d", (m, 0, 24), None, n, k, dtype, **fields)


_FAMILIES: dict[str, Callable[[Kernel, str, Any, str], Problem]] = {
    "gemm": _gemm,
    "split-k": _split_k,
    "conv": _conv,
    "attention": _attention,
    "grouped": _grouped,
}


def example(kernel: Kernel, dtype: str, config: AnyConfig, shape: str = "ragged") -> Problem:
    """The problem of ``shape`` (one of :data:`SHAPES`) for ``config``. KeyError for a family that has none."""
    return _FAMILIES[kernel.family](kernel, dtype, config, shape)


def example_variant(kernel: Kernel) -> dict[str, Any]:
    """Fields of the variant in which a kernel takes its examples."""
    if kernel.family == "split-k" or "decode" in kernel.name:
        return {"splits": SPLITS}
    return {"sms": 2} if kernel.persistent else {}


def refusal(kernel: Kernel, dtype: str, config: AnyConfig, target: Target) -> Reason | None:
    """Why the kernel does not take its ragged example of this dtype and config on this target; None if it does."""
    variant = Variant(**example_variant(kernel))
    return kernel.refusal(kernel.draft(example(kernel, dtype, config), config, target, variant))


def usable_on(kernel: Kernel, target: Target) -> bool:
    """Whether ``kernel`` takes an example of some dtype with some config on ``target``."""
    return any(
        refusal(kernel, name, config, target) is None for name in dtype_names(kernel) for config in kernel.configs
    )


def timed(kernel: Kernel, dtype: str) -> Problem:
    """The problem that is timed with every config of a kernel: one for all, so that they can be compared."""
    edge = TIMED_EDGE + rest(dtype)
    plain, fields = _named(dtype, {})
    if kernel.family == "conv":
        channels, window = 256, 1 if kernel.name.startswith("conv1x1") else 3
        spatial = 3 if "conv3d" in kernel.operations and "conv2d" not in kernel.operations else 2
        size = (TIMED_IMAGE // (2 if spatial == 3 else 1),) * spatial
        fields |= dict.fromkeys(("order_x", "order_w", "order_out"), "channels-last")
        ones, pads = (1,) * spatial, (window // 2,) * spatial
        operation, windows = f"conv{spatial}d", (window,) * spatial
        return Conv(operation, 8, channels, size, channels, windows, ones, pads, 1, plain, **fields)
    if kernel.family == "attention":
        (operation,) = kernel.operations
        queries = 1 if "decode" in kernel.name else TIMED_SEQUENCE
        return Attention(operation, 4, 16, queries, TIMED_SEQUENCE, 64, plain, mask=Mask("causal"), **fields)
    if kernel.family == "grouped":
        return GroupedGemm("2d-3d", (edge // 4,) * 4, None, edge, edge, plain, **fields)
    if kernel.family == "split-k":
        return gemm(kernel, dtype, 64 + rest(dtype), 64 + rest(dtype), 16 * TIMED_EDGE)
    if kernel.operations & {"bmm", "baddbmm"}:
        return gemm(kernel, dtype, *(edge // 4 // 8 * 8,) * 3, batch=16)
    return gemm(kernel, dtype, edge, edge, edge)
