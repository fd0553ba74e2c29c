"""The symptoms of a compiled launch, as numbers by name: two compilers, and mixtures of both, are compared by them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.gate.changes.code_changes import PACKED
from conformance.gate.changes.occupancy import occupancy
from conformance.gate.runs.failure_causes import compiler_cause
from conformance.record_figures import Resources

#: A file's path, and its name.
_PATH = re.compile(r"(?:/[\w.+@~-]+)+/([\w.+@~-]+)")
COMPILES = "does not compile"
ORDERS = "wrong in an order"


@dataclass(frozen=True)
class Shown:
    """The symptoms of one compilation. ``figures`` has a number for each name, 0 where a name is missing; a failure of
    the compiler or a failing check is 1, with its text in ``texts``. ``why_not`` says why nothing is known, "" if
    something is: the text of the other compiler could not be taken."""

    figures: Mapping[str, float]
    texts: Mapping[str, str]
    why_not: str = ""

    def value(self, symptom: str) -> float | None:
        """The figure called ``symptom``; None if it is not known."""
        if self.why_not or (COMPILES in self.figures and symptom != COMPILES):
            return None
        return self.figures.get(symptom, None if symptom == ORDERS else 0.0)


def unknown(why: str) -> Shown:
    return Shown({}, {}, why)


def shown(answer: Mapping[str, Any], target: str) -> Shown:
    """Returns the symptoms in the ``answer`` of a compilation for ``target``."""
    if answer["status"] != "pass":
        return Shown({COMPILES: 1}, {COMPILES: failure(answer)})
    figures: dict[str, float] = {}
    resources, code = answer["resources"], answer["code"]
    for name in ("spills", "registers", "shared_memory", "tensor_memory"):
        figures[name.replace("_", " ")] = resources[name]
    numbers = ("registers", "spills", "spill_unit", "shared_memory", "tensor_memory", "threads")
    fits = occupancy(target, Resources(**{name: resources[name] for name in numbers}))
    if fits is not None:
        figures["occupancy"] = fits.resident
    figures |= {f"feature {name}": 1 for name in code["features"]}
    figures |= {f"sync {name}": count for name, count in (code["sync"] or {}).items()}
    instructions = code["instructions"] or {}
    figures |= {f"packed {name}": instructions[name] for name in PACKED if instructions.get(name)}
    if code["bytes"]:
        figures["code bytes"] = code["bytes"]
    checks = {f"check {name}": text for name, text in answer["checks"].items()}
    return Shown(figures | dict.fromkeys(checks, 1), checks)


def failure(answer: Mapping[str, Any]) -> str:
    """One line about a compilation that gave nothing: how it ended, and the line with which the compiler names why."""
    lines = [line.strip() for line in answer["error"].splitlines() if line.strip()]
    cause = compiler_cause(answer["error"])
    named = next((line for line in lines if cause and compiler_cause(line) == cause), cause or "")
    line = _PATH.sub(r"\1", named or (lines[0] if lines else "no message"))
    return f"{answer['status']}: {line}"[:300]


def alike(one: str, other: str) -> bool:
    """True if two failures are the same but for numbers, such as the line of an assertion in two releases.

    >>> alike("assertion at line 12 failed", "assertion at line 40 failed")
    True
    >>> alike("assertion at line 12 failed", "out of registers")
    False
    """
    return re.sub(r"\d+", "", one) == re.sub(r"\d+", "", other)


def differing(good: Shown, bad: Shown) -> list[str]:
    """The names of what two compilations show differently, the worst first."""
    names = [name for name in {**bad.figures, **good.figures} if good.value(name) != bad.value(name)]
    shown_by_both = [name for name in names if good.value(name) is not None and bad.value(name) is not None]
    return sorted(shown_by_both, key=lambda name: (not _worse(name, good, bad), _rank(name), name))


#: The names, or the first words of names, in the order in which a difference matters.
NAMES = (
    *(COMPILES, ORDERS, "check", "feature", "packed", "spills", "occupancy", "shared memory", "tensor memory"),
    *("registers", "sync", "code bytes"),
)
#: Those of which less is worse.
_WANTED = ("feature", "packed", "occupancy")


def _rank(name: str) -> int:
    return next(place for place, start in enumerate(NAMES) if name.startswith(start))


def _worse(name: str, good: Shown, bad: Shown) -> bool:
    before, after = good.figures.get(name, 0), bad.figures.get(name, 0)
    return name.startswith("sync") or (after < before if name.startswith(_WANTED) else after > before)


#: The names of what makes a launch wrong, and not only other.
_FAULTS = (COMPILES, ORDERS, "check")


def gravity(name: str, good: Shown, bad: Shown) -> tuple[bool, int]:
    """Returns a sort key of a launch that differs in ``name``; smaller ones speak more against the bad stack. The key
    has whether the launch is no worse, then the kind of the difference. All faults are of one kind."""
    return not _worse(name, good, bad), 0 if name.startswith(_FAULTS) else _rank(name)


def is_known(word: str) -> bool:
    """True if a symptom may be called ``word``, or begin with it.

    >>> is_known("spills"), is_known("colour")
    (True, False)
    """
    return any(word == name or word.startswith(f"{name} ") for name in NAMES)


def chosen(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Returns the ``names`` that ``words`` lists, each in full or by its beginning; all of them if ``words`` is
    empty."""
    if not words:
        return list(names)
    return [name for name in names if any(name == word or name.startswith(f"{word} ") for word in words)]
