"""Transposed convolutions, which are also the gradients of convolutions for their images."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from conformance.families.conv.problem import Conv, Extents


@dataclass(frozen=True)
class TransposedConv(Conv):
    """``out[n, o, p] = bias[o] + sum over channels c of o's group and taps t of x[n, c, q] * w[c, o, t]`` over the
    positions q with ``q * stride - padding + t * dilation == p``.

    x (batch, channels, *size), w (channels, out_channels // groups, *kernel), out (batch, out_channels, *out_size). It
    is the gradient of a convolution for an image of ``out_size``. x is the gradient of that convolution's output, and w
    its weights. ``output_padding`` is what its stride leaves of the image, at most the larger of stride and dilation
    less one. ``padding`` cuts positions off both ends of the output. The rest is as for :class:`Conv`.
    """

    output_padding: tuple[int, ...] = ()
    ranks: ClassVar[dict[str, int]] = {"conv_transpose2d": 2}

    def __post_init__(self) -> None:
        if not self.output_padding:
            object.__setattr__(self, "output_padding", (0,) * len(self.size))
        super().__post_init__()
        limits = map(max, zip(self.stride, self.dilation, strict=True))
        if any(not 0 <= more < limit for more, limit in zip(self.output_padding, limits, strict=True)):
            raise ValueError(
                f"output_padding is {self.output_padding}: it must be >= 0 and less than the larger of stride "
                f"{self.stride} and dilation {self.dilation}"
            )

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial extents of the output."""
        axes = zip(self.size, self.reach, self.stride, self.padding, self.output_padding, strict=True)
        return tuple((size - 1) * stride - 2 * padding + reach + more for size, reach, stride, padding, more in axes)

    @property
    def weight_axes(self) -> tuple[str, str]:
        """The first two axes of the weights: those of :class:`Conv` in the other order."""
        return ("channel", "output channel")

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Shape of w."""
        return (self.channels, self.out_channels // self.groups, *self.kernel)

    def by_output(self, w: Any) -> Any:
        """See :class:`Conv`."""
        return self._exchanged(w, self.group_channels, self.out_channels // self.groups)

    def as_stored(self, w: Any) -> Any:
        """See :class:`Conv`."""
        return self._exchanged(w, self.out_channels // self.groups, self.group_channels)

    def _exchanged(self, w: Any, rows: int, columns: int) -> Any:
        """(groups * rows, columns, *kernel) -> (groups * columns, rows, *kernel), the same elements group by group."""
        split = w.reshape(self.groups, rows, columns, *self.kernel).swapaxes(1, 2)
        return split.reshape(self.groups * columns, rows, *self.kernel)

    def _places(self, axis: int) -> tuple[tuple[int, ...], ...]:
        geometry = self.stride[axis], self.padding[axis], self.dilation[axis]
        return transposed_places(self.size[axis], self.out_size[axis], self.kernel[axis], *geometry)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``conv_transpose2d-2x24x6x5-o40-k3x3-s2x1-op1x0-bf16-last.last.last``."""
        if not any(self.output_padding):
            return super().id
        first, mark, rest = super().id.partition(f"-k{'x'.join(map(str, self.kernel))}")
        return f"{first}{mark}-op{'x'.join(map(str, self.output_padding))}{rest}"


def transposed_places(
    size: int, out_size: int, kernel: int, stride: int, padding: int, dilation: int
) -> tuple[tuple[int, ...], ...]:
    """For each position of the output along one axis and each tap, the index of x that they meet, or -1."""

    def place(position: int, tap: int) -> int:
        index, rest = divmod(position + padding - tap * dilation, stride)
        return index if not rest and 0 <= index < size else -1

    return tuple(tuple(place(position, tap) for tap in range(kernel)) for position in range(out_size))


def conv_transpose2d(
    batch: int,
    channels: int,
    size: Extents,
    out_channels: int,
    kernel: Extents,
    dtype: str = "fp16",
    *,
    stride: Extents = 1,
    padding: Extents = 0,
    output_padding: Extents = 0,
    dilation: Extents = 1,
    **fields: object,
) -> TransposedConv:
    """A transposed convolution; one number stands for both dimensions. ``fields`` are those of
    :class:`TransposedConv`."""

    def both(extents: Extents) -> tuple[int, ...]:
        return (extents,) * 2 if isinstance(extents, int) else extents

    sizes = (both(size), out_channels, both(kernel), both(stride), both(padding))
    more = {"dilation": both(dilation), "output_padding": both(output_padding), **fields}
    return TransposedConv("conv_transpose2d", batch, channels, *sizes, dtype=dtype, **more)  # type: ignore[arg-type]


def input_gradient(problem: Conv, **fields: object) -> TransposedConv:
    """The gradient of ``problem``, a convolution over two dimensions, for its x; its bias and layouts are left out.
    ``fields`` are those of :class:`TransposedConv`."""
    axes = zip(problem.size, problem.reach, problem.stride, problem.padding, strict=True)
    left = tuple((size + 2 * padding - reach) % stride for size, reach, stride, padding in axes)
    geometry = {name: getattr(problem, name) for name in ("kernel", "stride", "padding", "groups", "dilation")}
    geometry |= {"dtype": problem.dtype, "precision": problem.precision, "output_padding": left, **fields}
    sizes = (problem.batch, problem.out_channels, problem.out_size, problem.channels)
    return TransposedConv("conv_transpose2d", *sizes, **geometry)
