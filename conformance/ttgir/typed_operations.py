"""The types of each operation's operands and results, and whether a value is used with the type that it was made with.

The text names the types of most operands where they are used. Those of results follow from the same words. A value
whose type the text does not show, such as a token, has none here.
"""

from __future__ import annotations

import functools
import re
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field

from conformance.ttgir.arithmetic import operands
from conformance.ttgir.formats import Type, type_of
from conformance.ttgir.text import Operation, Region, TtgirModule, split_outside

#: Types by the names of values; each region has its own names and sees those around it.
Types = ChainMap[str, Type]

_HELD = ("tensor", "memdesc", "tensordesc")


@dataclass
class TypedOperation:
    """One operation: the types that its operands were made with, those that it shows, and those of its results."""

    operation: Operation
    operands: list[Type | None]
    shown: list[Type]
    results: list[Type]
    #: Whether an arrow leads from the types of operands to those of results.
    arrow: bool = False
    #: How many warps run it; 0 if the text does not say it.
    warps: int = 0
    #: What one of its regions passes on, or its caller gives: pairs of the type given and the type taken.
    passed: list[tuple[Type, Type]] = field(default_factory=list)

    def held(self) -> list[Type]:
        """Returns the types of its operands that have a layout, as they were made."""
        return [kind for kind in self.operands if kind is not None and kind.kind in _HELD]

    def mismatches(self) -> list[tuple[Type, Type]]:
        """Pairs of the type that a value was made with and the type that it is used with, where they differ."""
        defined, used = self.held(), [kind for kind in self.shown if kind.kind in _HELD]
        if len(defined) == len(used):
            pairs = list(zip(sorted(defined, key=_spelled), sorted(used, key=_spelled), strict=True))
        else:  # not every operand's type is shown
            pairs = [(_nearest(kind, defined), kind) for kind in used] if self.arrow and defined else []
        return [(first, second) for first, second in (*pairs, *self.passed) if not same_type(first, second)]


def _nearest(kind: Type, others: list[Type]) -> Type:
    """Of ``others`` the type that is ``kind``, else one of its kind."""
    return min(others, key=lambda other: (not same_type(kind, other), other.kind != kind.kind))


def _spelled(kind: Type) -> tuple[str, ...]:
    return kind.kind, str(kind.shape), kind.element, kind.layout


def same_type(first: Type, second: Type) -> bool:
    return _spelled(first) == _spelled(second)


def typed_operations(module: TtgirModule) -> Iterator[TypedOperation]:
    """Yields every operation of ``module`` in the order of its text."""
    types = {name: type_of(kind) for name, kind in module.function.parameters}
    warps = int(module.attributes.get("ttg.num-warps", "0").split()[0])
    yield from _region(module.function.body, ChainMap(types), [], warps)


def _region(region: Region, types: Types, owner: list[Type], warps: int) -> Iterator[TypedOperation]:
    """Yields the operations of one region, whose owner has results of the types ``owner``. A partition has its own
    warps."""
    own = re.search(r"num_warps\((\d+)\)", region.label)
    warps = int(own[1]) if own else warps
    for operation in region.operations:
        typed = _typed(operation, types)
        typed.warps = warps
        if operation.name == "scf.yield" and len(owner) == len(typed.operands):
            typed.passed += [(own, into) for own, into in zip(typed.operands, owner, strict=True) if own is not None]
        types.update(zip(operation.results, typed.results, strict=False))
        scopes = [types.new_child(_arguments(operation, inner, typed, types)) for inner in operation.regions]
        yield typed
        for inner, scope in zip(operation.regions, scopes, strict=True):
            yield from _region(inner, scope, typed.results, warps)


def _arguments(operation: Operation, region: Region, typed: TypedOperation, types: Types) -> dict[str, Type]:
    """The types of what ``region`` is given; what it is given with another type is noted in ``typed``."""
    if operation.name in ("scf.for", "scf.while"):
        _, _, words = operation.words.partition("iter_args(" if operation.name == "scf.for" else "(")
        pairs = [part.split(" = ") for part in split_outside(_inside(words))]
        if len(pairs) != len(typed.results) or any(len(pair) != 2 for pair in pairs):
            return {}
        for (_, start), kind in zip(pairs, typed.results, strict=True):
            if start.strip() in types:
                typed.passed.append((types[start.strip()], kind))
        return {name.strip(): kind for (name, _), kind in zip(pairs, typed.results, strict=True)}
    arguments = {}
    if operation.name == "ttg.warp_specialize" and "(" in region.label:
        words = region.label[region.label.index("(") + 1 :]
        parts = [part.partition(":") for part in split_outside(_inside(words))]
        arguments = {name.strip(): type_of(kind.strip()) for name, _, kind in parts}
        for given, kind in zip(typed.operands, arguments.values(), strict=False):
            if given is not None:
                typed.passed.append((given, kind))
    return arguments


def _inside(text: str) -> str:
    """``text`` up to the bracket that closes one opened before it."""
    depth = 1
    for index, char in enumerate(text):
        depth += (char in "([{<") - (char in ")]}" or (char == ">" and text[index - 1] != "-"))
        if not depth:
            return text[:index]
    return text


def _typed(operation: Operation, types: Types) -> TypedOperation:
    left, right = _sides(operation)
    results = [_result(operation, kind) for kind in (right if right is not None else left)]
    if right and (".async_" in operation.name or operation.name.endswith(("_to_local", "_store"))):
        left, results = [*left, *right], []  # an arrow leads to what is written; a result is a token
    elif ".async_" in operation.name:
        results = []
    elif right and "dot" in operation.name:
        left = [*left, *right]  # the result's type stands for the sum's that it is added to
    elif operation.name == "tt.split":
        results *= 2
    elif right is None and operation.name in ("tt.addptr", "tt.load"):
        results = results[:1]
    elif right is None and operation.name != "ttng.warp_group_dot_wait":
        results = results[-1:]
    # operations on buffers show the types of their results alone, or in brackets
    hidden = (operation.regions and operation.name != "tt.reduce") or operation.name.startswith("amdg.buffer_")
    shown = [] if hidden else left
    types_of_operands = [types.get(name) for name in operands(operation)]
    return TypedOperation(operation, types_of_operands, shown, results, arrow=right is not None)


def _result(operation: Operation, kind: Type) -> Type:
    if operation.name in ("arith.cmpi", "arith.cmpf"):
        return replaced(kind, "i1")
    if operation.name == "tt.load" and kind.pointee is not None:
        return replaced(kind, kind.pointee) if kind.shape else type_of(kind.pointee)
    if operation.name == "tt.make_tensor_descriptor":  # shown without its name
        sizes = "x".join([*map(str, kind.shape), kind.element])
        return type_of(f"!tt.tensordesc<{sizes}{', ' * bool(kind.layout)}{kind.layout}>")
    return kind


def replaced(kind: Type, element: str) -> Type:
    """``kind`` with another element."""
    return Type(kind.kind, kind.shape, element, kind.layout)


def _sides(operation: Operation) -> tuple[list[Type], list[Type] | None]:
    """Returns the types before and after its arrow; None where it has no arrow."""
    if operation.name in ("scf.for", "scf.if"):
        _, arrow, after = operation.words.rpartition(" -> ")
        if operation.name == "scf.for":
            after = after.rpartition(" : ")[0]
        return [], _types(after) if arrow else []
    if operation.name == "scf.while":
        return _read(operation.words.partition(" : ")[2])
    return _read(operation.types)


@functools.lru_cache(maxsize=65536)
def _read(text: str) -> tuple[list[Type], list[Type] | None]:
    at = _arrow(text)
    if at is not None:
        return _types(text[: at[0]]), _types(text[at[1] :])
    return _types(text), None


def _arrow(text: str) -> tuple[int, int] | None:
    depth = 0
    for index, char in enumerate(text):
        if not depth and text.startswith("->", index):
            return index, index + 2
        if not depth and text.startswith(" to ", index):
            return index, index + 4
        depth += (char in "([{<") - (char in ")]}" or (char == ">" and text[index - 1] != "-"))
    return None


def _types(text: str) -> list[Type]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [type_of(part) for side in split_outside(text, "*") for part in split_outside(side)]
