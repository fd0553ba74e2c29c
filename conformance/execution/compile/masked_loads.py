"""The value that compiled code gives to the lanes of a masked load for which the source names none.

Triton leaves such lanes undefined. The LLVM IR of a kernel shows what the target's code does with them, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

#: What :func:`masked_values` says of a line whose lanes are 0, and of one of which the code shows nothing.
ZERO = "0"
NOT_SHOWN = "a value that is not known"
_OLD = "what shared memory held before"

_METADATA = re.compile(r"^(!\d+) = (?:distinct )?!(DILocation|DISubprogram|DILexicalBlock\w*|DIFile)\((.*)\)$")
_PLACE = re.compile(r", !dbg (!\d+)")
#: A load of NVIDIA's, which runs where a predicate holds: the registers, and what they hold before.
_PREDICATED = re.compile(r"@\$\d+ ld\.global\S* (?:\{ (?P<many>[^}]*) \}|(?P<one>\$\d+)), ")
_MOVED = re.compile(r"mov\.\w+ (\$\d+), (0x0|\$\d+|\S+);")
#: Copies to shared memory: the fourth operand is how many bytes are read, and zeros follow these.
_FILLING = re.compile(r"cp\.async\.c[ag]\.shared\S* \[[^]]*\], \[[^]]*\], 0x\w+, \$\d+;")
_BY_LANE = re.compile(r"@llvm\.amdgcn\.\S*load\S*lds")
_BUFFER = re.compile(r"@llvm\.amdgcn\.(?:raw|struct)\.(?:ptr\.)?buffer\.load")
_LOADED = re.compile(r"(%\S+) = load \S.*?, ptr addrspace\(1\)")
_MERGED = re.compile(r"%\S+ = phi .*?((?:\[ [^]]+ \](?:, )?)+)")
_ZEROS = {"zeroinitializer", "0", "0.000000e+00", "0xH0000", "0xR0000", "false"}


def masked_values(llir: Iterable[str]) -> dict[str, str]:
    """Returns, by line of the source ("file.py:24"), what the code gives to lanes that a mask leaves out there. It is
    :data:`ZERO`, or words for something else. ``llir`` are the texts of the launches. If loads of a line differ, the
    words win over zero."""
    values: dict[str, str] = {}
    for text in llir:
        for place, value in _values(text):
            values[place] = value if values.get(place, ZERO) == ZERO else values[place]
    return values


#: A load of TTIR: the pointers, its mask and the value of what the mask leaves out, if it has these; and its location.
_LOAD = re.compile(r"= tt\.load %[^\s,:]+(?P<mask>, %[^\s,:]+)?(?P<value>, %[^\s,:]+)?[^,:]*:.* loc\((?P<loc>.*)\)$")
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_LINE = re.compile(r'"([^"]*)":(\d+):\d+')


def places_without_value(ttir: Iterable[str]) -> set[str]:
    """Returns the lines ("file.py:24") of masked loads that name no value for what the mask leaves out. ``ttir`` are
    the texts of the launches."""
    places = set()
    for text in ttir:
        locations = {match[1]: match[2] for match in map(_LOCATION.match, text.splitlines()) if match}
        for match in filter(None, map(_LOAD.search, text.splitlines())):
            location = match["loc"]
            while not (line := _LINE.search(location)) and (name := re.search(r"#loc\d*", location)):
                location = locations.get(name[0], "")
            if match["mask"] and not match["value"]:
                places.add(f"{PurePath(line[1]).name}:{line[2]}" if line else "?:0")
    return places


def _values(text: str) -> Iterator[tuple[str, str]]:
    """Yields a line of the source and the value of each load or copy in one text."""
    metadata = {match[1]: (match[2], match[3]) for match in map(_METADATA.match, text.splitlines()) if match}
    merges = _merges(text)
    for line in text.splitlines():
        value = _value(line, merges)
        place = _PLACE.search(line)
        if value and place:
            yield _source(place[1], metadata), value


def _value(line: str, merges: dict[str, str]) -> str:
    """Returns what the instruction ``line`` gives to lanes without a value; "" if it loads nothing from memory."""
    if match := _PREDICATED.search(line):
        before = dict(_MOVED.findall(line[: match.start()]))
        registers = re.findall(r"\$\d+", match["many"] or match["one"])
        held = {before.get(register, "") for register in registers}
        return ZERO if held == {"0x0"} else NOT_SHOWN
    if "cp.async.c" in line and " asm " in line:
        return ZERO if _FILLING.search(line) else _OLD
    if line.lstrip().startswith("declare"):
        return ""
    if _BUFFER.search(line):
        return ZERO  # a lane that is left out has an offset past the buffer: there the hardware gives 0, also to LDS
    if _BY_LANE.search(line):
        return _OLD
    if match := _LOADED.search(line):
        return merges.get(match[1], NOT_SHOWN)
    return ""


def _merges(text: str) -> dict[str, str]:
    """Returns, for each value that a branch loads, what it is where the branch was not taken."""
    merges: dict[str, str] = {}
    for line in text.splitlines():
        if match := _MERGED.search(line):
            values = [part.split(", ")[0].strip() for part in re.findall(r"\[ ([^]]+) \]", match[1])]
            for value in values:
                others = {other for other in values if other != value}
                if value.startswith("%") and others:
                    merges[value] = ZERO if others <= _ZEROS and merges.get(value) != NOT_SHOWN else NOT_SHOWN
    return merges


def _source(location: str, metadata: dict[str, tuple[str, str]]) -> str:
    """Returns a location as "file.py:24", in the function whose line it is."""
    words = metadata.get(location, ("", ""))[1]
    line, scope = (re.search(rf"\b{name}: (!?\d+)", words) for name in ("line", "scope"))
    scoped = metadata.get(scope[1] if scope else "", ("", ""))[1]
    file = re.search(r"\bfile: (!\d+)", scoped)
    name = re.search(r'filename: "([^"]*)"', metadata.get(file[1] if file else "", ("", ""))[1])
    return f"{PurePath(name[1]).name if name else '?'}:{line[1] if line else 0}"
