"""Triton's interpreter, mended, as an executor: numerics without a GPU.

In every released Triton the interpreter multiplies the bit patterns of bf16 operands, truncates where it should round
when it narrows to bf16, rounds wrongly to fp8, knows no bf16 constant, and sums the bit patterns of bf16 and fp8. While
a kernel runs, the methods concerned convert through torch instead; `prove` compares them with torch before the first
use. Everything is put back after each launch. What the interpreter cannot do at all is a typed reason, and no fault of
the kernel.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.execution.interpreter_accesses import Accesses, watched, with_undefined_lanes
from conformance.execution.interpreter_savings import savings
from conformance.execution.observation import Ran
from conformance.kernels.launch import Launch
from conformance.records import ExecutorName, Reason, ReasonCode


class InterpreterUnsupported(Exception):
    """The installed interpreter lacks a name that mending needs, or what a kernel asks for; ``reason`` says which."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


#: triton dtype name -> (torch dtype, numpy dtype in which the interpreter holds its bits)
_STORED_AS_BITS = {
    "bf16": (torch.bfloat16, np.uint16),
    "fp8e4nv": (torch.float8_e4m3fn, np.uint8),
    "fp8e5": (torch.float8_e5m2, np.uint8),
}
_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
_BUILDER_METHODS = ("create_dot", "create_fp_to_fp", "cast_impl", "binary_op")


def _from_bits(data: np.ndarray, name: str) -> np.ndarray:
    """Values of an array that holds the bits of dtype ``name``, as fp32."""
    dtype, _ = _STORED_AS_BITS[name]
    signed = np.int16 if data.dtype.itemsize == 2 else np.uint8
    bits = torch.from_numpy(np.ascontiguousarray(data).view(signed))
    return bits.view(dtype).to(torch.float32).numpy().reshape(data.shape)


def _to_bits(values: np.ndarray, name: str) -> np.ndarray:
    """Bits of ``values`` rounded to nearest even in dtype ``name``. fp8 saturates, as the hardware conversion does."""
    dtype, stored = _STORED_AS_BITS[name]
    tensor = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    if stored is np.uint8:
        largest = torch.finfo(dtype).max
        tensor = tensor.clamp(-largest, largest)  # NaN stays NaN
    rounded = tensor.to(dtype)
    return rounded.view(torch.int16 if stored is np.uint16 else torch.uint8).numpy().view(stored).reshape(values.shape)


def _as_numbers(data: np.ndarray, name: str) -> np.ndarray:
    return _from_bits(data, name) if name in _STORED_AS_BITS else data


def mended_methods(interpreter: Any) -> dict[str, Callable[..., Any]]:
    """Replacements for the builder methods that are wrong for bf16 and fp8."""
    handle = interpreter.TensorHandle
    original = interpreter.InterpreterBuilder

    def convert(data: np.ndarray, source: str, target: str) -> np.ndarray:
        numbers = _as_numbers(data, source)
        if target in _STORED_AS_BITS:
            return _to_bits(numbers, target)
        with np.errstate(over="ignore"):  # past the largest fp16 is infinity, as asked for
            return numbers.astype(_FLOATS[target])

    def concerns(source: Any, target: Any) -> bool:
        names = {source.name, target.name}
        return bool(names & _STORED_AS_BITS.keys()) and names <= _STORED_AS_BITS.keys() | _FLOATS.keys()

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        a_type, b_type = a.dtype.scalar, b.dtype.scalar
        if not (a_type.is_floating() and b_type.is_floating()):
            return original_dot(self, a, b, d, input_precision, max_num_imprecise_acc)
        # fp32 holds every fp16, bf16 and fp8 product exactly, so this is fp32 arithmetic throughout.
        product = np.matmul(
            _as_numbers(a.data, a_type.name).astype(d.data.dtype, copy=False),
            _as_numbers(b.data, b_type.name).astype(d.data.dtype, copy=False),
        )
        return handle(product + d.data, d.dtype.scalar)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if concerns(src.dtype.scalar, dst_type.scalar):
            return handle(convert(src.data, src.dtype.scalar.name, dst_type.scalar.name), dst_type.scalar)
        return original_fp_to_fp(self, src, dst_type, rounding_mode)

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if concerns(src.dtype.scalar, dst_type.scalar):
            return handle(convert(src.data, src.dtype.scalar.name, dst_type.scalar.name), dst_type.scalar)
        if dst_type.scalar.name in _STORED_AS_BITS and not src.dtype.scalar.is_floating():
            return handle(_to_bits(src.data.astype(np.float32), dst_type.scalar.name), dst_type.scalar)
        return original_cast(self, src, dst_type)

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        name = lhs.dtype.scalar.name
        if name not in _STORED_AS_BITS:
            return original_binary(self, lhs, rhs, op)
        result = op(_from_bits(lhs.data, name), _from_bits(rhs.data, name))
        if result.dtype == np.bool_:
            return handle(result, lhs.dtype.scalar)
        return handle(_to_bits(result, name), lhs.dtype.scalar)

    def get_bf16(self: Any, value: Any) -> Any:
        return handle(_to_bits(np.array([value], np.float32), "bf16"), interpreter.tl.bfloat16)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        name = z.dtype.scalar.name
        if name not in _STORED_AS_BITS:
            return original_fma(self, x, y, z)
        first, second, third = (_from_bits(operand.data, name) for operand in (x, y, z))
        return handle(_to_bits(first * second + third, name), z.dtype.scalar)

    def padded_with_nan(self: Any, pointers: Any, mask: Any) -> Any:
        """What a load gives whose elements outside the bounds are NaN."""
        name = pointers.get_element_ty().name
        nan = np.broadcast_to(_to_bits(np.array([np.nan], np.float32), name), pointers.data.shape)
        return self.create_masked_load(pointers, mask, handle(nan.copy(), pointers.get_element_ty()), None, None, False)

    def create_descriptor_load(self: Any, desc: Any, indices: Any, *more: Any, **named: Any) -> Any:
        narrow = desc.base.dtype.element_ty.name in _STORED_AS_BITS
        if narrow and getattr(desc, "padding", None) == interpreter._ir.PADDING_OPTION.PAD_NAN:
            return padded_with_nan(self, *desc.materialize_pointers(indices))
        return original_descriptor_load(self, desc, indices, *more, **named)

    def create_tensor_pointer_load(self: Any, ptr: Any, boundary_check: Any, padding_option: Any, *more: Any) -> Any:
        narrow = ptr.base.dtype.element_ty.name in _STORED_AS_BITS
        if narrow and padding_option == interpreter._ir.PADDING_OPTION.PAD_NAN:
            return padded_with_nan(self, *ptr.materialize_pointers(boundary_check))
        return original_pointer_load(self, ptr, boundary_check, padding_option, *more)

    original_fma = original.create_fma
    original_dot = original.create_dot
    original_fp_to_fp = original.create_fp_to_fp
    original_cast = original.cast_impl
    original_descriptor_load: Any = getattr(original, "create_descriptor_load", None)
    original_pointer_load: Any = getattr(original, "create_tensor_pointer_load", None)
    original_binary = original.binary_op
    loads: dict[str, Callable[..., Any]] = {
        "create_descriptor_load": create_descriptor_load,
        "create_tensor_pointer_load": create_tensor_pointer_load,
    }
    return {
        **{name: load for name, load in loads.items() if hasattr(original, name)},  # releases differ
        "create_dot": create_dot,
        "create_fp_to_fp": create_fp_to_fp,
        "cast_impl": cast_impl,
        "binary_op": binary_op,
        "create_fma": create_fma,
        "get_bf16": get_bf16,
    }


def mended_reductions(interpreter: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Replacements for the reductions that add up bit patterns: pairs of the owner and its methods by name."""

    def with_element_type(kind: Any, element: Any) -> Any:
        if hasattr(kind, "with_element_ty"):
            return kind.with_element_ty(element)
        return interpreter.tl.block_type(element, kind.shape) if kind.is_block() else element  # Triton 3.2 and 3.3

    def mended(owner: Any, method: str) -> Callable[..., Any]:
        original = getattr(owner, method)

        def reduce(self: Any, operand: Any) -> Any:
            name = operand.dtype.name
            if name not in _STORED_AS_BITS:
                return original(self, operand)
            whole = interpreter.TensorHandle(_from_bits(operand.handle.data, name), interpreter.tl.float32)
            summed = original(
                self, interpreter.tl.core.tensor(whole, with_element_type(operand.type, interpreter.tl.float32))
            )
            for result in summed if isinstance(summed, list) else [summed]:
                result.handle = interpreter.TensorHandle(_to_bits(result.handle.data, name), operand.dtype)
                result.type, result.dtype = with_element_type(result.type, operand.dtype), operand.dtype
            return summed

        return reduce

    methods = {"ReduceOps": ("sum",), "ScanOps": ("cumsum", "cumprod")}
    return [
        (owner, {name: mended(owner, name) for name in names})
        for owner, names in ((getattr(interpreter, kind), names) for kind, names in methods.items())
    ]


def mended_descriptors(interpreter: Any) -> list[tuple[Any, dict[str, Any]]]:
    """A replacement for the check of a descriptor's pitch, which Triton 3.3 to 3.5 count in elements; nothing for
    releases that count bytes or have no descriptors."""
    descriptor = getattr(interpreter, "TensorDescHandle", None)
    if descriptor is None:
        return []
    original, tl, handle = descriptor.validate, interpreter.tl, interpreter.TensorHandle

    def in_bytes(strides: Any, size: int) -> list[Any]:
        return [*(handle(stride.data * size, stride.dtype) for stride in strides[:-1]), strides[-1]]

    def validate(self: Any) -> None:
        strides = self.strides
        self.strides = in_bytes(strides, self.base.dtype.element_ty.primitive_bitwidth // 8)
        try:
            original(self)
        finally:
            self.strides = strides

    base = handle(np.zeros(1, np.uint64), tl.pointer_type(tl.float16))
    rows_of_16_bytes = [handle(np.array([number]), tl.int64) for number in (8, 1)]
    try:
        original(SimpleNamespace(base=base, ndim=2, strides=rows_of_16_bytes, shape=(8, 8), block_shape=(8, 8)))
    except AssertionError:
        return [(descriptor, {"validate": validate})]
    return []


@contextlib.contextmanager
def _replaced(owner: Any, names: dict[str, Any]) -> Iterator[None]:
    before = {name: owner.__dict__[name] for name in names if name in owner.__dict__}
    for name, value in names.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in names:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


class InterpreterExecutor:
    """Runs launches in the interpreter on CPU tensors, and reports the grid that its executor walked."""

    name = ExecutorName.INTERPRETER
    on_device = False
    device = torch.device("cpu")

    def __init__(self) -> None:
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise RuntimeError("the interpreter runs only with TRITON_INTERPRET=1, set before triton is imported")
        from triton.runtime import interpreter

        builder = interpreter.InterpreterBuilder
        for method in (*_BUILDER_METHODS, "set_grid_dim", "set_grid_idx"):
            if not hasattr(builder, method):
                detail = f"this Triton's InterpreterBuilder has no {method}, which mending replaces"
                raise InterpreterUnsupported(Reason(ReasonCode.NO_INTERPRETER, method, detail))
        self._interpreter = interpreter
        self._methods = mended_methods(interpreter)
        self._more = [*mended_reductions(interpreter), *mended_descriptors(interpreter)]
        self._accesses: Accesses | None = None
        prove(interpreter, self._methods)
        self._count_a_loop()

    @contextlib.contextmanager
    def watching(self, operands: Mapping[str, Tensor], **rules: Any) -> Iterator[Accesses]:
        """The :class:`Accesses` of the launches that run meanwhile, under its ``rules``."""
        self._accesses = Accesses(operands, **rules)
        try:
            yield self._accesses
        finally:
            self._accesses = None

    def _count_a_loop(self) -> None:
        """Every GEMM counts its k-blocks in a loop, which the interpreters of older Tritons cannot do under NumPy 2.4
        and later: raises InterpreterUnsupported there."""
        from conformance.execution.probe import count_blocks

        out = torch.zeros(1, dtype=torch.int32)
        try:
            self.run(Launch(count_blocks, (1,), {"out": out, "size": 40, "BLOCK": 16}))
        except self._interpreter.InterpreterError as error:
            detail = (
                f"this Triton's interpreter cannot count a loop with NumPy {np.__version__} ({error}): "
                "install numpy<2.4, or Triton 3.7 or later"
            )
            raise InterpreterUnsupported(Reason(ReasonCode.NO_INTERPRETER, "numpy", detail)) from error
        if out.item() != 3:
            raise RuntimeError(f"the interpreter counts 40 in blocks of 16 as {out.item()}, 3 is right")

    def run(self, launch: Launch, programs: Sequence[int] | None = None, *, observe: bool = False) -> Ran:
        """Runs ``launch`` and the steps before and after it. What is observed is the launch itself, always:
        ``observe`` changes nothing here.

        ``programs`` restricts the launch to these program ids of the first grid dimension. Raises
        InterpreterUnsupported for what the interpreter cannot do, and whatever else it raises (an InterpreterError for
        a fault inside the kernel).
        """
        for step in launch.before:
            self._run(step)
        ran = self._run(launch, programs)
        for step in launch.after:
            self._run(step)
        return ran

    def _run(self, launch: Launch, programs: Sequence[int] | None = None) -> Ran:
        started = time.perf_counter()
        if launch.empty:
            return Ran(self.name, launch.grid, 0, 0.0)
        interpreter, builder = self._interpreter, self._interpreter.InterpreterBuilder
        walked: list[tuple[int, int, int]] = []
        seen: list[tuple[int, ...]] = []
        set_dim, set_idx, accesses = builder.set_grid_dim, builder.set_grid_idx, self._accesses

        def grid_dim(self: Any, x: int, y: int, z: int) -> None:
            full = (x, y, z) if programs is None else (launch.grid[0], y, z)
            seen.append(full)
            set_dim(self, *full)

        def grid_idx(self: Any, x: int, y: int, z: int) -> None:
            x = x if programs is None else programs[x]
            walked.append((x, y, z))
            if accesses is not None:
                accesses.program((x, y, z))
            set_idx(self, x, y, z)

        methods = {**self._methods, "set_grid_dim": grid_dim, "set_grid_idx": grid_idx}
        if accesses is not None and accesses.undefined_lanes:
            methods["create_masked_load"] = with_undefined_lanes(interpreter)
        executor = {"_restore_args_dev": lambda *arguments: None}  # arguments are host memory already
        grid = launch.grid if programs is None else (len(programs), *launch.grid[1:])
        arguments = {name: getattr(value, "value", value) for name, value in launch.arguments.items()}
        with contextlib.ExitStack() as replaced, np.errstate(all="ignore"):
            replacements = [(builder, methods), (interpreter.GridExecutor, executor), *self._more]
            for owner, names in [*replacements, *savings(interpreter)]:
                replaced.enter_context(_replaced(owner, names))
            if accesses is not None:
                accesses.launch(arguments)
                native = interpreter._interpreter
                replaced.enter_context(_replaced(native, watched(native, accesses)))
            try:
                launch.function[grid](**arguments)
            except interpreter.InterpreterError as error:
                reason = _unsupported(error, builder)
                if reason is None:
                    raise
                raise InterpreterUnsupported(reason) from error
        return Ran(self.name, _trim(seen[-1], len(launch.grid)), len(set(walked)), time.perf_counter() - started)


def _unsupported(error: BaseException, builder: type) -> Reason | None:
    """The reason if ``error`` says that the interpreter, and not the kernel, lacks something; None for a fault of the
    kernel. The interpreter's builder then has no such method, or refuses in one; or the interpreter does not replace a
    function of Triton's, which then asks for the compiler's builder."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
    inside = bool(frames) and frames[-1].f_code.co_filename == inspect.getfile(builder)
    lacks = isinstance(cause, AttributeError) and isinstance(cause.obj, builder)
    refuses = isinstance(cause, NotImplementedError) or str(cause).lower().startswith("unsupported")
    compiled_only = isinstance(cause, ValueError) and "must be provided outside of JIT functions" in str(cause)
    if not lacks and not (inside and refuses) and not compiled_only:
        return None
    subject = str(cause.name) if lacks else frames[-1].f_code.co_name  # type: ignore[attr-defined]
    detail = f"Triton's interpreter cannot do what the kernel asks for ({cause}): it needs a device"
    if compiled_only:
        subject = getattr(frames[-1].f_locals.get("fn"), "__name__", subject)
        detail = f"Triton's interpreter has no {subject}, which the kernel calls: it needs a device"
    return Reason(ReasonCode.NO_INTERPRETER, subject, detail)


def _trim(grid: tuple[int, ...], length: int) -> tuple[int, ...]:
    return grid[:length]


def prove(interpreter: Any, methods: dict[str, Callable[..., Any]]) -> None:
    """Compares the mended conversions and dot with torch on every code; raises RuntimeError naming what differs."""
    import triton.language as tl

    builder = interpreter.interpreter_builder
    types = {"bf16": tl.bfloat16, "fp8e4nv": tl.float8e4nv, "fp8e5": tl.float8e5}
    for name, (dtype, stored) in _STORED_AS_BITS.items():
        codes = np.arange(2 ** (8 * np.dtype(stored).itemsize), dtype=stored)
        source = interpreter.TensorHandle(codes, types[name])
        widened = methods["cast_impl"](builder, source, tl.float32).data
        expected = (
            torch.from_numpy(codes.view(np.int16 if stored is np.uint16 else np.uint8)).view(dtype).float().numpy()
        )
        if not np.array_equal(widened, expected, equal_nan=True):
            raise RuntimeError(f"the mended interpreter widens {name} wrongly")
        finite = np.sort(expected[np.isfinite(expected)])
        between = np.unique(
            np.concatenate([finite, ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)])
        )
        narrowed = methods["create_fp_to_fp"](builder, interpreter.TensorHandle(between, tl.float32), types[name], None)
        wanted = torch.from_numpy(between).to(dtype).float().numpy()
        if not np.array_equal(_from_bits(narrowed.data, name), wanted):
            raise RuntimeError(f"the mended interpreter narrows to {name} wrongly")
        a = methods["create_fp_to_fp"](builder, interpreter.TensorHandle(_small(), tl.float32), types[name], None)
        zero = interpreter.TensorHandle(np.zeros((16, 16), np.float32), tl.float32)
        product = methods["create_dot"](builder, a, a, zero, None, None).data
        if not np.array_equal(product, _small() @ _small()):
            raise RuntimeError(f"the mended interpreter multiplies {name} wrongly")


@functools.cache
def _small() -> np.ndarray:
    """A 16 x 16 matrix of integers that every dtype holds exactly."""
    return (np.arange(256, dtype=np.float32).reshape(16, 16) * 7 % 9) - 4
