"""The family of convolutions: what its problems, examples and random problems are, whatever the kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

import triton

from conformance.families.conv.problem import Conv, TransposedConv, conv_transpose2d, input_gradient
from conformance.heuristics.configs import Config
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import EVEN, FLOATS, TIMED_IMAGE, WHOLE_TILES, dtype_fields, matrix_sizes
from conformance.kernels.kernel import Kernel


class ConvFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.conv.problem.Conv`. A third-party kernel needs only
    this base."""

    weight = 1
    family = "conv"
    more_shapes = (WHOLE_TILES,)
    dtypes = FLOATS
    #: whether it takes windows of one tap only
    pointwise: bool = False
    #: whether it computes transposed convolutions
    transposed: bool = False
    #: whether it takes groups of one channel only
    depthwise: bool = False
    #: whether its programs are split by the remainders of output positions by the stride
    phases: bool = False

    @property
    def rank(self) -> int:
        """Dimensions of the images of its examples: 3 only if it takes no others."""
        return 3 if self.operations == {"conv3d"} else 2

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Conv:
        """See :class:`Kernel`. Positions stand for rows of a product, output channels for columns, channels for k.

        Windows are 1x1 where K is to be long.
        """
        positions, columns, channels = matrix_sizes(config, dtype, shape)
        window = 1 if self.pointwise or shape in ("many-k-blocks", WHOLE_TILES, EVEN) else 2
        width = min(positions, 8)
        size = (*(1,) * (self.rank - 2), triton.cdiv(positions, width), width)
        padding = tuple(int(window > 1 and edge > 1) for edge in size)
        windows = tuple(min(window, edge + 2 * pad) for edge, pad in zip(size, padding, strict=True))
        order = "contiguous" if shape == "several-tiles" and not self.pointwise else "channels-last"
        strides = (1,) * self.rank
        return Conv(
            f"conv{self.rank}d", 1, channels, size, columns, windows, strides, padding, 1,
            **dtype_fields(dtype), **one_order(order),
        )  # fmt: skip

    def timed(self, dtype: str) -> Conv:
        """See :class:`Kernel`: 8 images of 256 channels."""
        channels, window = 256, 1 if self.pointwise else 3
        size = (TIMED_IMAGE // (2 if self.rank == 3 else 1),) * self.rank
        ones = (1,) * self.rank
        windows, padding = (window,) * self.rank, (window // 2,) * self.rank
        return Conv(
            f"conv{self.rank}d", 8, channels, size, channels, windows, ones, padding, 1,
            **dtype_fields(dtype), **one_order("channels-last"),
        )  # fmt: skip

    def draw_problem(self, draw: Draw) -> Conv:
        """See :class:`Kernel`: any window, strides, padding, groups and orders that the kernel may take."""
        pick, single = draw.pick, self.pointwise
        rank = 3 if "conv3d" in self.operations and (self.rank == 3 or draw.chance(0.5)) else 2
        groups = 1 if single else pick((1, 1, 2, 3))
        window = tuple(1 if single else pick((1, 2, 3)) for _ in range(rank))
        dilation = tuple(1 if single else pick((1, 1, 2, 3)) for _ in range(rank))
        size = tuple((edge - 1) * apart + 1 + pick((0, 1, 3, 6)) for edge, apart in zip(window, dilation, strict=True))
        order = "channels-last" if single else None
        dtype = pick(self.dtypes)
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


class TransposedFamily(ConvFamily):
    """A kernel that computes transposed convolutions over two dimensions."""

    transposed = True
    #: whether a program has output positions that agree modulo the strides
    phases: bool = False

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> TransposedConv:
        """See :class:`Kernel`. Output positions stand for rows of a product, output channels for columns, channels for
        k. The strides are 2 x 1, and the windows 1x1 where K is to be long."""
        positions, columns, channels = matrix_sizes(config, dtype, shape)
        edge, width = 1 if shape in ("many-k-blocks", WHOLE_TILES, EVEN) else 2, min(positions, 8)
        out_size, stride = (triton.cdiv(positions, width), width), (2, 1)
        window = tuple(min(edge, size) for size in out_size)
        left = [size - taps for size, taps in zip(out_size, window, strict=True)]
        size = tuple(rest // step + 1 for rest, step in zip(left, stride, strict=True))
        output_padding = tuple(rest % step for rest, step in zip(left, stride, strict=True))
        return conv_transpose2d(
            1, channels, size, columns, window, stride=stride, output_padding=output_padding,
            **dtype_fields(dtype), **one_order("contiguous" if shape == "several-tiles" else "channels-last"),
        )  # fmt: skip

    def timed(self, dtype: str) -> TransposedConv:
        """See :class:`Kernel`: 8 images of 256 channels, twice as large as they were."""
        fields = {**dtype_fields(dtype), **one_order("channels-last")}
        return conv_transpose2d(8, 256, TIMED_IMAGE // 2, 256, 3, stride=2, padding=1, output_padding=1, **fields)

    def draw_problem(self, draw: Draw) -> TransposedConv:
        """See :class:`Kernel`: the gradient of a convolution that other kernels take, with a bias and any orders."""
        forward = super().draw_problem(draw)
        orders = {name: getattr(forward, name) for name in ("order_x", "order_w", "order_out")}
        return input_gradient(forward, bias=forward.bias, **orders)


class DepthwiseFamily(ConvFamily):
    """A kernel that takes groups of one channel only."""

    depthwise = True

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: there is no matrix unit, and so no tf32."""
        return list(self.dtypes)

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Conv:
        """See :class:`Kernel`. Positions stand for rows of a product, output channels for columns, taps for k. There
        are two output channels for each channel where the kernel has more than one column block."""
        tile = Config(config.block_m, config.block_n, 4, config.num_stages, config.num_warps)
        positions, columns, _ = matrix_sizes(tile, dtype, shape)
        multiplier = 2 if shape in ("ragged", "several-tiles") else 1
        channels, width = -(-columns // multiplier), min(positions, 8)
        size = triton.cdiv(positions, width), width
        window = (5, 5) if shape == "many-k-blocks" else (2, 3) if shape != WHOLE_TILES else (3, 3)
        padding = (window[0] // 2, window[1] // 2)
        order = "contiguous" if shape == "several-tiles" else "channels-last"
        return Conv(
            "conv2d", 1, channels, size, channels * multiplier, window, (1, 1), padding, channels,
            **dtype_fields(dtype), **one_order(order),
        )  # fmt: skip

    def timed(self, dtype: str) -> Conv:
        """See :class:`Kernel`: 8 images of 256 channels."""
        edges = (TIMED_IMAGE, TIMED_IMAGE)
        return Conv(
            "conv2d", 8, 256, edges, 256, (3, 3), (1, 1), (1, 1), 256,
            **dtype_fields(dtype), **one_order("channels-last"),
        )  # fmt: skip

    def draw_problem(self, draw: Draw) -> Conv:
        """See :class:`Kernel`: any channels and multiplier, for the rest as other convolutions."""
        channels = draw.pick((1, 3, 8, 20))
        sizes = {"channels": channels, "groups": channels, "out_channels": channels * draw.pick((1, 2, 3))}
        return dataclasses.replace(super().draw_problem(draw), precision="ieee", **sizes)


def one_order(order: str) -> dict[str, Any]:
    """Fields that give x, w and out one order of dimensions."""
    return orders(order, order, order)


def orders(x: str, w: str, out: str) -> dict[str, Any]:
    """Fields that give x, w and out each an order of dimensions."""
    return {"order_x": x, "order_w": w, "order_out": out}
