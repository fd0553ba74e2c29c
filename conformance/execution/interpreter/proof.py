"""The proof that the corrected interpreter computes as a device does: what differs from other arithmetic is named.

The other arithmetic is that of :mod:`conformance.numerics.rounding` and a search among the values of a format. The
builder's methods are tried one by one, and then together in small kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch
import triton

from conformance.execution.interpreter import probe
from conformance.kernels.launch import Launch
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import DTYPES

#: Formats: Triton's name, the attribute of triton.language, the name in problems.DTYPES, the overflow rule. "": an
#: overflow is refused, and so is to round towards zero.
_FORMATS = [
    ("bf16", "bfloat16", "bf16", "ieee"),
    ("fp16", "float16", "fp16", "ieee"),
    ("fp8e4nv", "float8e4nv", "e4m3", "saturate"),
    ("fp8e5", "float8e5", "e5m2", "saturate"),
    ("fp8e4b8", "float8e4b8", "e4m3fnuz", ""),
    ("fp8e5b16", "float8e5b16", "e5m2fnuz", ""),
]
#: Numbers on which every operation of two operands is compared: each with each.
_NUMBERS = [0.0, -0.0, 1.0, 1.0078125, -1.5, 3.140625, 2.0**-133, 2.0**-126, 3e38, -3e38, math.inf, -math.inf, math.nan]
#: The functions of the builder and those of fp64, with which they agree to 2**-21 of the result, as contracts assume.
_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "create_exp": np.exp,
    "create_exp2": np.exp2,
    "create_log": np.log,
    "create_log2": np.log2,
    "create_sin": np.sin,
    "create_cos": np.cos,
    "create_sqrt": np.sqrt,
    "create_rsqrt": lambda x: 1 / np.sqrt(x),
    "create_erf": np.vectorize(math.erf, otypes=[np.float64]),
}


#: Formats of eight bits by their attribute of triton.language.
_FP8 = {"float8e4nv": torch.float8_e4m3fn, "float8e5": torch.float8_e5m2}

#: Faults, by the name of a method and of the format for which it is wrong (Triton's name; empty: all formats).
Faults = dict[tuple[str, str], str]


def faults_of_methods(interpreter: Any, methods: Mapping[str, Callable[..., Any]]) -> Faults:
    """Returns the faults of the builder's ``methods``. They are tried with conversions of every code and between all
    neighbours, with products, sums and comparisons of special values, and with functions of fp32."""
    faults: Faults = {}
    with np.errstate(all="ignore"):
        for check in (_conversions, _dots, _scaled_dots, _operations, _fused, _functions):
            for name, right, text in check(interpreter, methods):
                if not right:
                    faults.setdefault((name, ""), text)
    return faults


#: The method, whether it is right, and what is wrong if not.
_Checks = Iterator[tuple[str, bool, str]]


def same_numbers(first: np.ndarray, second: np.ndarray) -> bool:
    """True if the numbers are the same: NaN is one number, and a zero has a sign."""
    equal = np.array_equal(first, second, equal_nan=True)
    return equal and np.array_equal(np.signbit(first[first == 0]), np.signbit(second[second == 0]))


def rounded(exact: np.ndarray, name: str, overflow: str = "ieee") -> np.ndarray:
    """fp64 values rounded to the format ``name`` of problems.DTYPES, as fp64."""
    return round_to(torch.from_numpy(np.array(exact, np.float64)), name, overflow=overflow).double().numpy()


def _conversions(interpreter: Any, methods: Mapping[str, Callable[..., Any]]) -> _Checks:
    handle, tl, builder = interpreter.TensorHandle, interpreter.tl, interpreter.interpreter_builder
    modes = interpreter._ir.ROUNDING_MODE
    for name, attribute, own, overflow in _FORMATS:
        kind, stored = getattr(tl, attribute), interpreter._get_np_dtype(getattr(tl, attribute))
        codes = np.arange(2 ** (8 * stored.itemsize)).astype(np.dtype(f"u{stored.itemsize}")).view(stored)
        values = methods["cast_impl"](builder, handle(codes, kind), tl.float32).data.astype(np.float64)
        again = rounded(values, own)
        # A format has as many values as codes, but for -0; what is one value of it is its own rounding.
        distinct = len(np.unique(values[np.isfinite(values)])) + np.signbit(values[values == 0]).sum()
        yield "cast_impl", same_numbers(values, again), f"widens {name} wrongly"
        yield "cast_impl", distinct == np.isfinite(values).sum(), f"widens two codes of {name} to one number"
        finite = np.unique(values[np.isfinite(values)])
        some = _some(len(finite) - 1)
        ties = ((finite[1:] + finite[:-1]) / 2)[some]
        beyond = finite[-1] + (finite[-1] - finite[-2]) * np.array([0.25, 0.5, 0.75, 4.0])
        exact = np.concatenate([finite[some], ties, -ties, beyond, -beyond, [-0.0, math.inf, -math.inf, math.nan]])
        singles = exact.astype(np.float32)
        if not overflow:
            singles = singles[~(np.abs(singles) >= finite[-1])]
        around = [singles, np.nextafter(singles, np.float32(0)), np.nextafter(singles, np.float32(math.inf))]
        sources = [(np.concatenate(around), tl.float32)]
        if name in ("bf16", "fp16"):  # to the others no compiler rounds fp64
            sources.append((np.concatenate([exact, np.nextafter(exact, 0), np.nextafter(exact, math.inf)]), tl.float64))
        for source, source_kind in sources:
            expected = rounded(source.astype(np.float64), own, overflow or "ieee")
            for method, more in (("create_fp_to_fp", (modes.RTNE,)), ("cast_impl", ())):
                actual = methods[method](builder, handle(source, source_kind), kind, *more).data
                widened = methods["cast_impl"](builder, handle(actual, kind), tl.float64).data
                yield method, same_numbers(widened, expected), f"narrows {source_kind} to {name} wrongly"
        if name != "fp8e4nv" and overflow:  # no compiler rounds the others towards zero
            source = sources[0][0]
            actual = methods["create_fp_to_fp"](builder, handle(source, tl.float32), kind, modes.RTZ).data
            widened = methods["cast_impl"](builder, handle(actual, kind), tl.float64).data
            yield (
                "create_fp_to_fp",
                same_numbers(widened, cut(source, finite)),
                f"rounds to {name} towards zero wrongly",
            )
    whole = np.array([0, 1, -1, 257, 2**24 + 1, (1 << 25) + (1 << 17) + 1, -(2**31) + 1])
    for source in (whole.astype(np.int32), whole, whole * (2**31 + 1)):
        integers = handle(source, getattr(tl, f"int{8 * source.itemsize}"))
        actual = methods["cast_impl"](builder, methods["cast_impl"](builder, integers, tl.bfloat16), tl.float64).data
        expected = np.array([_to_significant(Fraction(value), 8) for value in source.tolist()])
        yield "cast_impl", same_numbers(actual, expected), "rounds integers to bf16 wrongly"
    numbers = methods["get_bf16"](builder, -2.75)
    yield "get_bf16", numbers.data.tolist() == [0xC030], "makes wrong bf16 constants"
    actual = methods["cast_impl"](builder, numbers, tl.int32).data
    yield "cast_impl", actual.tolist() == [-2], "makes wrong integers of bf16"


def _some(count: int) -> np.ndarray:
    """Of the indices of so many sorted values 1 in 13, and all near the ends and the middle, where subnormals are."""
    edges = [np.arange(min(300, count)), np.arange(max(count - 300, 0), count), count // 2 + np.arange(-150, 150)]
    every = np.unique(np.concatenate([*edges, np.arange(0, count, 13)]))
    return every[(every >= 0) & (every < count)]


def cut(source: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """``source`` rounded towards zero to one of the ``finite`` values of a format; infinities stay."""
    size = np.abs(source.astype(np.float64))
    below = finite[np.searchsorted(finite, np.minimum(size, finite[-1]), side="right") - 1]
    return np.where(np.isfinite(source), np.copysign(np.abs(below), source), source)


def _to_significant(value: Fraction, bits: int) -> float:
    """``value`` rounded to nearest even with so many significant bits, by integer arithmetic."""
    if not value:
        return 0.0
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length() - bits
    unit = Fraction(2) ** (exponent + (abs(value) / Fraction(2) ** exponent >= 2**bits))
    return float(round(value / unit) * unit)


def _dots(interpreter: Any, methods: Mapping[str, Callable[..., Any]]) -> _Checks:
    handle, tl, builder = interpreter.TensorHandle, interpreter.tl, interpreter.interpreter_builder
    small = (np.arange(256, dtype=np.float32).reshape(16, 16) * 7 % 9) - 4  # integers that every format has
    for name, attribute, _, _ in _FORMATS:
        operand = methods["cast_impl"](builder, handle(small, tl.float32), getattr(tl, attribute))
        zero = handle(np.zeros((16, 16), np.float32), tl.float32)
        product = methods["create_dot"](builder, operand, operand, zero, None, None).data
        yield "create_dot", np.array_equal(product, small.astype(np.float64) @ small), f"multiplies {name} wrongly"


def pairs() -> tuple[np.ndarray, np.ndarray]:
    first, second = np.meshgrid(rounded(np.array(_NUMBERS), "bf16"), rounded(np.array(_NUMBERS), "bf16"))
    return first.ravel(), second.ravel()


def _scaled_dots(interpreter: Any, methods: Mapping[str, Callable[..., Any]]) -> _Checks:
    """Checks every code of every format under scales, as the first operand and as the second. A line holds one code, or
    pairs of codes, of which that at k = 5 is multiplied by 1. The expected numbers are those of the formats'
    definitions, in fp64."""
    handle, tl, builder = interpreter.TensorHandle, interpreter.tl, interpreter.interpreter_builder
    one = np.zeros((16, 32), np.float16)
    one[:, 5] = 1
    four_bits = [sign * value for sign in (1.0, -1.0) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)]
    every_byte = np.arange(256, dtype=np.uint8)
    exponents = np.array([2.0 ** (byte - 127) for byte in range(255)] + [math.nan])
    in_range = np.where(every_byte > 250, 255, every_byte).astype(np.uint8)  # no code times these is an infinity
    fp8 = {name: torch.from_numpy(every_byte).view(dtype).double().numpy() for name, dtype in _FP8.items()}

    def products(codes: np.ndarray, kind: Any, scale: np.ndarray, scale_kind: Any, second: bool, along_k: bool) -> Any:
        """Returns the products of the codes at k = 5 of 256 lines, the rows of A or, for the ``second`` operand,
        columns."""
        lines, scales = handle(codes.T if second else codes, kind), handle(scale, scale_kind)
        other = handle(one if second else one.T, tl.float16)
        zero = handle(np.zeros((16, 256) if second else (256, 16), np.float32), tl.float32)
        plain, scaled = (other, None, None), (lines, scales, None)
        first, last = (plain, scaled) if second else (scaled, plain)
        packed = (True, along_k) if second else (along_k, True)
        results = methods["create_dot_scaled"](builder, *first, *last, False, *packed, zero).data
        return results[0] if second else results[:, 0]

    with np.errstate(all="ignore"):
        for second in (False, True):
            for name, numbers in fp8.items():
                codes = np.zeros((256, 32), np.uint8)
                codes[:, 5] = every_byte
                for byte in (0, 1, 100, 127, 200, 254, 255):
                    scale = np.full((256, 1), byte, np.uint8)
                    actual = products(codes, getattr(tl, name), scale, tl.uint8, second, True)
                    expected = (numbers * exponents[byte]).astype(np.float32)
                    yield (
                        "create_dot_scaled",
                        _alike(actual, expected),
                        f"multiplies {name} with the scale byte {byte} wrongly",
                    )
            for low, along_k in itertools.product(range(16), (True, False)):
                high = 15 - low
                codes = np.full((256, 16) if along_k else (128, 32), high << 4 | low, np.uint8)
                # of pairs along k that at 5 is the upper half of its byte, of others every second line has the upper
                values = np.full(256, four_bits[high]) if along_k else np.tile([four_bits[low], four_bits[high]], 128)
                text = f"reads the codes {low} and {high} of a byte wrongly"
                actual = products(codes, tl.uint8, in_range[:, None], tl.uint8, second, along_k)
                yield "create_dot_scaled", _alike(actual, (values * exponents[in_range]).astype(np.float32)), text
                # two blocks of 16 k with a scale of e4m3 each: k = 5 has the first
                scale = np.stack([every_byte, np.full(256, 0x38, np.uint8)], 1)
                actual = products(codes, tl.uint8, scale, tl.float8e4nv, second, along_k)
                yield "create_dot_scaled", _alike(actual, (values * fp8["float8e4nv"]).astype(np.float32)), text


def _alike(first: np.ndarray, second: np.ndarray) -> bool:
    """True if the numbers are the same; NaN is one number, and zeros have no sign, because a sum begins at +0."""
    return bool(np.array_equal(first, second, equal_nan=True))


def _operations(interpreter: Any, methods: Mapping[str, Callable[..., Any]]) -> _Checks:
    handle, tl, builder = interpreter.TensorHandle, interpreter.tl, interpreter.interpreter_builder
    x, y = pairs()

    def bf16(values: np.ndarray) -> Any:
        return methods["cast_impl"](builder, handle(values.astype(np.float32), tl.float32), tl.bfloat16)

    def numbers(result: Any) -> np.ndarray:
        return np.asarray(methods["cast_impl"](builder, result, tl.float64).data)

    for operation in (np.add, np.subtract, np.multiply, np.divide):
        actual = numbers(methods["binary_op"](builder, bf16(x), bf16(y), operation))
        yield (
            "binary_op",
            same_numbers(actual, rounded(operation(x, y), "bf16")),
            f"has a wrong {operation.__name__} of bf16",
        )
    for compare in (np.less, np.less_equal, np.equal, np.not_equal):
        actual = methods["binary_op"](builder, bf16(x), bf16(y), compare)
        right = actual.dtype == tl.int1 and np.array_equal(actual.data, compare(x, y))
        yield "binary_op", right, f"has a wrong {compare.__name__} of bf16"
    single = handle(x.astype(np.float32), tl.float32), handle(y.astype(np.float32), tl.float32)
    no_nan = ~(np.isnan(x) | np.isnan(y))
    for method, largest, keeps in (
        ("create_maximumf", True, True),
        ("create_minimumf", False, True),
        ("create_maxnumf", True, False),
        ("create_minnumf", False, False),
    ):
        takes_x = np.where(x == y, np.signbit(x) != largest, (x > y) == largest)  # of two zeros, by the sign
        other = np.full(x.shape, np.nan) if keeps else np.where(np.isnan(x), y, x)
        expected = np.where(no_nan, np.where(takes_x, x, y), other)
        for operands in (single, (bf16(x), bf16(y))):
            yield method, same_numbers(numbers(methods[method](builder, *operands)), expected), f"{method} is wrong"


def _fused(interpreter: Any, methods: Mapping[str, Callable[..., Any]]) -> _Checks:
    """Products whose sum with a small number is next to a tie, which two roundings do not see."""
    handle, tl, builder = interpreter.TensorHandle, interpreter.tl, interpreter.interpreter_builder
    for kind, bits in ((tl.bfloat16, 8), (tl.float16, 11), (tl.float32, 24), (tl.float64, 53)):
        unit = 2.0 ** (1 - bits)
        # 1 + unit and 1 + 3 / 2 of it: the product's last bits are half a unit or close to it
        rows = [
            (1 + unit, 1 + unit * n, sign * 2.0**-e) for n in (1, 2, 3, 64) for sign in (1, -1) for e in (9, 14, 24)
        ]
        rows += [(1.5, 1 + unit, sign * 2.0**-e) for sign in (1, -1) for e in (9, 14, 24)]
        operands = [
            methods["cast_impl"](builder, handle(np.array(column), tl.float64), kind)
            for column in zip(*rows, strict=True)
        ]
        actual = methods["cast_impl"](builder, methods["create_fma"](builder, *operands), tl.float64).data
        expected = [_to_significant(Fraction(x) * Fraction(y) + Fraction(z), bits) for x, y, z in rows]
        yield "create_fma", same_numbers(actual, np.array(expected)), f"has a wrong fma of {kind}"


def _functions(interpreter: Any, methods: Mapping[str, Callable[..., Any]]) -> _Checks:
    handle, tl, builder = interpreter.TensorHandle, interpreter.tl, interpreter.interpreter_builder
    points = np.concatenate([np.linspace(2.0**-8, 80, 997), np.exp2(np.arange(-20.0, 7)), -np.linspace(0.01, 80, 400)])
    points = points.astype(np.float32)
    for name, exact in _FUNCTIONS.items():
        if hasattr(builder, name):
            expected = exact(points.astype(np.float64))
            actual = getattr(builder, name)(handle(points, tl.float32)).data.astype(np.float64)
            near = np.abs(actual - expected) <= 2.0**-21 * np.maximum(np.abs(expected), 2.0**-126)
            near |= (np.isnan(actual) & np.isnan(expected)) | (np.abs(expected) < 2.0**-126)
            yield name, bool(near.all()), f"{name} is off by more than 2**-21 of the result"


#: Triton's names of the formats of problems.DTYPES that differ.
_OF_TRITON = {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}
_SIZE = 256


@dataclass(frozen=True)
class KernelProbe:
    """A kernel over x and y in format ``name``, as problems.DTYPES has it, and ``more`` arguments, and what it must
    store in ``output``, a format. ``method`` is refused for the format, or for all if ``any_format``, if it stores
    something else."""

    kernel: Any
    name: str
    expected: np.ndarray
    method: str
    output: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    any_format: bool = False


def faults_of_kernels(run: Callable[[Launch], object]) -> Faults:
    """Returns the faults of the numbers that :data:`probes` store when ``run`` runs them."""
    faults: Faults = {}
    for probed in probes():
        text = _fault(probed, run)
        if text:
            name = "" if probed.any_format else _OF_TRITON.get(probed.name, probed.name)
            faults.setdefault((probed.method, name), text)
    return faults


def _operands(kernel: Any) -> tuple[np.ndarray, np.ndarray]:
    """Special values of bf16, each with each, and zeros behind them. For sums: zeros, and a number next to three that
    are half a unit of it."""
    if kernel is probe.added_tiles:
        return np.zeros(_SIZE), np.arange(1.0, _SIZE + 1)
    if kernel in (probe.sums, probe.atomic_sums):
        return np.zeros(_SIZE), np.array([256.0, 1.0, 1.0, 1.0] + [0.0] * (_SIZE - 4))
    x, y = (np.concatenate([values, np.zeros(_SIZE - len(values))]) for values in pairs())
    return x, y


def probes() -> Iterator[KernelProbe]:
    """The kernels with what they must store."""
    x, y = _operands(None)
    with np.errstate(all="ignore"):
        stepwise = rounded(rounded(x * 2.5, "bf16") + rounded(np.array(0.2), "bf16"), "bf16")
        yield KernelProbe(probe.constants, "bf16", stepwise, "get_bf16")
        yield KernelProbe(probe.comparisons, "bf16", (x > y) + 2.0 * (x == y), "binary_op")
        zeros = (x == 0) & (y == 0)
        larger = np.where(np.isnan(y) | (x > y) | (zeros & np.signbit(y)), x, y)
        smaller = np.where(np.isnan(x) | (x < y) | (zeros & np.signbit(x)), x, y)
        for name in ("bf16", "fp32"):
            yield KernelProbe(probe.larger_numbers, name, larger, "create_maxnumf")
            yield KernelProbe(probe.smaller_or_nan, name, smaller, "create_minimumf")
        yield KernelProbe(probe.clamped, "bf16", np.where(x > -1, np.where(x < 1, x, 1.0), -1.0), "create_clampf")
        yield KernelProbe(probe.fused_products, "bf16", rounded(x * y + x, "bf16"), "create_fma")
        for output in ("bf16", "fp16", "e5m2"):
            finite = np.arange(FORMATS[output].largest_code + 1, dtype=np.uint16 if output != "e5m2" else np.uint8)
            values = (
                torch.from_numpy(finite.view(np.dtype(f"i{finite.itemsize}"))).view(DTYPES[output]).double().numpy()
            )
            yield KernelProbe(probe.truncated, "bf16", cut(x * 1.00390625, values), "create_fp_to_fp", output)
    yield KernelProbe(probe.sums, "bf16", np.full_like(x, 258.0), "sum")
    yield KernelProbe(probe.atomic_sums, "bf16", np.where(np.arange(len(x)) == 0, 256.0, 0.0), "create_atomic_rmw")
    numbers = np.zeros(_SIZE)
    numbers[1:10] = [0.25, 0.5, -294.967296, 1, 8000, 0.5, 0.5, 7 + _SIZE, 1]
    more = {"scale": 1e-6, "wide": 5}
    yield KernelProbe(probe.tensor_numbers, "fp32", numbers.astype(np.float32), "loop_indices", "", more, True)
    if hasattr(triton.language, "make_tensor_descriptor"):
        added, tile = np.zeros((_SIZE // 16, 16)), _operands(probe.added_tiles)[1].reshape(-1, 16)
        added[2:14, 4:12] = 2 * tile[:12, :8]
        yield KernelProbe(probe.added_tiles, "fp32", added.ravel(), "create_descriptor_reduce")


def _fault(probed: KernelProbe, run: Callable[[Launch], object]) -> str:
    x, y = _operands(probed.kernel)
    dtype = DTYPES[probed.name]
    out = torch.zeros(len(x), dtype=DTYPES[probed.output or probed.name])
    tensors = {"x": torch.from_numpy(x).to(dtype), "y": torch.from_numpy(y).to(dtype), "out": out}
    kernel = probed.kernel.fn.__name__
    try:
        run(Launch(probed.kernel, (1,), {**tensors, **probed.more, "SIZE": len(x)}))
    except Exception as error:  # whatever the interpreter raises, or that it refuses
        return f"kernel {kernel} ends in {error}"
    stored = out.double().numpy()
    if same_numbers(stored, probed.expected):
        return ""
    first = int(
        np.flatnonzero(~((stored == probed.expected) | (np.isnan(stored) & np.isnan(probed.expected)))).min(initial=0)
    )
    return f"kernel {kernel} stores {stored[first]} where {probed.expected[first]} is right"
