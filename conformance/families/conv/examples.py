"""Examples, timed problems and random problems of convolutions."""

from __future__ import annotations

from typing import Any

import triton

from conformance.families.conv.problem import Conv
from conformance.families.draw import Draw
from conformance.families.examples import EVEN, TIMED_IMAGE, WHOLE_TILES, dtype_fields, matrix_sizes


def one_order(order: str) -> dict[str, Any]:
    """Returns the fields that give x, w and out one order of dimensions."""
    return orders(order, order, order)


def orders(x: str, w: str, out: str) -> dict[str, Any]:
    """Returns the fields that give x, w and out each an order of dimensions."""
    return {"order_x": x, "order_w": w, "order_out": out}


def example(kernel: Any, dtype: str, config: Any, shape: str) -> Conv:
    """Returns a convolution whose positions stand for rows of a product, output channels for columns, channels for k.

    Windows are 1x1 where K is to be long.
    """
    positions, columns, channels = matrix_sizes(config, dtype, shape)
    window = 1 if kernel.pointwise or shape in ("many-k-blocks", WHOLE_TILES, EVEN) else 2
    width = min(positions, 8)
    size = (*(1,) * (kernel.rank - 2), triton.cdiv(positions, width), width)
    padding = tuple(int(window > 1 and edge > 1) for edge in size)
    windows = tuple(min(window, edge + 2 * pad) for edge, pad in zip(size, padding, strict=True))
    order = "contiguous" if shape == "several-tiles" and not kernel.pointwise else "channels-last"
    strides = (1,) * kernel.rank
    return Conv(
        f"conv{kernel.rank}d", 1, channels, size, columns, windows, strides, padding, 1,
        **dtype_fields(dtype), **one_order(order),
    )  # fmt: skip


def timed(kernel: Any, dtype: str) -> Conv:
    """Returns a convolution of 8 images of 256 channels."""
    channels, window = 256, 1 if kernel.pointwise else 3
    size = (TIMED_IMAGE // (2 if kernel.rank == 3 else 1),) * kernel.rank
    ones = (1,) * kernel.rank
    windows, padding = (window,) * kernel.rank, (window // 2,) * kernel.rank
    return Conv(
        f"conv{kernel.rank}d", 8, channels, size, channels, windows, ones, padding, 1,
        **dtype_fields(dtype), **one_order("channels-last"),
    )  # fmt: skip


def draw_problem(kernel: Any, draw: Draw) -> Conv:
    """Returns a convolution of any window, strides, padding, groups and orders that the kernel may take."""
    pick, single = draw.pick, kernel.pointwise
    rank = 3 if "conv3d" in kernel.operations and (kernel.rank == 3 or draw.chance(0.5)) else 2
    groups = 1 if single else pick((1, 1, 2, 3))
    window = tuple(1 if single else pick((1, 2, 3)) for _ in range(rank))
    dilation = tuple(1 if single else pick((1, 1, 2, 3)) for _ in range(rank))
    size = tuple((edge - 1) * apart + 1 + pick((0, 1, 3, 6)) for edge, apart in zip(window, dilation, strict=True))
    order = "channels-last" if single else None
    dtype = pick(kernel.dtypes)
    fields: dict[str, Any] = {"precision": pick(("ieee", "tf32"))} if dtype == "fp32" else {}
    return Conv(
        f"conv{rank}d",
        pick((0, 1, 2, 3)) if not single else pick((1, 2)),
        groups * pick((1, 3, 8, 20)),
        size,
        groups * pick((1, 5, 16, 40)),
        window,
        tuple(1 if single else pick((1, 2)) for _ in range(rank)),
        tuple(0 if single else pick((0, 1)) for _ in range(rank)),
        groups,
        dtype,
        bias=draw.chance(0.5),
        order_x=order or pick(("contiguous", "channels-last")),
        order_w=order or pick(("contiguous", "channels-last")),
        order_out=order or pick(("contiguous", "channels-last")),
        dilation=dilation,
        **fields,
    )
