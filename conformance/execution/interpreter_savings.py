"""Work that Triton's interpreter repeats for every operation, done once per launch.

Nothing here changes a result: the attributes of every type and tensor are those that Triton's constructors set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What to replace while a launch runs: pairs of the owner and its replaced attributes by name.
Replacements = list[tuple[Any, dict[str, Any]]]


def savings(interpreter: Any) -> Replacements:
    """The replacements for one launch with ``interpreter``, the module ``triton.runtime.interpreter``. Each launch
    needs new ones, because they keep types and shapes by their ids."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic

    return [
        (tl.core.block_type, {"__init__": _block_type_init(tl.core.block_type.__init__)}),
        (tl.core.tensor, {"__init__": _tensor_init(tl.core.tensor.__init__)}),
        (TritonSemantic, {"broadcast_impl_value": _broadcast(TritonSemantic.broadcast_impl_value)}),
        (TritonSemantic, _overflow_check_in_debug_mode(TritonSemantic)),
        (interpreter, {"_get_np_dtype": _numpy_dtype(interpreter._get_np_dtype)}),
        (interpreter, _patched_once(interpreter)),
    ]


def _block_type_init(original: Callable[..., None]) -> Callable[..., None]:
    """The constructor of block types: checks and names each pair of element type and shape once."""
    states: dict[tuple[Any, ...], dict[str, Any]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        # A constexpr has no hash. The state keeps the element type alive, so that no other one gets its id.
        key = (id(element_ty), *(getattr(size, "value", size) for size in shape))
        state = states.get(key)
        if state is None:
            original(self, element_ty, shape)
            states[key] = dict(self.__dict__)
        else:
            self.__dict__.update(state)

    return init


def _tensor_init(original: Callable[..., None]) -> Callable[..., None]:
    """The constructor of tensors: works out each shape once."""
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


def _broadcast(original: Callable[..., Any]) -> Callable[..., Any]:
    """Two tensors of one shape are broadcast already."""

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        blocks = left.is_block(), right.is_block()
        if blocks == (False, False) or (all(blocks) and left.shape.values == right.shape.values):
            return lhs, rhs
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
    """The NumPy dtype that holds a type's elements, looked up once for each name of a type."""
    dtypes: dict[str, Any] = {}

    def numpy_dtype(tt_dtype: Any) -> Any:
        if tt_dtype.name not in dtypes:
            dtypes[tt_dtype.name] = original(tt_dtype)
        return dtypes[tt_dtype.name]

    return numpy_dtype


def _patched_once(interpreter: Any) -> dict[str, Any]:
    """The interpreter patches ``triton.language`` again for every device function called; once per launch is enough."""
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
        patched.add(languages[id(names)])
        return original(fn)

    return {"_patch_lang": patch}
