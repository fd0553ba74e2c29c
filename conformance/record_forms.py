"""The short forms that a line of schema 3 has for what nearly every record holds. Works on JSON values alone.

A line needs no other line and no other file to be read: a torn file loses only its last line. So nothing here refers to
what was written before. What is left out stands in the tables of this module instead, which are part of schema 3: a
reader that has them makes the same values again. They change only with the number of the schema.

* A mapping that has exactly the keys of one of ``SHAPES`` is written without those that have the usual value, and says
  its shape by number under the key ``=``.
* The text and details of a passed verdict that has one of the standard forms are written as the number of the form with
  its figures.
* Artefacts that differ only in the name of their stage are written as their common beginning and the stages.
* A command that reproduces the case is written as its last words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

SHAPE = "="
_LITERAL = -1  # the number for a mapping that has the key "=" itself
_NEEDED = object()  # a key that is always written
#: Each shape: its keys in order, with their usual values.
SHAPES: tuple[Mapping[str, Any], ...] = (
    {
        **dict.fromkeys(("id", "order"), _NEEDED),
        "pad": 0,
        "step": 1,
        "offset": 0,
        "batch": "outer",
        "batch_pad": 0,
    },
    {
        **dict.fromkeys(("id", "op", "M", "N", "K", "dtype"), _NEEDED),
        "out_dtype": None,
        "b_dtype": None,
        "precision": "ieee",
        **dict.fromkeys(("layout_a", "layout_b", "layout_out"), _NEEDED),
        "bias": None,
        "alpha": 1.0,
        "beta": 1.0,
        "scaling": None,
        "fast_accum": False,
        "batch": None,
        "fusion": None,
    },
    {
        **dict.fromkeys(("id", "block_m", "block_n", "block_k", "num_stages", "num_warps"), _NEEDED),
        "group_m": 8,
        "vendor": [],
    },
)
_BY_KEYS = {tuple(shape): number for number, shape in enumerate(SHAPES)}


def pack_mapping(value: Any) -> Any:
    """``value`` with each mapping in it as short as its shape allows."""
    if isinstance(value, list):
        return [pack_mapping(item) for item in value]
    if not isinstance(value, dict):
        return value
    packed = {key: pack_mapping(item) for key, item in value.items()}
    number = _BY_KEYS.get(tuple(value))
    if number is None:
        return {SHAPE: _LITERAL, "value": packed} if SHAPE in value else packed
    usual = SHAPES[number]
    return {SHAPE: number, **{key: item for key, item in packed.items() if not _same(value[key], usual[key])}}


def unpack_mapping(value: Any) -> Any:
    """Returns what :func:`pack_mapping` was given. Raises ValueError for what it cannot have made."""
    if isinstance(value, list):
        return [unpack_mapping(item) for item in value]
    if not isinstance(value, dict):
        return value
    if SHAPE not in value:
        return {key: unpack_mapping(item) for key, item in value.items()}
    number = value[SHAPE]
    if type(number) is not int or not _LITERAL <= number < len(SHAPES):
        raise ValueError(f"no shape of a mapping: {value!r:.80}")
    if number == _LITERAL:
        literal = value.get("value")
        if not isinstance(literal, dict):
            raise ValueError(f"no mapping: {value!r:.80}")
        return {key: unpack_mapping(item) for key, item in literal.items()}
    shape = SHAPES[number]
    known = {key: unpack_mapping(item) for key, item in value.items() if key != SHAPE}
    absent = [key for key, usual in shape.items() if usual is _NEEDED and key not in known]
    if absent or known.keys() - shape.keys():
        raise ValueError(f"not of the shape {number}: {value!r:.80}")
    return {key: known.get(key, [*usual] if usual == [] else usual) for key, usual in shape.items()}


def _same(value: Any, usual: Any) -> bool:
    """True if ``value`` is the usual one, of the same type: 1 is not 1.0 in JSON."""
    return type(value) is type(usual) and bool(value == usual)


class Form(IntEnum):
    """The standard forms of a passed verdict: the first of its figures. The comment says which follow."""

    EXACT = 0  # seed, number of elements; perhaps the worst ratio
    BOUNDED = 1  # the same
    SPECIAL = 2  # the same
    DIRECTIVE = 3  # pattern or its number, compiler stage; the line if the pattern is there
    MEMORY = 4  # number of runs
    SAME_CODE = 5  # digest
    WITHIN_LIMITS = 6
    GRID = 7  # sizes


_KINDS = {"exact": Form.EXACT, "bounded": Form.BOUNDED, "special": Form.SPECIAL}  # what PASS says of a fill
_KIND_NAMES = {form: kind for kind, form in _KINDS.items()}
#: Patterns that codegen features look for.
PATTERNS = (
    *(r"^cp\.async\.bulk\.tensor\.[1-5]d\.global\.shared::cta\b", r"^st\.global\b"),
    *(r"^cp\.async\.bulk\.tensor\.[1-5]d\.shared::(cluster|cta)\.global\b", r"!tt\.tensordesc<", r"\btt\.load\b"),
    *(r"^wgmma\.mma_async\.sync\b", r"^mma\.sync\.aligned\b", r"^tcgen05\.mma\b", r"^tensor_load_to_lds\b"),
    *(r"^tensor_store_from_lds\b", r"^(buffer|global|flat)_store_", r"^v_s?mfma", r"\bttg\.warp_specialize\("),
    r"^v_(wmma|swmmac)_",
)
_PATTERN_NUMBERS = {pattern: number for number, pattern in enumerate(PATTERNS)}
_NUMBERS = re.compile(r"PASS (exact|bounded|special)/\S+ seed (\d{1,18}): (\d{1,18}) elements")
_CHECK = re.compile(r"CHECK: \{\{(.*)\}\} in (\w+): (?:no match|matches line (\d{1,18}))")
_RUNS = re.compile(r"operands and surroundings untouched in (\d{1,18}) runs")
_SAME_CODE = re.compile(r"judged ([0-9a-f]+), launched \1")
_WITHIN = "within the target's limits"


def pack_verdict(check: str, text: str, details: Mapping[str, Any]) -> list[Any] | None:
    """The number of the standard form that a passed verdict has, with its figures; None if it has none."""
    figures = _figures(text, details)
    if figures is not None and unpack_verdict(check, figures) == (text, details):
        return figures
    return None


def _figures(text: str, details: Mapping[str, Any]) -> list[Any] | None:
    if match := _NUMBERS.fullmatch(text):
        ratio = [details["worst_ratio"]] if "worst_ratio" in details else []
        return [_KINDS[match[1]], int(match[2]), int(match[3]), *ratio]
    if match := _CHECK.fullmatch(text):
        line = [int(match[3])] if match[3] else []
        return [Form.DIRECTIVE, _PATTERN_NUMBERS.get(match[1], match[1]), match[2], *line]
    if match := _RUNS.fullmatch(text):
        return [Form.MEMORY, int(match[1])]
    if match := _SAME_CODE.fullmatch(text):
        return [Form.SAME_CODE, match[1]]
    if text == _WITHIN:
        return [Form.WITHIN_LIMITS]
    if "grid" in details and text.startswith("grid "):
        grid = details["grid"]
        return [Form.GRID, *grid] if isinstance(grid, list) else None
    return None


def unpack_verdict(check: str, figures: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Text and details of a passed verdict in a standard form. Raises ValueError for a form that is not known."""
    form, *values = figures or [None]
    match form, values:
        case ((Form.EXACT | Form.BOUNDED | Form.SPECIAL), [int(seed), int(total), *ratio]) if len(ratio) <= 1:
            fill = check.partition("/")[2].partition("@")[0]
            details = {"wrong": 0, "total": total, **({"worst_ratio": ratio[0]} if ratio else {})}
            return f"PASS {_KIND_NAMES[form]}/{fill} seed {seed}: {total} elements", details
        case Form.DIRECTIVE, [(int() | str()) as pattern, str(stage), *line] if len(line) <= 1:
            if isinstance(pattern, int) and not 0 <= pattern < len(PATTERNS):
                raise ValueError(f"no standard form of a verdict: the pattern {pattern} is not known")
            known = pattern if isinstance(pattern, str) else PATTERNS[pattern]
            outcome = f"matches line {line[0]}" if line else "no match"
            return f"CHECK: {{{{{known}}}}} in {stage}: {outcome}", {"stage": stage}
        case Form.MEMORY, [int(runs)]:
            return f"operands and surroundings untouched in {runs} runs", {}
        case Form.SAME_CODE, [str(digest)]:
            return f"judged {digest}, launched {digest}", {}
        case Form.WITHIN_LIMITS, []:
            return _WITHIN, {}
        case Form.GRID, [*grid]:
            return f"grid {tuple(grid)} ran", {"grid": grid}
    raise ValueError(f"no standard form of a verdict: {figures!r:.80}")


def pack_artefacts(artefacts: Mapping[str, str]) -> Mapping[str, str] | list[str]:
    """The common beginning of all paths and the stages, if these are their ends; else the mapping itself."""
    if len(artefacts) < 2 or any(not stage or " " in stage for stage in artefacts):
        return artefacts
    stage, path = next(iter(artefacts.items()))
    start = path.removesuffix(stage)
    if any(path != start + stage for stage, path in artefacts.items()):
        return artefacts
    return [start, " ".join(artefacts)]


def unpack_artefacts(artefacts: Mapping[str, str] | Sequence[str]) -> Mapping[str, str]:
    """Returns what :func:`pack_artefacts` was given. Raises ValueError for what it cannot have made."""
    if isinstance(artefacts, Mapping):
        return artefacts
    start, stages = artefacts
    return {stage: start + stage for stage in stages.split(" ")}


_COMMAND = "python -m pytest --pyargs conformance.suites --conformance-case"


def pack_repro(case: str, repro: str) -> str | list[str]:
    """The words after the case id in a command that runs only this ``case``; another command as it is."""
    start = f"{_COMMAND} {shlex.quote(case)} "
    return [repro[len(start) :]] if repro.startswith(start) else repro


def unpack_repro(case: str, repro: str | Sequence[str]) -> str:
    """Returns what :func:`pack_repro` was given. Raises ValueError for what it cannot have made."""
    if isinstance(repro, str):
        return repro
    (words,) = repro
    return f"{_COMMAND} {shlex.quote(case)} {words}"
