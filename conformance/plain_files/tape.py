"""The launches of a file's wrapper, as data: what a process that runs the file may say, and nothing else.

The text is JSON that is decoded strictly. So the process that runs the file can describe launches, and neither numbers
nor verdicts.
"""

from __future__ import annotations

import msgspec

#: A number, word or nothing.
Scalar = int | float | bool | str | None


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all that follows."""


class Memory(_Data):
    """An allocation of ``size`` elements. ``name`` is that of an operand or output of the problem, or of a workspace
    that the wrapper made."""

    name: str
    dtype: str
    size: int
    workspace: bool


class View(_Data, tag="tensor"):
    """A tensor in the memory of this number: ``offset`` and ``strides`` are in elements of the memory's dtype."""

    memory: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Descriptor(_Data, tag="descriptor"):
    """A tensor descriptor that the host made."""

    base: View
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]


class Number(_Data, tag="number"):
    """A number, a word or None. ``special`` is the text of an infinity or a NaN, which JSON lacks."""

    value: Scalar = None
    special: str = ""

    @property
    def python(self) -> Scalar:
        return float(self.special) if self.special else self.value


class Constant(_Data, tag="constexpr"):
    """A ``tl.constexpr`` of a number, or of a dtype."""

    value: Number | Dtype


class Dtype(_Data, tag="dtype"):
    """A dtype of triton.language."""

    name: str


class Items(_Data, tag="items"):
    """A tuple or list of arguments."""

    items: tuple[Value, ...]


class Callee(_Data, tag="callee"):
    """A device function: by its number among those of the answer, or "module:name" in Triton."""

    number: int = -1
    name: str = ""


class Module(_Data, tag="module"):
    """A module."""

    name: str


Value = View | Descriptor | Number | Constant | Dtype | Items | Callee
Global = Number | Constant | Dtype | Callee | Module


class Launched(_Data, tag="launch"):
    """A launch of the function of this number."""

    function: int
    grid: tuple[int, ...]
    arguments: dict[str, Value]
    options: dict[str, Scalar]


class Filled(_Data, tag="fill"):
    """``view`` gets one number."""

    view: View
    number: Number


class Copied(_Data, tag="copy"):
    """``view`` gets the values of ``source``, rounded to its dtype."""

    view: View
    source: View


class Function(_Data):
    """A device function: its name and first line in a file, and the globals of its module that its code may name."""

    name: str
    path: str
    line: int
    module_globals: dict[str, Global]


class Tape(_Data):
    """What a wrapper did for one problem, in order. ``outputs`` are the tensors that it returned, by name.

    ``refused``: the wrapper raised this about what it was given. ``fault``: what it did is none of a launch; the check
    that fails is ``check``. ``config``: by function, the numbers of the configs that its tuner offered.
    """

    memories: tuple[Memory, ...] = ()
    steps: tuple[Launched | Filled | Copied, ...] = ()
    outputs: dict[str, View] = {}
    refused: str = ""
    fault: str = ""
    check: str = ""
    configs: int = 1
    tile: dict[str, int] = {}


class Answer(_Data):
    """The tapes of the problems that were asked for, in their order, and the functions that they launch."""

    functions: tuple[Function, ...]
    tapes: tuple[Tape, ...]
    fault: str = ""


def encode(answer: object) -> bytes:
    """Returns ``answer`` as JSON."""
    return msgspec.json.encode(answer)


def decode(text: bytes) -> Answer:
    """Returns the answer in ``text``. Raises ValueError if it is none."""
    return msgspec.json.decode(text, type=Answer)
