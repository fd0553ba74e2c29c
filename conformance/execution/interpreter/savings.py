"""Work that Triton's interpreter repeats for every operation, done once per launch.

Nothing here changes a result: the attributes of every type and tensor are those that Triton's constructors set.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: What to replace while a launch runs: pairs of the owner and its replaced attributes by name.
Replacements = list[tuple[Any, dict[str, Any]]]


@contextlib.contextmanager
def replaced_in(owner: Any, names: dict[str, Any]) -> Iterator[None]:
    """Replaces, inside, attributes of ``owner`` by those of ``names``."""
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


def savings(interpreter: Any) -> Replacements:
    """Returns the replacements for one launch with ``interpreter``, the module ``triton.runtime.interpreter``. Each
    launch needs new ones, because they keep types and shapes by their ids."""
    import triton.language as tl
    from triton.language import semantic

    return [
        (tl.core.dtype, {"__eq__": _dtype_equality(tl.core.dtype)}),
        (tl.core.block_type, {"__init__": _block_type_init(tl.core.block_type.__init__)}),
        (tl.core.block_type, {"to_ir": _block_type_to_ir(tl.core.block_type.to_ir)}),
        (tl.core.tensor, {"__init__": _tensor_init(tl.core.tensor.__init__)}),
        (tl.core, _unwrapped_at_once(tl.core)),
        *_semantic_savings(getattr(semantic, "TritonSemantic", None), tl.core),
        (interpreter, {"_get_np_dtype": _numpy_dtype(interpreter._get_np_dtype)}),
        (interpreter, _patched_once(interpreter)),
        (interpreter._interpreter, _memory_access(interpreter._interpreter)),
    ]


def _semantic_savings(semantic: Any, core: Any) -> Replacements:
    """Returns the replacements in the class ``TritonSemantic``; none for Triton 3.2 and 3.3, which have functions in
    its place."""
    if semantic is None:
        return []
    return [
        (semantic, {"broadcast_impl_value": _broadcast(semantic.broadcast_impl_value)}),
        (semantic, _operands_of_one_type(semantic, core)),
        (semantic, _overflow_check_in_debug_mode(semantic)),
    ]


def _dtype_equality(dtype: Any) -> Callable[[Any, Any], bool]:
    """Two plain dtypes are equal if their names are; anything else may be wrapped."""
    original: Callable[[Any, Any], bool] = dtype.__eq__

    def equal(self: Any, other: Any) -> bool:
        return bool(self.name == other.name) if type(other) is dtype else original(self, other)

    return equal


def _block_type_init(original: Callable[..., None]) -> Callable[..., None]:
    """Returns the constructor of block types: checks and names each pair of element type and shape once."""
    states: dict[tuple[Any, ...], dict[str, Any]] = {}
    shapes: set[int] = set()  # the ids of the shapes in ``states``
    of_shape: dict[tuple[int, int], dict[str, Any]] = {}  # by the ids of an element type and of one of these shapes

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        # A constexpr has no hash. The state keeps element type and shape alive, so that no other one gets their ids.
        state = of_shape.get((id(element_ty), id(shape)))
        if state is None:
            key = (id(element_ty), *(getattr(size, "value", size) for size in shape))
            state = states.get(key)
            if state is None:
                original(self, element_ty, shape)
                state = states[key] = dict(self.__dict__)
                shapes.add(id(self.shape))
            if id(shape) in shapes:
                of_shape[id(element_ty), id(shape)] = state
        self.__dict__.update(state)

    return init


def _block_type_to_ir(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns the type that the interpreter's builder makes of a block type, made once for each element type
    and shape."""
    types: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

    def to_ir(self: Any, builder: Any) -> Any:
        key = id(self.element_ty), id(self.shape)
        if key not in types:
            types[key] = original(self, builder), self.element_ty, self.shape  # these two keep their ids
        return types[key][0]

    return to_ir


def _tensor_init(original: Callable[..., None]) -> Callable[..., None]:
    """Returns the constructor of tensors: works out each shape once."""
    states: dict[int, tuple[Any, dict[str, Any]]] = {}

    def init(self: Any, handle: Any, type: Any) -> None:  # noqa: A002, the name is Triton's
        shape = type.shape if type.is_block() else None
        if id(shape) in states:
            self.__dict__.update(states[id(shape)][1], handle=handle, type=type, dtype=type.scalar)
            return
        original(self, handle, type)
        of_shape = {name: value for name, value in self.__dict__.items() if name not in ("handle", "type", "dtype")}
        states[id(shape)] = (shape, of_shape)  # the shape stays alive, so that no other one gets its id

    return init


def _unwrapped_at_once(core: Any) -> dict[str, Any]:
    """Returns faster functions that unwrap constants: no value of these types is a constant, or holds one."""
    name = "_unwrap_if_constexpr"
    original = getattr(core, name, None)
    if original is None:
        return {}
    plain = {core.tensor, core.dtype, core.block_type, core.pointer_type, type(None), bool, int, float, str}

    def unwrapped(o: Any) -> Any:
        return o if type(o) in plain else original(o)

    return {name: unwrapped}


_OPERANDS = ["self", "lhs", "rhs", "allow_lhs_ptr", "allow_rhs_ptr", "arithmetic_check", "div_or_mod"]


def _operands_of_one_type(semantic: Any, core: Any) -> dict[str, Any]:
    """Returns the check of an operator's operands. Two tensors of one integer type need neither a check nor a cast, nor
    do two of one floating type unless they are divided. A pointer and integers need neither where pointers are allowed.
    A number takes the type of the tensor before it, if that is an integer type and holds it, or a floating one."""
    name = "binary_op_type_checking_impl"
    original = getattr(semantic, name, None)
    if original is None or list(inspect.signature(original).parameters) != _OPERANDS:
        return {}
    tensor, dtype, pointer = core.tensor, core.dtype, core.pointer_type
    limits: dict[int, tuple[Any, int, int]] = {}  # by the id of a type, which is kept: of the integers that it holds

    def holds(kind: Any, number: Any) -> bool:
        if type(number) is int and kind.is_int():
            if id(kind) not in limits:
                narrow = kind.int_bitwidth < 8
                limits[id(kind)] = kind, *((1, 0) if narrow else (kind.get_int_min_value(), kind.get_int_max_value()))
            _, least, most = limits[id(kind)]
            return least <= number <= most
        return type(number) in (int, float) and bool(kind.is_floating())

    def check(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if type(lhs) is tensor:
            kind = lhs.dtype
            if type(kind) is dtype and (kind.is_int() or (not div_or_mod and kind.is_floating())):
                if type(rhs) is tensor:
                    if kind is rhs.dtype:
                        return self.broadcast_impl_value(lhs, rhs)
                elif arithmetic_check and holds(kind, rhs):
                    return self.broadcast_impl_value(lhs, self.scalar_constant(rhs, dtype=kind))
            elif type(kind) is pointer and allow_lhs_ptr and type(rhs) is tensor and rhs.dtype.is_int():
                return self.broadcast_impl_value(lhs, rhs)
        return original(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return {name: check}


def _broadcast(original: Callable[..., Any]) -> Callable[..., Any]:
    """Two tensors of one shape are broadcast already, and a block gives its type to a scalar of the same elements."""

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        blocks = left.is_block(), right.is_block()
        if blocks == (False, False) or (all(blocks) and left.shape.values == right.shape.values):
            return lhs, rhs
        if not blocks[1] and left.element_ty is right:
            return lhs, self.tensor(self.builder.create_splat(left.to_ir(self.builder), rhs.handle), left)
        if not blocks[0] and right.element_ty is left:
            return self.tensor(self.builder.create_splat(right.to_ir(self.builder), lhs.handle), right), rhs
        return original(self, lhs, rhs)

    return broadcast_impl_value


def _overflow_check_in_debug_mode(semantic: Any) -> dict[str, Any]:
    """The interpreter interprets a check for overflow with every integer operation and looks at its result in debug
    mode only. In any other mode the check is left out."""
    name = "binary_op_sanitize_overflow_impl"
    original = getattr(semantic, name, None)
    if original is None:
        return {}

    def check(self: Any, lhs: Any, rhs: Any, binary_op: Callable[..., Any]) -> None:
        if self.builder.options.debug:
            original(self, lhs, rhs, binary_op)

    return {name: check}


def _numpy_dtype(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the NumPy dtype that holds a type's elements, looked up once for each name of a type."""
    dtypes: dict[str, Any] = {}

    def numpy_dtype(tt_dtype: Any) -> Any:
        if tt_dtype.name not in dtypes:
            dtypes[tt_dtype.name] = original(tt_dtype)
        return dtypes[tt_dtype.name]

    return numpy_dtype


#: What the interpreter set in ``triton.language``: the owner, the name, the attribute before and the one set. By the
#: modules for which it did, and those for which it had in the same launch.
_PATCHES: dict[tuple[frozenset[int], frozenset[frozenset[int]]], list[tuple[Any, str, Any, Any]]] = {}


def _patched_once(interpreter: Any) -> dict[str, Any]:
    """The interpreter patches ``triton.language`` again for every device function called; once per launch is enough.
    What it sets is the same in each launch and is worked out in the first one."""
    original = getattr(interpreter, "_patch_lang", None)
    if original is None or not hasattr(interpreter, "_LangPatchScope"):
        return {}
    import triton.language as tl

    patched: set[frozenset[int]] = set()
    languages: dict[int, frozenset[int]] = {}  # of the globals of a function: the modules that its names mean

    def patch(fn: Any) -> Any:
        names = fn.__globals__
        if id(names) not in languages:
            languages[id(names)] = frozenset(id(value) for value in names.values() if value is tl or value is tl.core)
        if languages[id(names)] in patched:
            return interpreter._LangPatchScope()
        key = languages[id(names)], frozenset(patched)
        patched.add(languages[id(names)])
        scope = _patched_again(interpreter._LangPatchScope(), _PATCHES.get(key))
        if scope is None:
            scope = original(fn)
            first: dict[tuple[Any, str], Any] = {}  # an attribute may be set twice
            for owner, name, before in getattr(scope, "_changes", ()):
                first.setdefault((owner, name), before)
            _PATCHES[key] = [(owner, name, before, getattr(owner, name)) for (owner, name), before in first.items()]
        return scope

    return {"_patch_lang": patch}


def _patched_again(scope: Any, patches: Any) -> Any:
    """``scope`` with the same ``patches`` as in an earlier launch; None if there was none, or if an attribute is not
    what it was then."""
    if patches is None or any(
        getattr(owner, name, before) not in (before, now) for owner, name, before, now in patches
    ):
        return None
    for owner, name, _, now in patches:
        scope.set_attr(owner, name, now)
    return scope


#: Elements from which on NumPy loads and stores a block sooner than the interpreter, which goes from one to the next.
LARGE = 512
#: Bytes between the first and the last element: a block that is wider has a pointer that is not meant.
WIDEST = 1 << 40


class _Elements:
    """``count`` elements of the NumPy ``dtype`` at an address, for ``np.asarray``."""

    def __init__(self, address: int, count: int, dtype: np.dtype) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (count,), "typestr": dtype.str}


def _elements(pointers: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray] | None:
    """Memory as an array of ``dtype``, and the index in it to which each of ``pointers`` points. None for pointers that
    are not whole elements apart, or too far, and for a null pointer, at which NumPy has no array."""
    first = pointers.min()
    distances = pointers - first
    last = int(distances.max())
    if not first or last > WIDEST or dtype.kind not in "biuf" or (distances & np.uint64(dtype.itemsize - 1)).any():
        return None
    indices = (distances >> np.uint64(dtype.itemsize.bit_length() - 1)).view(np.int64)
    return np.asarray(_Elements(int(first), last // dtype.itemsize + 1, dtype)), indices


def _memory_access(native: Any) -> dict[str, Any]:
    """Loads and stores of large blocks. Only what the mask has is touched, and of two values for one place the last
    stays, as in the interpreter's own."""
    if not hasattr(native, "load") or not hasattr(native, "store"):
        return {}
    original_load, original_store = native.load, native.store

    def load(pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        mask = np.asarray(mask)  # may be a memoryview
        if pointers.size >= LARGE and pointers.shape == mask.shape == other.shape and other.dtype == dtype:
            pointers = np.ascontiguousarray(pointers)
            some = None if mask.all() else np.ascontiguousarray(mask)
            enabled = pointers if some is None else pointers[some]
            place = _elements(enabled, dtype) if enabled.size else None
            if place is not None:
                memory, indices = place
                if some is None:
                    return memory[indices]
                loaded = np.array(other, order="C")
                loaded[some] = memory[indices]
                return loaded
        return original_load(pointers, mask, other, dtype)

    def store(pointers: Any, values: Any, mask: Any) -> Any:
        mask = np.asarray(mask)
        if pointers.size >= LARGE and pointers.shape == mask.shape == values.shape:
            some = mask.all() or np.ascontiguousarray(mask)
            enabled, stored = pointers[some].ravel(), values[some].ravel()
            place = _elements(enabled, values.dtype) if enabled.size else None
            if place is not None:
                memory, indices = place
                memory[indices] = stored
                return None
        return original_store(pointers, values, mask)

    return {"load": load, "store": store}
