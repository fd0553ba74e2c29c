"""Corrections of Triton's interpreter: what its builder and its reductions do otherwise than a device.

In every released Triton the interpreter computes with the bit patterns of bf16 and fp8, ignores rounding modes, and
adds fp16 without rounding each sum. It has no bf16 constant, no bf16 atomic, no fused multiply-add and no descriptor
that adds a tile to memory. Up to Triton 3.8 it keeps the NaN of a maximum that drops it on a device. Operations that no
device has, or that each device does differently, are refused.

The rules of tensor maps are added, too. A tensor map counts in units of 16 bytes. On an H200 it was measured that it
gives wrong numbers over rows whose pitch is no such multiple. There a store over the end of a row overwrites the
columns after it, up to the next multiple.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.execution.interpreter.accesses import Accesses
from conformance.execution.interpreter.numbers import (
    NUMPY_FLOATS,
    STORED_AS_BITS,
    WITHIN_RANGE,
    accumulated,
    add_atomically,
    as_numbers,
    fits,
    fused,
    halved,
    larger_number,
    maximum,
    minimum,
    narrow,
    scaled_dot_methods,
    scaled_dot_semantics,
    smaller_number,
    widen,
)
from conformance.execution.interpreter.savings import Replacements
from conformance.execution.interpreter.tensor_numbers import TensorNumbers
from conformance.problems import PRECISIONS, SPLIT_PRECISIONS

Methods = dict[str, Callable[..., Any]]
#: Of narrow formats: those in which a device adds, multiplies and compares. The compilers lower none of it for fp8.
_COMPUTED = ("bf16",)


class NotFaithful(NotImplementedError):
    """The interpreter cannot do something as a device does: ``subject`` says what, the message why."""

    def __init__(self, subject: str, why: str) -> None:
        super().__init__(f"{subject}: {why}")
        self.subject = subject


def _kept_as_bits(name: str) -> bool:
    return name in STORED_AS_BITS or name in WITHIN_RANGE


def _computed(name: str, operation: str) -> bool:
    """True if numbers of type ``name`` are kept as bits; refuses those that no device computes with."""
    if not _kept_as_bits(name):
        return False
    if name not in _COMPUTED:
        raise NotFaithful(f"{operation} of {name}", "the compilers lower no arithmetic of 8-bit floating point")
    return True


def corrections(interpreter: Any) -> Replacements:
    """Replacements for methods of the interpreter's builder, the first pair, of its reductions and scans, and of where
    it has numbers in place of tensors."""
    numbers = TensorNumbers(interpreter)
    methods = {**_arithmetic(interpreter), **_conversions(interpreter), **_memory(interpreter), **numbers.methods()}
    methods |= scaled_dot_methods(interpreter)
    one = interpreter.interpreter_builder
    # it multiplies in fp32, whatever the precision is: what targets take is asked of their backends
    allowed = tuple(dict.fromkeys((*one.options.allowed_dot_input_precisions, *PRECISIONS, *SPLIT_PRECISIONS)))
    options = dataclasses.replace(one.options, allowed_dot_input_precisions=allowed)
    replaced = [(interpreter.InterpreterBuilder, methods), (one, {"options": options})]
    replaced.append((interpreter, {"_patch_lang_core": _prepared(interpreter._patch_lang_core, numbers)}))
    return [*replaced, *_reductions(interpreter), *scaled_dot_semantics(interpreter), *numbers.replacements()]


def _prepared(original: Callable[..., Any], numbers: TensorNumbers) -> Callable[..., Any]:
    """Returns a replacement for the function by which Triton prepares its language before a launch. Up to Triton 3.7 it
    leaves types out that the builder has. The indices of ``tl.range`` are numbers there, and NumPy warns of each
    tensor that is an index."""

    def patch(lang: Any, *more: Any) -> None:
        original(lang, *more)
        of_others = lang.dtype.to_ir

        def to_ir(self: Any, builder: Any) -> Any:
            return getattr(builder, f"get_{self.name}_ty")() if self.name in WITHIN_RANGE else of_others(self, builder)

        lang.dtype.to_ir = to_ir  # which goes when Triton puts its own back, and so do the next two
        lang.range = numbers.indices
        lang.tensor.__index__ = lambda self: self.handle.data.item()

    return patch


def _arithmetic(interpreter: Any) -> Methods:
    handle, tl = interpreter.TensorHandle, interpreter.tl
    builder = interpreter.InterpreterBuilder
    original_dot, original_binary, original_unary = builder.create_dot, builder.binary_op, builder.unary_op
    wrapping = (np.add, np.subtract, np.multiply)

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        a_type, b_type = a.dtype.scalar, b.dtype.scalar
        if not (a_type.is_floating() and b_type.is_floating()):
            return original_dot(self, a, b, d, input_precision, max_num_imprecise_acc)
        # fp32 holds every fp16, bf16 and fp8 product exactly, so this is fp32 arithmetic throughout.
        product = np.matmul(
            as_numbers(a.data, a_type.name).astype(d.data.dtype, copy=False),
            as_numbers(b.data, b_type.name).astype(d.data.dtype, copy=False),
        )
        return handle(product + d.data, d.dtype.scalar)

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        kind = lhs.dtype.scalar
        if _kept_as_bits(kind.name):
            _computed(kind.name, getattr(op, "__name__", "arithmetic"))
            result = op(widen(lhs.data, kind.name), widen(rhs.data, kind.name))
            if result.dtype != np.bool_:
                return handle(narrow(result, kind.name), kind)
            return handle(result, tl.int1)
        if kind.name == "int1" and op in wrapping:  # one bit, modulo 2
            return handle((op(lhs.data.astype(np.int8), rhs.data.astype(np.int8)) & 1).astype(np.bool_), kind)
        result = original_binary(self, lhs, rhs, op)
        if result.data.dtype == np.bool_:
            result.dtype = tl.int1  # of a comparison, which the interpreter gives the type of its operands
        return result

    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        name = arg.dtype.scalar.name
        if _computed(name, getattr(op, "__name__", "a function")):
            return handle(narrow(op(widen(arg.data, name)), name), arg.dtype.scalar)
        return original_unary(self, arg, op)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        name = z.dtype.scalar.name
        if name not in NUMPY_FLOATS:
            _computed(name, "fma")
        return handle(fused(x.data, y.data, z.data, name), z.dtype.scalar)

    def by(operation: Callable[..., np.ndarray]) -> Callable[..., Any]:
        return lambda self, lhs, rhs: binary_op(self, lhs, rhs, operation)

    def create_clampf(self: Any, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Any:
        none = propagate_nans == interpreter._ir.PROPAGATE_NAN.NONE
        above, below = (larger_number, smaller_number) if none else (maximum, minimum)
        return binary_op(self, binary_op(self, arg, lo, above), hi, below)

    def get_all_ones_value(self: Any, kind: Any) -> Any:
        dtype = interpreter._get_np_dtype(kind)
        return handle(np.array([-1]).astype(dtype), kind.scalar)

    return {
        "create_dot": create_dot,
        "binary_op": binary_op,
        "unary_op": unary_op,
        "create_fma": create_fma,
        "create_maximumf": by(maximum),
        "create_minimumf": by(minimum),
        "create_maxnumf": by(larger_number),
        "create_minnumf": by(smaller_number),
        "create_clampf": create_clampf,
        "get_all_ones_value": get_all_ones_value,
    }


def _conversions(interpreter: Any) -> Methods:
    handle, tl = interpreter.TensorHandle, interpreter.tl
    builder = interpreter.InterpreterBuilder
    original_cast = builder.cast_impl

    def convert(src: Any, kind: Any, *, towards_zero: bool = False) -> Any:
        source, target = src.dtype.scalar.name, kind.name
        conversion = f"a conversion from {source} to {target}"
        if "fp8e4b15" in (source, target):
            raise NotFaithful(conversion, "its rounding differs between devices")
        numbers = as_numbers(src.data, source)
        if target in WITHIN_RANGE and (towards_zero or not fits(numbers, target)):
            raise NotFaithful(conversion, "what is past its range, or rounded towards zero, differs between devices")
        if kind.is_floating():
            return handle(narrow(numbers, target, towards_zero=towards_zero), kind)
        return handle(numbers.astype(interpreter._get_np_dtype(kind)), kind)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        return convert(src, dst_type.scalar, towards_zero=rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ)

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if _kept_as_bits(source.name) or _kept_as_bits(target.name) or "fp8e4b15" in (source.name, target.name):
            return convert(src, target)
        return original_cast(self, src, dst_type)

    def get_bf16(self: Any, value: Any) -> Any:
        return handle(narrow(np.array([value], np.float64), "bf16"), tl.bfloat16)

    return {"create_fp_to_fp": create_fp_to_fp, "cast_impl": cast_impl, "get_bf16": get_bf16}


def _memory(interpreter: Any) -> Methods:
    handle, tl, options = interpreter.TensorHandle, interpreter.tl, interpreter._ir.PADDING_OPTION
    builder = interpreter.InterpreterBuilder
    original_load: Any = getattr(builder, "create_descriptor_load", None)
    original_pointer_load: Any = getattr(builder, "create_tensor_pointer_load", None)
    original_rmw = builder.create_atomic_rmw

    def padded_with_nan(self: Any, place: tuple[Any, Any], more: tuple[Any, ...]) -> Any:
        """Returns the result of a load with NaN for the elements outside the bounds."""
        pointers, mask = place
        kind = pointers.get_element_ty()
        nan = np.broadcast_to(narrow(np.array([np.nan]), kind.name), pointers.data.shape)
        mask = handle(np.asarray(getattr(mask, "data", mask)), tl.int1)
        return self.create_masked_load(pointers, mask, handle(nan.copy(), kind), *more)

    def create_descriptor_load(self: Any, desc: Any, indices: Any, *more: Any, **named: Any) -> Any:
        narrowed = _kept_as_bits(desc.base.dtype.element_ty.name)
        if narrowed and getattr(desc, "padding", None) == options.PAD_NAN:
            return padded_with_nan(self, desc.materialize_pointers(indices), (*more, *named.values(), False))
        return original_load(self, desc, indices, *more, **named)

    def create_tensor_pointer_load(self: Any, ptr: Any, boundary_check: Any, padding_option: Any, *more: Any) -> Any:
        if _kept_as_bits(ptr.base.dtype.element_ty.name) and padding_option == options.PAD_NAN:
            return padded_with_nan(self, ptr.materialize_pointers(boundary_check), more)
        return original_pointer_load(self, ptr, boundary_check, padding_option, *more)

    def create_atomic_rmw(self: Any, operation: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        kind = val.dtype.scalar
        if not _kept_as_bits(kind.name):
            return original_rmw(self, operation, ptr, val, mask, sem, scope)
        if kind.name not in _COMPUTED or operation != interpreter._ir.ATOMIC_OP.FADD:
            raise NotFaithful(f"{operation} of {kind.name}", "only sums of bf16 are known")
        native = interpreter._interpreter
        add = getattr(native, "add_atomically", None)  # watches, where accesses are watched
        pointers, values, enabled = np.broadcast_arrays(ptr.data, val.data, np.asarray(mask.data))
        if add is not None:
            return handle(add(pointers, values, enabled, kind.name), kind)
        return handle(add_atomically(native, pointers, values, enabled, kind.name), kind)

    def create_descriptor_reduce(self: Any, kind: Any, desc: Any, value: Any, indices: Any) -> Any:
        if kind != interpreter._ir.DESCRIPTOR_REDUCE_KIND.ADD or not value.dtype.scalar.is_floating():
            raise NotFaithful(f"{kind} of {value.dtype.scalar} by a descriptor", "only sums of floats are known")
        pointers, mask = desc.materialize_pointers(indices)
        inside = handle(np.asarray(getattr(mask, "data", mask)), tl.int1)
        order = interpreter._ir.MEM_SEMANTIC.RELAXED
        return self.create_atomic_rmw(interpreter._ir.ATOMIC_OP.FADD, pointers, value, inside, order, None)

    methods: Methods = {
        "create_descriptor_load": create_descriptor_load,
        "create_tensor_pointer_load": create_tensor_pointer_load,
        "create_atomic_rmw": create_atomic_rmw,
    }
    methods = {name: method for name, method in methods.items() if hasattr(builder, name)}  # releases differ
    return {**methods, "create_descriptor_reduce": create_descriptor_reduce} if original_load else methods


def _reductions(interpreter: Any) -> Replacements:
    """Replacements for the reductions and scans of narrow formats."""
    handle, tl = interpreter.TensorHandle, interpreter.tl
    reductions, scans = interpreter.ReduceOps, interpreter.ScanOps
    original_sum, original_min_max = reductions.sum, reductions.min_max

    def rounds(operand: Any, operation: str) -> bool:
        """True if a device rounds each step of a reduction of ``operand``, and the interpreter does not."""
        name = operand.dtype.name
        return name == "fp16" or _computed(name, operation)

    def tensor(self: Any, numbers: np.ndarray, kind: Any) -> Any:
        return self.to_tensor(narrow(np.asarray(numbers), kind.name), kind)

    def sum_(self: Any, operand: Any) -> Any:
        if not rounds(operand, "sum"):
            return original_sum(self, operand)
        numbers, name = as_numbers(operand.handle.data, operand.dtype.name), operand.dtype.name
        if self.axis is None:
            total = halved(numbers.reshape(-1), 0, name).reshape([1] * numbers.ndim if self.keep_dims else [])
        else:
            total = halved(numbers, self.axis, name)
            total = total if self.keep_dims else total.squeeze(self.axis)
        return tensor(self, total, operand.dtype)

    def min_max(self: Any, operand: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        values = operand[0] if isinstance(operand, tuple) else operand
        name = values.dtype.name
        numbers = as_numbers(values.handle.data, name)
        if idx_reduce_op is not None and numbers.dtype.kind == "f" and np.isnan(numbers).any():
            raise NotFaithful("an index reduction of NaN", "which element wins depends on the device's order")
        if idx_reduce_op is None and val_reduce_op in (np.max, np.min):  # Triton up to 3.4
            val_reduce_op = np.nanmax if val_reduce_op is np.max else np.nanmin
        if not _kept_as_bits(name):
            return original_min_max(self, operand, val_reduce_op, idx_reduce_op)
        whole = tl.core.tensor(handle(numbers, tl.float32), _with_element(tl, values.type, tl.float32))
        results = original_min_max(self, whole, val_reduce_op, idx_reduce_op)
        value, *index = results if isinstance(results, tuple) else (results,)
        result = tensor(self, np.reshape(value.handle.data, value.shape), values.dtype)
        return (result, *index) if index else result

    def scan(method: str, operation: np.ufunc) -> Callable[..., Any]:
        original = getattr(scans, method)

        def scanned(self: Any, operand: Any) -> Any:
            if not rounds(operand, method):
                return original(self, operand)
            numbers = as_numbers(operand.handle.data, operand.dtype.name)
            return [tensor(self, accumulated(operation, numbers, self.axis, operand.dtype.name), operand.dtype)]

        return scanned

    return [
        (reductions, {"sum": sum_, "min_max": min_max}),
        (scans, {"cumsum": scan("cumsum", np.add), "cumprod": scan("cumprod", np.multiply)}),
    ]


def _with_element(tl: Any, kind: Any, element: Any) -> Any:
    if hasattr(kind, "with_element_ty"):
        return kind.with_element_ty(element)
    return tl.block_type(element, kind.shape) if kind.is_block() else element  # Triton 3.2 and 3.3


def refusing(method: Callable[..., Any], name: str, format_name: str, why: str) -> Callable[..., Any]:
    """The replacement for ``method``, called ``name``, that refuses every tensor and type of the format, Triton's name
    (empty: whatever is asked)."""

    def refuses(self: Any, *arguments: Any, **named: Any) -> Any:
        kinds = [getattr(argument, "dtype", argument) for argument in arguments]
        names = {getattr(getattr(kind, "scalar", None), "name", None) for kind in kinds}
        if not format_name or format_name in names or (name == "get_bf16" and format_name == "bf16"):
            raise NotFaithful(name, f"its proof failed: {why}")
        return method(self, *arguments, **named)

    return refuses


#: Bytes of which the base, every pitch and, for stores, the rows of a described tensor are multiples.
UNIT = 16


def descriptor_rules(interpreter: Any, accesses: Accesses | None, reduce: Any) -> Replacements:
    """Replacements for one launch, which note in ``accesses`` what breaks a rule; without accesses an AssertionError
    is raised, as by the interpreter. ``reduce`` is the method that adds a tile to memory. Nothing for releases without
    descriptors."""
    descriptor = getattr(interpreter, "TensorDescHandle", None)
    if descriptor is None:
        return []
    materialize = descriptor.materialize_pointers
    pads = "padding" in inspect.signature(descriptor).parameters  # up to Triton 3.4 a load names no padding
    store: Any = getattr(interpreter.InterpreterBuilder, "create_descriptor_store", None)

    def validate(self: Any) -> None:
        base, size = int(self.base.data.item()), _element_size(self)
        assert len(self.strides) == len(self.block_shape) == self.ndim >= 1, "a descriptor has one stride a dimension"
        assert self.strides[-1].data.item() == 1, "last dim must be contiguous"
        pitches = [int(stride.data.item()) * size for stride in self.strides[:-1]]
        faults = [f"a pitch of {pitch} bytes" for pitch in pitches if pitch % UNIT]
        if base % UNIT:
            faults.insert(0, f"a base {base % UNIT} bytes behind a multiple of {UNIT}")
        if not faults:
            return
        text = f"{' and '.join(faults)}: of a tensor map they must be multiples of {UNIT} bytes, or numbers are wrong"
        assert accesses is not None, text
        accesses.broke_a_rule("describes", base, text)

    def materialize_pointers(self: Any, offsets: Any) -> Any:
        if (np.asarray(offsets[-1].data) * _element_size(self) % UNIT).any():
            why = f"where a block begins that is no multiple of {UNIT} bytes into its rows was not measured"
            raise NotFaithful("a tensor map", why)
        return materialize(self, offsets)

    def over_the_end(desc: Any, indices: Any) -> None:
        row, first = int(desc.shape[-1].data.item()), int(np.asarray(indices[-1].data).item())
        size = _element_size(desc)
        if accesses is not None and row * size % UNIT and first < row < first + desc.block_shape[-1]:
            _, mask = desc.materialize_pointers(indices)
            if np.asarray(getattr(mask, "data", mask)).any():
                text = f"a block over the end of rows of {row * size} bytes, which is no multiple of {UNIT}"
                text += ": a device overwrites the bytes up to the next one"
                accesses.broke_a_rule("stores to", int(desc.base.data.item()), text)

    def create_descriptor_load(self: Any, desc: Any, indices: Any, *cache: Any) -> Any:
        pointers, mask = desc.materialize_pointers(indices)
        element = pointers.get_element_ty()
        zeros = np.zeros(pointers.data.shape, interpreter._get_np_dtype(element))
        padded = interpreter.TensorHandle(zeros, element)
        return self.create_masked_load(pointers, mask, padded, *cache, is_volatile=False)

    def create_descriptor_store(self: Any, desc: Any, value: Any, indices: Any) -> Any:
        over_the_end(desc, indices)
        return store(self, desc, value, indices)

    def create_descriptor_reduce(self: Any, kind: Any, desc: Any, value: Any, indices: Any) -> Any:
        over_the_end(desc, indices)
        return reduce(self, kind, desc, value, indices)

    rules: Replacements = [(descriptor, {"validate": validate, "materialize_pointers": materialize_pointers})]
    if store is not None:
        methods: dict[str, Any] = {"create_descriptor_store": create_descriptor_store}
        methods |= {"create_descriptor_reduce": create_descriptor_reduce} if reduce else {}
        methods |= {} if pads else {"create_descriptor_load": create_descriptor_load}
        rules.append((interpreter.InterpreterBuilder, methods))
    return rules


def refuse_rounding_descriptors(interpreter: Any, arguments: dict[str, Any]) -> None:
    """Refuses a host descriptor that rounds fp32 to tf32 if the interpreter's descriptors do not: up to Triton 3.8."""
    descriptor = getattr(interpreter, "TensorDescHandle", None)
    rounds = [name for name, value in arguments.items() if getattr(value, "round_f32_to_tf32", False) is True]
    if rounds and descriptor is not None and not hasattr(interpreter, "_round_f32_to_tf32"):
        raise NotFaithful(f"the descriptor {rounds[0]}", "it rounds to tf32, and this release's interpreter does not")


def _element_size(desc: Any) -> int:
    return int(desc.base.dtype.element_ty.primitive_bitwidth) // 8
