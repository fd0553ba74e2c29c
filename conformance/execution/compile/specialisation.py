"""The properties of a launch for which Triton compiles specialised code. Deduplication, predicted compile counts and
cache checks ask :func:`specialisation`.

Triton compiles a kernel once per combination of argument classes. The classes, measured on 3.4 to 3.9:

* An integer equal to 1 becomes a constant. Any other is 32-bit, 64-bit or unsigned 64-bit, and a multiple of 16 or not.
* A float is fp32 whatever its value (0.0 and 1.0 too). A bool is one bit.
* A pointer has an element type and is 16-byte aligned or not. With buffer operations on, AMD's backend also asks
  whether its storage is below 2 GiB.
* A host tensor descriptor has an element type and a block shape. Sizes and strides do not count. Those of Triton 3.2
  and 3.3 have one class.
* A constexpr parameter counts with its value. None is a constant.

``do_not_specialize`` and annotated types act as Triton's documentation of ``jit`` says.

Triton's hash of a function's source, which is a part of the key of a compiled kernel, is here too.

Up to Triton 3.8 the hash of a caller misses the module's constants that a callee uses, unless the callee was hashed
before (triton-lang/triton#10494). Processes that compile kernels in different orders then have different hashes, and
miss each other's kernels. Where callees are hashed first, the order no longer counts. Constants of one name in several
modules are hashed in the order of their modules' addresses. A kernel that uses such, with unlike values, gets a hash of
ours.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from conformance.kernels.launch import Launch
from conformance.targets import Target


def source_hash(function: Any) -> str | None:
    """The hash of Triton's ``function``, alike in every process; None for one that is interpreted, which has none.

    To be called before Triton hashes ``function`` itself: a hash that is there stays.
    """
    hashed: set[int] = set()

    def visit(caller: Any) -> str:
        if id(caller) not in hashed and caller.hash is None:
            hashed.add(id(caller))
            callees = [visit(callee) for callee in functions_named(caller.fn, _is_hashed)]
            caller.cache_key  # noqa: B018  # Triton makes the hash when it is read
            constants = _constants(caller)
            if len({name for name, _, _ in constants}) < len({(name, value) for name, _, value in constants}):
                parts = [inspect.getsource(caller.fn), caller.starting_line_number, callees, constants]
                caller.hash = hashlib.sha256(repr(parts).encode()).hexdigest()
        return str(caller.cache_key)

    return visit(function) if _is_hashed(function) else None


def functions_named(function: Any, chosen: Callable[[Any], bool]) -> Iterator[Any]:
    """Yields the ``chosen`` objects, such as Triton's functions, that the Python ``function`` names, also as attributes
    of modules."""
    names = inspect.getclosurevars(function)
    for value in (*names.nonlocals.values(), *names.globals.values()):
        if isinstance(value, ModuleType):
            yield from filter(chosen, (getattr(value, name, None) for name in sorted(names.unbound)))
        elif chosen(value):
            yield value


def _constants(function: Any) -> list[tuple[str, str, str]]:
    """Returns the constants that Triton has seen ``function`` use, also through callees: name, module and value,
    sorted."""
    seen = getattr(function, "used_global_vals", {}).items()
    return sorted((name, str(scope.get("__name__")), repr(value)) for (name, _), (value, scope) in seen)


def _is_hashed(value: Any) -> bool:
    """True if Triton has or makes a hash of ``value``. Asked of its type: to read the hash would make it."""
    return hasattr(type(value), "cache_key") and inspect.isfunction(value.fn)


DIVISOR = 16
INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)
UINT64 = range(2**63, 2**64)
BUFFER_LIMIT = 2**31 - 1  # bytes that AMD's buffer instructions can address


@dataclass(frozen=True)
class Specialisation:
    """All that a compilation depends on: launches with equal specialisations share one compilation.

    ``arguments`` holds (parameter, class) pairs such as ("M", "i32:16"), ("a_ptr", "*bf16:16") or ("BLOCK", "=64");
    ``options`` the compile options by name; ``kernel`` Triton's hash of the source and all that it calls, or the
    kernel's name in a process that interprets.
    """

    name: str
    kernel: str
    target_id: str
    arguments: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]

    @cached_property
    def key(self) -> str:
        """Hex digest of all of it."""
        return hashlib.sha256(repr((self.kernel, self.target_id, self.arguments, self.options)).encode()).hexdigest()

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}: {text}" for name, text in self.arguments)
        options = "".join(f", {name}={text}" for name, text in self.options)
        return f"{self.name}({arguments}{options}) on {self.target_id}"

    def differences(self, other: Specialisation) -> list[str]:
        """Returns the differences that keep ``self`` and ``other`` from sharing a compilation, one readable
        line each."""
        lines: list[str] = []
        for first, second in zip(self._parts(), other._parts(), strict=True):
            for name in {**first, **second}:
                if first.get(name) != second.get(name):
                    lines.append(f"{name}: {first.get(name, 'absent')} / {second.get(name, 'absent')}")
        return lines

    def _parts(self) -> tuple[dict[str, str], ...]:
        identity = {"kernel": self.name, "source": self.kernel, "target": self.target_id}
        return identity, dict(self.arguments), dict(self.options)


def specialisation(launch: Launch, target: Target, *, by_name: bool = False) -> Specialisation:
    """Returns all that compiling ``launch`` for ``target`` depends on; the grid is not part of it.

    With ``by_name`` the name of a function stands for its source, also of one that is a constant. Then a process with
    TRITON_INTERPRET=1, where functions have no hash, gets the key that a compiling process gets.

    Raises TypeError for an argument that Triton cannot take, and OverflowError for an integer outside 64 bits.
    ValueError is raised for arguments that do not match the kernel's parameters.

    Constexpr values count by type and value: True, 1 and 1.0 are three specialisations. Triton looks them up by Python
    equality, so a process that has compiled one of them uses it for the others. A kernel should therefore keep to one
    type per parameter.
    """
    kernel = launch.function
    arguments = bound_arguments(kernel, launch.arguments)
    classes = tuple((p.name, _parameter_class(p, arguments[p.name], target, by_name)) for p in parameters(kernel))
    options = tuple(sorted((name, repr(value)) for name, value in launch.options.items()))
    return Specialisation(kernel.fn.__name__, _function(kernel, by_name), target.id, classes, options)


def _function(function: Any, by_name: bool) -> str:
    """Triton's hash of the source of ``function`` and all that it calls; else its name. In a process with
    TRITON_INTERPRET=1 a function has no hash, and cannot change either."""
    name = f"{function.fn.__module__}:{function.fn.__qualname__}"
    return name if by_name else source_hash(function) or name


def parameters(kernel: Any) -> list[Any]:
    """Triton's description of each parameter of ``kernel``, compiled or interpreted."""
    if hasattr(kernel, "params"):
        return list(kernel.params)
    from triton.runtime.jit import KernelParam

    given = kernel.kwargs if hasattr(kernel, "kwargs") else kernel.rewriter.kwargs  # as Triton 3.4 has it
    marks = [given.get(mark) or () for mark in ("do_not_specialize", "do_not_specialize_on_alignment")]
    signature = inspect.signature(kernel.fn).parameters.values()
    return [KernelParam(i, p, *(i in mark or p.name in mark for mark in marks)) for i, p in enumerate(signature)]


def bound_arguments(kernel: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` completed with the kernel's default values.

    Raises ValueError naming the parameters that are missing or unknown.
    """
    by_name = {parameter.name: parameter for parameter in parameters(kernel)}
    unknown = sorted(set(arguments) - set(by_name))
    missing = sorted(name for name, p in by_name.items() if name not in arguments and not p.has_default)
    if unknown or missing:
        raise ValueError(
            f"{kernel.fn.__name__}: unknown arguments {unknown}, missing arguments {missing}; "
            f"its parameters are {list(by_name)}"
        )
    return {name: arguments.get(name, p.default) for name, p in by_name.items()}


def _parameter_class(parameter: Any, value: Any, target: Target, by_name: bool) -> str:
    if parameter.is_constexpr:
        return _constant(value, by_name)
    specialise = not parameter.do_not_specialize
    align = specialise and not parameter.do_not_specialize_on_alignment
    own = _argument_class(value, target, parameter.is_const, specialise, align, by_name)
    annotated = parameter.annotation_type
    if not annotated:
        return own
    # An annotation replaces the type; of floats and bools nothing else counts, of integers and pointers the value does.
    if annotated == "u1" or annotated.startswith(("fp", "bf")):
        return str(annotated)
    return f"{annotated}({own})" if own.startswith("=") else annotated + "".join(own.partition(":")[1:])


def _argument_class(
    value: Any,
    target: Target,
    const: bool = False,
    specialise: bool = True,
    align: bool = True,
    by_name: bool = False,
) -> str:
    if value is None:
        return _constant(None)
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return _integer_class(value, specialise, align)
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, tuple):
        parts = (_argument_class(part, target, by_name=by_name) for part in value)  # marks do not reach inside
        return f"({', '.join(parts)})"
    if hasattr(value, "data_ptr"):
        return _pointer_class(value, target, const, specialise, align)
    if hasattr(value, "tma_desc_cpu_ptr"):
        return "nvTmaDesc"
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        return f"tensordesc<{_element_type(value.base)}{list(value.block_shape)}>"
    if hasattr(type(value), "cache_key") or type(value).__name__ == "constexpr":
        return _constant(value, by_name)
    raise TypeError(
        f"{value!r} ({type(value).__name__}) is no kernel argument: give a tensor, a tensor descriptor, an int, a "
        "float, a bool, None or a tuple of them"
    )


def _constant(value: Any, by_name: bool = False) -> str:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if hasattr(value, "fn"):  # a function of Triton's
        return f"={_function(value, by_name)}"
    return f"={getattr(value, 'cache_key', None) or repr(value)}"


def _integer_class(value: int, specialise: bool, align: bool) -> str:
    if specialise and value == 1:
        return _constant(1)
    for name, values in (("i32", INT32), ("i64", INT64), ("u64", UINT64)):
        if value in values:
            return name + (f":{DIVISOR}" if align and value % DIVISOR == 0 else "")
    raise OverflowError(f"integer argument {value} does not fit in 64 bits: a kernel takes -2**63 to 2**64 - 1")


def _pointer_class(tensor: Any, target: Target, const: bool, specialise: bool, align: bool) -> str:
    text = f"*{'k' if const else ''}{_element_type(tensor)}"
    if not specialise:
        return text
    classes = [str(DIVISOR)] if align and tensor.data_ptr() % DIVISOR == 0 else []
    if target.backend == "hip" and _buffer_addressable(tensor):
        classes.append("2GiB")
    return ":".join([text, *classes])


def _buffer_addressable(tensor: Any) -> bool:
    from triton import knobs

    if not knobs.amd.use_buffer_ops:
        return False
    if hasattr(tensor, "ptr_range"):
        return bool(tensor.ptr_range() <= BUFFER_LIMIT)
    return bool(tensor.untyped_storage().size() <= BUFFER_LIMIT)


def _element_type(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
