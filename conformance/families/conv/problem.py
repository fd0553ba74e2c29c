"""Convolutions over two or three spatial dimensions, with groups and a bias.

Transposed convolutions are also the gradients of convolutions for their images. The grid of all is here too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from conformance.families.family import Tiles, blocks, tiles_of
from conformance.families.gemm.problem import Bias, Gemm
from conformance.heuristics.configs import DepthwiseConfig
from conformance.problems import PRECISIONS, RESULTS, Operand, Problem, check_choice

RANKS = {"conv2d": 2, "conv3d": 3}
ORDERS = ("contiguous", "channels-last")
Extents = int | tuple[int, ...]
Convolution = TypeVar("Convolution", bound="Conv")


@dataclass(frozen=True)
class Correlation:
    """``out[n, o, p] = sum over channels c of o's group and taps t of x[n, c, place of p and t] * w[o, c, t]``.

    ``places`` gives, for each spatial axis, position of the output along it and tap, the index of x that they meet. It
    is -1 where that is no element of x. x (batch, groups * group_channels, *size), w (out_channels, group_channels,
    *kernel), out (batch, out_channels, *out_size).
    """

    batch: int
    groups: int
    group_channels: int
    size: tuple[int, ...]
    out_channels: int
    places: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial extents of the output."""
        return tuple(map(len, self.places))

    @property
    def kernel(self) -> tuple[int, ...]:
        """Spatial extents of w."""
        return tuple(len(axis[0]) for axis in self.places)

    @property
    def taps(self) -> int:
        """Spatial positions of w."""
        return math.prod(self.kernel)

    def with_places(self, axis: int, places: tuple[tuple[int, ...], ...]) -> Correlation:
        """Returns the correlation with other ``places`` along ``axis``."""
        return dataclasses.replace(self, places=(*self.places[:axis], places, *self.places[axis + 1 :]))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of x, w and out."""
        return {
            "x": (self.batch, self.groups * self.group_channels, *self.size),
            "w": (self.out_channels, self.group_channels, *self.kernel),
            "out": (self.batch, self.out_channels, *self.out_size),
        }


@dataclass(frozen=True)
class Conv(Problem):
    """``out[n, o] = bias[o] + sum over channels c of o's group of x[n, c] * w[o, c]``, where ``*`` slides w over x.

    Operands x (batch, channels, *size), w (out_channels, channels // groups, *kernel) and, if ``bias``, bias
    (out_channels,); output out (batch, out_channels, *out_size). ``padding`` zeros lie at both ends of each
    spatial dimension of x. They are multiplied like other elements: a NaN of w shows wherever it meets a zero. The bias
    has the dtype of x and is added to the fp32 sum. Taps are ``dilation`` elements of x apart, by default one.
    ``batch`` may be 0.

    ``order_x``, ``order_w`` and ``order_out`` are "contiguous" (the last spatial dimension has stride 1) or
    "channels-last" (the second dimension has). ``pad`` elements are added to the second-smallest stride of x, w and
    out. ``batch_pad`` elements are added to the stride from one image of x and out to the next. ``precision`` applies
    to fp32 operands: "ieee" or "tf32".
    """

    op: str
    batch: int
    channels: int
    size: tuple[int, ...]
    out_channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int = 1
    dtype: str = "fp16"
    out_dtype: str | None = None
    precision: str = "ieee"
    bias: bool = False
    order_x: str = "contiguous"
    order_w: str = "contiguous"
    order_out: str = "contiguous"
    pad: int = 0
    batch_pad: int = 0
    dilation: tuple[int, ...] = ()
    #: operation -> dimensions of its images
    ranks: ClassVar[dict[str, int]] = RANKS

    def __post_init__(self) -> None:
        check_choice("operation", self.op, self.ranks)
        rank = self.ranks[self.op]
        if not self.dilation:
            object.__setattr__(self, "dilation", (1,) * rank)
        for name, least in (("size", 1), ("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            values = getattr(self, name)
            if len(values) != rank or min(values) < least:
                raise ValueError(f"{name} is {values}: {self.op} needs {rank} numbers >= {least}")
        for name in ("batch", "channels", "out_channels", "groups", "pad", "batch_pad"):
            least = 1 if name in ("channels", "out_channels", "groups") else 0
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be >= {least}")
        if self.channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"{self.channels} channels in, {self.out_channels} out and {self.groups} groups: the groups must "
                "divide both"
            )
        if min(self.out_size) < 1:
            raise ValueError(
                f"a kernel of {self.kernel} with dilation {self.dilation} does not fit {self.size} with padding "
                f"{self.padding}: pad more or use a smaller kernel"
            )
        for dtype in (self.dtype, self.out_dtype or self.dtype):
            check_choice("dtype", dtype, RESULTS)
        for order in (self.order_x, self.order_w, self.order_out):
            check_choice("order", order, ORDERS)
        check_choice("precision", self.precision, PRECISIONS)

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial extents of the output."""
        axes = zip(self.size, self.reach, self.stride, self.padding, strict=True)
        return tuple((size + 2 * padding - reach) // stride + 1 for size, reach, stride, padding in axes)

    @property
    def reach(self) -> tuple[int, ...]:
        """Elements from the first to the last tap along each axis, both included."""
        return tuple((kernel - 1) * step + 1 for kernel, step in zip(self.kernel, self.dilation, strict=True))

    @property
    def weight_axes(self) -> tuple[str, str]:
        """The first two axes of the weights: the first spans all groups, the second one group."""
        return ("output channel", "channel")

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Shape of w."""
        return (self.out_channels, self.group_channels, *self.kernel)

    def by_output(self, w: Any) -> Any:
        """w, a tensor or array of its own shape, as (out_channels, channels of a group, *kernel)."""
        return w

    def as_stored(self, w: Any) -> Any:
        """w as (out_channels, channels of a group, *kernel) in its own shape."""
        return w

    @functools.cached_property
    def correlation(self) -> Correlation:
        """Returns the correlation: which element of x each output position and tap meet."""
        sizes = (self.batch, self.groups, self.group_channels, self.size, self.out_channels)
        return Correlation(*sizes, tuple(map(self._places, range(len(self.size)))))

    def _places(self, axis: int) -> tuple[tuple[int, ...], ...]:
        size, step, padding = self.size[axis], self.stride[axis], self.padding[axis]
        places = [
            [position * step - padding + tap * self.dilation[axis] for tap in range(self.kernel[axis])]
            for position in range(self.out_size[axis])
        ]
        return tuple(tuple(place if 0 <= place < size else -1 for place in taps) for taps in places)

    @property
    def group_channels(self) -> int:
        """Channels that one output sees."""
        return self.channels // self.groups

    @property
    def taps(self) -> int:
        """Spatial positions of the kernel."""
        return math.prod(self.kernel)

    @functools.cached_property
    def product(self) -> Gemm:
        """The matrix product that computes one group: a row per output position, a k per tap and channel.

        Each row of its A holds what the output position sees: values of x and zeros of the padding. Layouts are plain.
        """
        rows = self.batch * math.prod(self.out_size)
        fields = {"dtype": self.dtype, "out_dtype": self.out_dtype, "precision": self.precision}
        sizes = (rows, self.out_channels // self.groups, self.taps * self.group_channels)
        if self.bias:
            return Gemm("addmm", *sizes, bias=Bias("n"), **fields)  # type: ignore[arg-type]
        return Gemm("mm", *sizes, **fields)  # type: ignore[arg-type]

    @property
    def dense(self) -> Conv:
        plain = {"order_x": "contiguous", "order_w": "contiguous", "order_out": "contiguous"}
        return dataclasses.replace(self, **plain, pad=0, batch_pad=0)  # type: ignore[arg-type]

    def _tensor(self, name: str, shape: tuple[int, ...], order: str, dtype: str, behind: int) -> Operand:
        last = (*range(2, len(shape)), 1) if order == "channels-last" else tuple(range(1, len(shape)))
        strides = [0] * len(shape)
        step = 1
        for place, axis in enumerate(reversed(last)):
            strides[axis] = step
            step = step * shape[axis] + (self.pad if place == 0 else 0)
        strides[0] = step + behind
        return Operand(name, shape, tuple(strides), dtype)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """x, w and, if there is one, bias."""
        operands = [
            self._tensor("x", (self.batch, self.channels, *self.size), self.order_x, self.dtype, self.batch_pad),
            self._tensor("w", self.weights_shape, self.order_w, self.dtype, 0),
        ]
        if self.bias:
            operands.append(Operand("bias", (self.out_channels,), (1,), self.dtype))
        return tuple(operands)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        shape = (self.batch, self.out_channels, *self.out_size)
        return (self._tensor("out", shape, self.order_out, self.out_dtype or self.dtype, self.batch_pad),)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``conv2d-2x24x13x11-o40-k3x3-s2x1-p1x1-g2-bf16-last.last.last-bias``."""

        def sizes(values: tuple[int, ...]) -> str:
            return "x".join(map(str, values))

        parts = [self.op, sizes((self.batch, self.channels, *self.size)), f"o{self.out_channels}"]
        parts.append(f"k{sizes(self.kernel)}")
        parts += [f"s{sizes(self.stride)}"] if set(self.stride) != {1} else []
        parts += [f"p{sizes(self.padding)}"] if any(self.padding) else []
        parts += [f"d{sizes(self.dilation)}"] if set(self.dilation) != {1} else []
        parts += [f"g{self.groups}"] if self.groups > 1 else []
        parts.append(self.precision if self.dtype == "fp32" and self.precision == "tf32" else self.dtype)
        parts += [f"to.{self.out_dtype}"] if self.out_dtype not in (None, self.dtype) else []
        orders = (self.order_x, self.order_w, self.order_out)
        parts.append(".".join("last" if order == "channels-last" else "first" for order in orders))
        parts += [f"pad{self.pad}"] if self.pad else []
        parts += [f"far{self.batch_pad}"] if self.batch_pad else []
        parts += ["bias"] if self.bias else []
        return "-".join(parts)


def image_size(
    positions: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Returns the extents of the smallest image that a window meets at ``positions``; each is 1 or more.

    >>> image_size((4, 5), (3, 3), (2, 1), (1, 1), (1, 1))
    (7, 5)
    """
    axes = zip(positions, kernel, stride, padding, dilation, strict=True)
    return tuple(
        max((count - 1) * step + (taps - 1) * apart + 1 - 2 * pad, 1) for count, taps, step, pad, apart in axes
    )


def _conv(
    family: type[Convolution],
    op: str,
    batch: int,
    channels: int,
    size: Extents,
    out_channels: int,
    kernel: Extents,
    dtype: str = "fp16",
    **fields: Any,
) -> Convolution:
    """Returns a convolution; one number stands for all dimensions. ``fields`` are those of ``family``."""
    fields = {"size": size, "kernel": kernel, "stride": 1, "padding": 0, **fields}
    for name in ("size", "kernel", "stride", "padding", "dilation", "output_padding"):
        if isinstance(fields.get(name), int):
            fields[name] = (fields[name],) * family.ranks[op]
    return family(op, batch, channels, out_channels=out_channels, dtype=dtype, **fields)


#: Convolutions over two and over three dimensions, with the arguments of :func:`_conv` from ``batch`` on.
conv2d = functools.partial(_conv, Conv, "conv2d")
conv3d = functools.partial(_conv, Conv, "conv3d")


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
        return self._exchanged(w, self.group_channels, self.out_channels // self.groups)

    def as_stored(self, w: Any) -> Any:
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


#: A transposed convolution over two dimensions, with the same arguments and those of :class:`TransposedConv`.
conv_transpose2d = functools.partial(_conv, TransposedConv, "conv_transpose2d")


def input_gradient(problem: Conv, **fields: object) -> TransposedConv:
    """The gradient of ``problem``, a convolution over two dimensions, for its x; its bias and layouts are left out.
    ``fields`` are those of :class:`TransposedConv`."""
    axes = zip(problem.size, problem.reach, problem.stride, problem.padding, strict=True)
    left = tuple((size + 2 * padding - reach) % stride for size, reach, stride, padding in axes)
    geometry = {name: getattr(problem, name) for name in ("kernel", "stride", "padding", "groups", "dilation")}
    geometry |= {"dtype": problem.dtype, "precision": problem.precision, "output_padding": left, **fields}
    sizes = (problem.batch, problem.out_channels, problem.out_size, problem.channels)
    return TransposedConv("conv_transpose2d", *sizes, **geometry)


def tiles(problem: Conv, config: Any) -> Tiles | None:
    """Returns the tiles of (output positions of all images, output channels of a group); a config for depthwise
    convolutions has one channel in each group, and its tiles hold channels of many groups."""
    positions = problem.batch * math.prod(problem.out_size)
    groups = 1 if isinstance(config, DepthwiseConfig) else problem.groups
    return tiles_of(positions, problem.out_channels // groups, config)


def judged_tiles(problem: Conv, config: Any) -> tuple[int, int]:
    """Returns a row per output position, a column per output channel of a group, or of all where a tile has channels of
    many groups."""
    columns = problem.out_channels if isinstance(config, DepthwiseConfig) else problem.product.N
    return blocks(problem.product.M, config, "block_m"), blocks(columns, config, "block_n")


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns (tiles of positions, tiles of channels, groups), as the kind of the kernel arranges them. A kernel with
    phases has tiles for each remainder of an output position by the stride."""
    problem, (rows, columns, _) = plan.problem, tiles
    if kernel.depthwise:
        return rows, columns
    if kernel.phases:
        positions = [-(-size // step) for size, step in zip(problem.out_size, problem.stride, strict=True)]
        of_phase = -(-problem.batch * math.prod(positions) // plan.config.block_m)
        return (math.prod(problem.stride) * of_phase, columns, problem.groups)
    return (rows * columns,) if kernel.pointwise else (rows, columns, problem.groups)
