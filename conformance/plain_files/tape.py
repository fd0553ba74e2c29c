"""The launches of a file's wrapper, as data: what a process that runs the file may say, and nothing else.

The text is JSON that is decoded strictly. So the process that runs the file can describe launches, and neither numbers
nor verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

#: A number of a memory, a function or an element.
Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]

#: A number, word or nothing.
Scalar = int | float | bool | str | None


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An allocation of ``size`` elements. ``name`` is that of an operand or output of the problem, or of a workspace
    that the wrapper made. It may be ``kept`` from call to call; then it was filled with ``initial`` when it was made,
    or with nothing."""

    name: str
    dtype: str
    size: Index
    workspace: bool
    kept: bool = False
    initial: Number | None = None


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="tensor"):
    """A tensor in the memory of this number: ``offset`` and ``strides`` are in elements of the memory's dtype."""

    memory: Index
    offset: Index
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    dtype: str


class Descriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="descriptor"):
    """A tensor descriptor that the host made."""

    base: View
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="number"):
    """A number, a word or None. ``special`` is the text of an infinity or a NaN, which JSON lacks."""

    value: Scalar = None
    special: Literal["", "inf", "-inf", "nan"] = ""

    @property
    def python(self) -> Scalar:
        return float(self.special) if self.special else self.value


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="constexpr"):
    """A ``tl.constexpr`` of a number, or of a dtype."""

    value: Number | Dtype


class Dtype(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="dtype"):
    """A dtype of triton.language."""

    name: str


class Items(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="items"):
    """A tuple or list of arguments."""

    items: tuple[Value, ...]


class Callee(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="callee"):
    """A device function: by its number among those of the answer, or "module:name" in Triton."""

    number: int = -1
    name: str = ""


class Module(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="module"):
    """A module."""

    name: str


class Namespace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="namespace"):
    """A module of the file's package: the device functions and constants in it that the code names."""

    items: dict[str, Global]


Value = View | Descriptor | Number | Constant | Dtype | Items | Callee
Global = Number | Constant | Dtype | Callee | Module | Namespace


class Launched(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="launch"):
    """A launch of the function of this number."""

    function: Index
    grid: tuple[int, ...]
    arguments: dict[str, Value]
    options: dict[str, Scalar]


class Filled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fill"):
    """``view`` gets one number."""

    view: View
    number: Number


class Copied(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="copy"):
    """``view`` gets the values of ``source``, rounded to its dtype."""

    view: View
    source: View


class Added(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="add"):
    """``view`` gets the sum of ``source`` over this ``axis``."""

    view: View
    source: View
    axis: Index


Step = Launched | Filled | Copied | Added


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device function: its name and first line in a file, and the globals of its module that its code may name. Those
    in ``annotated`` are annotated as constants."""

    name: str
    path: str
    line: int
    module_globals: dict[str, Global]
    annotated: tuple[str, ...] = ()


class Tape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The steps of a wrapper for one problem, in order. ``outputs`` are the tensors that it returned, by name.

    ``refused``: the wrapper raised this about what it was given. ``fault``: it did what no launch needs; the check that
    fails is ``check``. Its tuner chose among ``configs``, and ``tile`` has the constants of the one that it took.
    """

    memories: tuple[Memory, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: dict[str, View] = {}
    refused: str = ""
    fault: str = ""
    check: str = ""
    configs: int = 1
    tile: dict[str, int] = {}


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tapes of the problems that were asked for, in their order, and the functions that they launch."""

    functions: tuple[Function, ...]
    tapes: tuple[Tape, ...]
    fault: str = ""


def encode(answer: object) -> bytes:
    """Returns ``answer`` as JSON."""
    return msgspec.json.encode(answer)


def decode(text: bytes) -> Answer:
    """Returns the answer in ``text``. Raises ValueError if it is none."""
    try:
        return msgspec.json.decode(text, type=Answer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parts(value: object) -> Iterator[object]:
    """Yields ``value`` and all that it consists of."""
    yield value
    inner: Iterable[object] = ()
    if isinstance(value, msgspec.Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, tuple):
        inner = value
    for each in inner:
        yield from parts(each)


def moved(value: Any, numbers: Mapping[int, int]) -> Any:
    """Returns ``value`` with the memory of other ``numbers``."""
    if isinstance(value, View):
        return msgspec.structs.replace(value, memory=numbers[value.memory])
    if isinstance(value, msgspec.Struct):
        fields = {name: moved(getattr(value, name), numbers) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, dict):
        return {name: moved(each, numbers) for name, each in value.items()}
    return tuple(moved(each, numbers) for each in value) if isinstance(value, tuple) else value


def in_order(tape: Tape) -> Tape:
    """Returns ``tape`` with the memory that a wrapper made in the order of its first use, and without unused memory."""
    kept = [number for number, memory in enumerate(tape.memories) if not memory.workspace]
    used = [view.memory for view in parts((tape.steps, tape.outputs)) if isinstance(view, View)]
    order = {old: new for new, old in enumerate(dict.fromkeys([*kept, *used]))}
    memories = [
        msgspec.structs.replace(memory, name=f"workspace {new}") if memory.workspace else memory
        for old, new in order.items()
        for memory in [tape.memories[old]]
    ]
    steps, outputs = moved(tape.steps, order), moved(tape.outputs, order)
    return msgspec.structs.replace(tape, memories=tuple(memories), steps=steps, outputs=outputs)
