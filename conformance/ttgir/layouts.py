"""The layouts that TTGIR names, read from its text: kinds with words, such as ``#ttg.blocked`` with its order.

Which element each register or place in memory holds is in :mod:`conformance.ttgir.register_maps` and
:mod:`conformance.ttgir.memory_maps`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.ttgir.linear_maps import MapBuilder
from conformance.ttgir.text import split_outside


class UnknownLayout(Exception):
    """A layout, or a form of one, that is in no table here; the message names it."""


@dataclass(frozen=True, eq=False)
class TtgirLayout:
    """One layout: ``kind`` such as "blocked", and what its words say. Layouts in it are read, numbers are ints. Two are
    equal if their texts are, with every alias replaced."""

    kind: str
    words: Mapping[str, Any]
    text: str

    def __getitem__(self, word: str) -> Any:
        if word not in self.words:
            raise UnknownLayout(f"{self.kind} without {word}: {self.text}")
        return self.words[word]

    def get(self, word: str, otherwise: Any = None) -> Any:
        return self.words.get(word, otherwise)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TtgirLayout) and self.text == other.text


_FORM = re.compile(r"#([\w.]+)(?:<(.*)>)?$", re.DOTALL)


def layout_of(text: str, aliases: Mapping[str, str]) -> TtgirLayout:
    """Returns the layout that ``text`` spells or names, each alias replaced by what ``aliases`` has for it. Raises
    UnknownLayout for text of another form."""
    return _read(_expanded(text.strip(), aliases))


def _expanded(text: str, aliases: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        name = match[0]
        return _expanded(aliases[name], aliases) if name in aliases else name

    return re.sub(r"#\w+(?![\w.<])", one, text)


@functools.lru_cache(maxsize=4096)
def _read(text: str) -> TtgirLayout:
    match = _FORM.match(text)
    if match is None:
        raise UnknownLayout(text)
    kind, inside = match[1].rpartition(".")[2], (match[2] or "").strip()
    words: dict[str, Any] = {}
    if kind == "padded_shared":
        intervals, _, inside = inside.partition("]")
        words["padding"] = [tuple(map(int, pair.split(":+"))) for pair in split_outside(intervals.strip("["))]
        inside = inside.strip()
    parts = split_outside(inside)
    if parts and parts[0].startswith("{"):
        parts = [*split_outside(parts[0][1:-1]), *parts[1:]]
    for part in parts:
        word, equals, value = part.partition(" = ")
        if not equals:
            raise UnknownLayout(text)
        words[word.strip()] = _value(value.strip())
    return TtgirLayout(kind, words, text)


def _value(text: str) -> Any:
    if text.startswith("["):
        return [_value(part) for part in split_outside(text[1:-1])]
    if text.startswith("{"):
        parts = (part.partition(" = ") for part in split_outside(text[1:-1]))
        return {word.strip(): _value(value.strip()) for word, _, value in parts}
    if text.startswith("#"):
        return _read(text)
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def cluster_bases(layout: TtgirLayout) -> list[Sequence[int]]:
    """Returns the bases of a cluster's blocks, in numbers of blocks along each axis."""
    if layout.get("CGALayout") is not None:
        return list(layout["CGALayout"])
    if layout.kind == "tensor_memory_encoding":
        blocks = MapBuilder(2, ("block",))
        blocks.add("block", 0, layout.get("CTASplitM", 1))
        blocks.add("block", 1, layout.get("CTASplitN", 1))
        return list(blocks.bases["block"])
    if layout.get("CTAsPerCGA") is None:
        return []
    blocks = MapBuilder(len(layout["CTAsPerCGA"]), ("block",))
    for axis in layout["CTAOrder"]:
        blocks.add("block", axis, layout["CTASplitNum"][axis])
        blocks.repeat("block", layout["CTAsPerCGA"][axis] // layout["CTASplitNum"][axis])
    return list(blocks.bases["block"])
