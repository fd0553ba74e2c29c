"""TTGIR as text, read into operations: each with its results, its own words, its regions and its source line.

One parser reads what Triton 3.4 to 3.9 print. It knows the shape of the text and no operation. The tables of
:mod:`conformance.ttgir.arithmetic` and of the modules that :mod:`conformance.ttgir.regions` names say what an
operation's words mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LOC = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+|(#loc\d*)')
#: A folder of Triton's own functions, such as tl.sum: the line that calls one is the kernel's.
_LANGUAGE = "/triton/language/"
#: Locations within locations up to which a line is looked for.
DEEPEST = 40
_OPERATION = re.compile(r'(?:(%[^=]*?) = )?"?((?:[a-z_]\w*)(?:\.\w+)+)"?(.*)', re.DOTALL)
_PARTITION = re.compile(r"(default|partition\d+)\s*(?:\((.*)\))?\s*(?:num_warps\((\d+)\))?\s*$")
#: A tag that Triton up to 3.6 leaves on what it gave to partitions; the partitions themselves are regions.
_TASK = re.compile(r"async_task_id = array<i32(?:: [\d, ]+)?>(?:, )?")


#: The name of what stands where a further block of a region begins: ``words`` is its label, ``results`` are its
#: arguments.
BLOCK = "block"


class TextError(ValueError):
    """The text is not as the parser expects: the message quotes it."""


@dataclass
class Region:
    """Operations in order, with the names of what they are given."""

    arguments: list[str] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    label: str = ""


@dataclass
class Operation:
    """``results = name words { regions } tail``; ``results`` are single names, ``%a:2`` is %a#0 and %a#1."""

    name: str
    results: list[str]
    words: str
    place: str
    regions: list[Region] = field(default_factory=list)
    tail: str = ""

    @property
    def types(self) -> str:
        """The text of its types: what follows the last colon on the outer level."""
        text = self.tail or self.words
        return text[_last_colon(text) + 1 :].strip()


@dataclass
class Function:
    """The kernel: parameters with their types, and its operations."""

    name: str
    parameters: list[tuple[str, str]]
    body: Region


@dataclass
class TtgirModule:
    """One module: attributes as text, layouts by name, and its one public function. What that one calls is in the
    regions of its calls."""

    attributes: dict[str, str]
    layouts: dict[str, str]
    function: Function


def split_outside(text: str, separator: str = ",") -> list[str]:
    """``text`` between separators that stand in no bracket, stripped; empty text gives no parts.

    >>> split_outside("a, tensor<2x4, #b>, c", ",")
    ['a', 'tensor<2x4, #b>', 'c']
    """
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char in "([{<":
            depth += 1
        elif char in ")]}" or (char == ">" and text[index - 1] != "-"):
            depth -= 1
        elif char == separator and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def _last_colon(text: str) -> int:
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        char = text[index]
        if char in ")]}" or (char == ">" and text[index - 1] != "-"):
            depth += 1
        elif char in "([{<":
            depth -= 1
        elif char == ":" and not depth:
            return index
    return len(text)


def _closing(text: str, start: int) -> int:
    """Returns the index of the bracket that closes the one at ``start``."""
    depth, quoted = 0, False
    for index in range(start, len(text)):
        char = text[index]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if not depth:
                return index
    raise TextError(f"a bracket is not closed: {text[start : start + 80]}")


def _without_locations(line: str) -> tuple[str, str]:
    """The line without what says where it comes from, and the last of these."""
    last = ""
    while (start := line.find(" loc(")) >= 0:
        end = _closing(line, start + 4)
        last = line[start + 5 : end]
        line = line[:start] + line[end + 1 :]
    return line, last


class _SourceLines:
    """Source lines by location."""

    def __init__(self, lines: list[str]) -> None:
        self._texts = {match[1]: match[2] for line in lines if (match := _LOC.match(line))}

    def __call__(self, text: str) -> str:
        """Returns a location as "file.py:24": the innermost line that is none of Triton's own language; "" for none."""
        places = list(self._places(text, 0))
        own = next((place for place in places if _LANGUAGE not in place[0]), places[0] if places else None)
        return f"{own[0].rsplit('/', 1)[-1]}:{own[1]}" if own else ""

    def _places(self, text: str, depth: int) -> Iterator[tuple[str, str]]:
        """Yields files and lines, those of functions before those of their callers."""
        for match in _PLACE.finditer(text):
            if match[1] is not None:
                yield match[1], match[2]
            elif match[3] in self._texts and depth < DEEPEST:
                yield from self._places(self._texts[match[3]], depth + 1)


def parse(text: str) -> TtgirModule:
    """Returns the module that ``text`` holds. Raises TextError for text of another form."""
    lines = text.splitlines()
    places, layouts = _SourceLines(lines), {}
    top = Region()
    # What is open: the operation whose region it is, and that region.
    stack: list[tuple[Operation | None, Region]] = [(None, top)]
    attributes: dict[str, str] = {}
    for raw in lines:
        if raw.startswith("#loc") or not raw.strip() or raw.strip().startswith("//"):
            continue
        try:
            line, location = _without_locations(raw.strip())
            line = line.split(" // ")[0].rstrip()
            if "async_task_id" in line:
                line = _TASK.sub("", line).replace(", }", "}").replace(" {}", "")
            if raw.startswith("#"):
                name, _, words = line.partition(" = ")
                layouts[name] = words
            elif raw.startswith("module"):
                attributes = _module_attributes(line)
            else:
                _line(line, places(location), stack)
        except (IndexError, ValueError) as error:  # a bracket or a word is not where every known release has it
            raise (
                error if isinstance(error, TextError) else TextError(f"not an operation: {raw.strip()[:120]}")
            ) from error
    if stack:
        raise TextError(f"the text ends within {len(stack)} regions")
    functions = [operation for operation in top.operations if operation.name == "tt.func"]
    public = [operation for operation in functions if " public " in f" {operation.words} "]
    if len(public) != 1:
        raise TextError(f"{len(public)} public functions, one is expected")
    defined = {id(operation): _function(operation) for operation in functions}
    _give_bodies(top, {function.name: function for function in defined.values()})
    return TtgirModule(attributes, layouts, defined[id(public[0])])


def _module_attributes(line: str) -> dict[str, str]:
    if "attributes" not in line:
        return {}
    parts = (part.partition(" = ") for part in split_outside(line[line.index("{") + 1 : line.rindex("}")]))
    return {name.strip('"'): value for name, _, value in parts}


_SYMBOL = re.compile(r'@("[^"]*"|[\w.$-]+)\(')


def _function(operation: Operation) -> Function:
    name, start = _symbol(operation)
    if len(operation.regions) != 1:
        raise TextError(f"the function {name} has {len(operation.regions)} bodies, one is expected")
    inside = operation.words[start + 1 : _closing(operation.words, start)]
    parameters = []
    for part in split_outside(inside):
        parameter, _, kind = part.partition(":")
        parameters.append((parameter.strip(), kind.split("{")[0].strip()))
    return Function(name, parameters, operation.regions[0])


def _symbol(operation: Operation) -> tuple[str, int]:
    """Returns the function that ``operation`` defines or calls, and the index of the bracket behind its name."""
    match = _SYMBOL.search(operation.words)
    if match is None:
        raise TextError(f"{operation.name} without a name: {operation.words[:80]}")
    return match[1].strip('"'), match.end() - 1


def _give_bodies(region: Region, functions: dict[str, Function]) -> None:
    """Gives each call in ``region`` the body of its function as a region. No function of Triton's calls itself."""
    for operation in region.operations:
        for inside in operation.regions:
            _give_bodies(inside, functions)
        if operation.name == "tt.call":
            name = _symbol(operation)[0]
            if name not in functions:
                raise TextError(f"tt.call of {name}, which is not defined")
            arguments = [parameter for parameter, _ in functions[name].parameters]
            operation.regions = [Region(arguments, functions[name].body.operations)]


def _names(text: str | None) -> list[str]:
    names = []
    for part in split_outside(text or ""):
        name, _, count = part.partition(":")
        names += [f"{name}#{index}" for index in range(int(count))] if count else [name]
    return names


def _arguments(text: str) -> list[str]:
    return [part.partition(":")[0].strip() for part in split_outside(text)]


def _line(line: str, place: str, stack: list[tuple[Operation | None, Region]]) -> None:
    owner, region = stack[-1]
    if line.startswith("}"):
        stack.pop()
        rest = line[1:].strip().removeprefix(")").strip()
        if owner is None:
            return  # the module's end
        if rest.endswith("{") and not rest.startswith("{"):  # else, do
            _open(owner, rest[:-1].strip(), stack)
            return
        owner.tail = rest
        return
    if line.startswith("^"):
        label, _, arguments = line.rstrip(":").partition("(")
        named = _arguments(arguments.rstrip(")"))
        if region.operations:
            region.operations.append(Operation(BLOCK, named, label, ""))
        else:
            region.arguments, region.label = named, label
        return
    if line.endswith("{") and _PARTITION.match(line[:-1].strip()):
        if not region.operations or region.operations[-1].name != "ttg.warp_specialize":
            raise TextError(f"a partition outside ttg.warp_specialize: {line[:80]}")
        _open(region.operations[-1], line[:-1].strip(), stack)
        return
    match = _OPERATION.match(line)
    if match is None:
        raise TextError(f"not an operation: {line[:120]}")
    results, name, words = match.groups()
    name = name.replace("amdgpu.", "amdg.", 1)  # as Triton calls it from 3.6 on
    opens = words.endswith("{")
    words = words.removesuffix("{").strip().removesuffix("(").strip() if opens else words.strip()
    operation = Operation(name, _names(results), words, place)
    region.operations.append(operation)
    if opens:
        _open(operation, "", stack)


def _open(operation: Operation, head: str, stack: list[tuple[Operation | None, Region]]) -> None:
    region = Region(label=head)
    if (match := _PARTITION.match(head)) and match[2]:
        region.arguments = _arguments(match[2])
    operation.regions.append(region)
    stack.append((operation, region))
