"""Gradients of convolutions for their weights, and for their bias.

The grid of their kernels is here too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

from conformance.families.conv.problem import Conv
from conformance.families.family import Tiles, blocks, tiles_of
from conformance.families.gemm.problem import Gemm
from conformance.problems import Operand, Problem


@dataclass(frozen=True)
class WeightGradient(Problem):
    """``grad_w[o, c, t] = sum over images n and positions p of grad_out[n, o, p] * x[n, c of o's group, q]`` with
    ``q = p * stride - padding + t * dilation``, and ``grad_bias[o] = sum over n and p of grad_out[n, o, p]``.

    ``forward`` is the convolution, over two dimensions, whose gradients are asked for: its sizes, groups, dtype and
    precision hold here, too. Operands: its x (batch, channels, *size), and grad_out (batch, out_channels, *out_size)
    with the layout of its output. Outputs: grad_w (out_channels, channels // groups, *kernel) with the layout of its
    weights, and, if it has a bias, grad_bias (out_channels,). The outputs have its output dtype. What lies in the
    padding is 0, and is multiplied like other elements. grad_bias is summed in fp32, whatever the precision is. Without
    an image both gradients are 0. Raises ValueError for a convolution over other than two dimensions.
    """

    forward: Conv

    def __post_init__(self) -> None:
        if self.forward.op != "conv2d":
            raise ValueError(
                f"forward is a {self.forward.op}: the gradient for the weights is known of a conv2d. Use that"
            )

    @property
    def op(self) -> str:  # type: ignore[override]
        return f"{self.forward.op}_weight_gradient"

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.forward.dtype

    @property
    def precision(self) -> str:  # type: ignore[override]
        return self.forward.precision

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return self.forward.groups

    @property
    def bias(self) -> bool:
        """True if there is a grad_bias."""
        return self.forward.bias

    @property
    def out_dtype(self) -> str:
        """dtype of the outputs."""
        return self.forward.out_dtype or self.forward.dtype

    @property
    def positions(self) -> int:
        """Output positions of all images, which are summed over."""
        return self.forward.batch * math.prod(self.forward.out_size)

    @functools.cached_property
    def product(self) -> Gemm:
        """Returns the matrix product that computes grad_w of one group. It has a row per output channel, a column per
        tap and channel, and a k per output position of all images. Layouts are plain."""
        forward = self.forward
        sizes = forward.out_channels // forward.groups, forward.taps * forward.group_channels, self.positions
        return Gemm("mm", *sizes, dtype=self.dtype, out_dtype=forward.out_dtype, precision=self.precision)

    @functools.cached_property
    def correlation(self) -> CroppedConv:
        """The convolution that has the same sums, of an image or more: channels of a group are its images, images its
        channels, grad_out its weights. :meth:`correlated` and :meth:`stored` exchange the dimensions of tensors."""
        forward = self.forward
        return CroppedConv(
            "conv2d", forward.group_channels, forward.groups * forward.batch, forward.size, forward.out_channels,
            forward.out_size, forward.dilation, forward.padding, forward.groups, forward.dtype, forward.out_dtype,
            forward.precision, dilation=forward.stride, window=forward.kernel,
        )  # fmt: skip

    def correlated(self, name: str, tensor: Any) -> Any:
        """Returns the tensor or array ``name``, x, grad_out or grad_w, as x, w or out of :attr:`correlation`."""
        if name != "x":
            return tensor.swapaxes(0, 1)
        forward = self.forward
        split = tensor.reshape(forward.batch, forward.groups, forward.group_channels, *forward.size)
        return split.swapaxes(0, 2).reshape(self.correlation.operand("x").shape)

    def stored(self, name: str, tensor: Any) -> Any:
        """x, w or out of :attr:`correlation` as the tensor ``name``: x, grad_out or grad_w."""
        if name != "x":
            return tensor.swapaxes(0, 1)
        forward = self.forward
        split = tensor.reshape(forward.group_channels, forward.groups, forward.batch, *forward.size)
        return split.swapaxes(0, 2).reshape(self.operand("x").shape)

    @property
    def dense(self) -> WeightGradient:
        return dataclasses.replace(self, forward=self.forward.dense)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """x and grad_out."""
        out = self.forward.output
        return (self.forward.operand("x"), Operand("grad_out", out.shape, out.strides, self.dtype))

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """grad_w and, if there is one, grad_bias."""
        w = self.forward.operand("w")
        outputs = [Operand("grad_w", w.shape, w.strides, self.out_dtype)]
        if self.bias:
            outputs.append(Operand("grad_bias", (self.forward.out_channels,), (1,), self.out_dtype))
        return tuple(outputs)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``conv2d_weight_gradient-2x24x13x11-o40-k3x3-s2x1-p1x1-g2-bf16-last.last.last-bias``."""
        return self.forward.id.replace(self.forward.op, self.op, 1)


@dataclass(frozen=True)
class CroppedConv(Conv):
    """A convolution of which only the first positions are asked for: ``window`` of them along each axis."""

    window: tuple[int, ...] = ()

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial extents of the output."""
        return tuple(map(min, zip(super().out_size, self.window, strict=True)))


def tiles(problem: WeightGradient, config: Any) -> Tiles | None:
    """Returns the tiles of (output channels of a group, channels and positions of the convolution's kernel)."""
    _, channels, *kernel = problem.output.shape
    return tiles_of(problem.forward.out_channels // problem.groups, channels * math.prod(kernel), config)


def judged_tiles(problem: WeightGradient, config: Any) -> tuple[int, int]:
    """Returns a row per output channel of a group, a column per tap and channel."""
    return blocks(problem.product.M, config, "block_m"), blocks(problem.product.N, config, "block_n")


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns (tiles of rows, tiles of columns, groups)."""
    return (*tiles[:2], plan.problem.groups)
