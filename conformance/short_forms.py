"""Decodes lines of schema 3, which had short forms for what nearly every record holds. No line is written so any more.

* A mapping with the key ``=`` has the shape with that number; keys that are absent have the shape's usual values.
* A verdict is an array. A passed one may have figures of a standard form in place of its text and details.
* Artefacts may be the common beginning of all paths and the stages, a command only its last words.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = 3

_SHAPE = "="
_LITERAL = -1  # the number for a mapping that has the key "=" itself
_NEEDED = object()  # a key that is always written
#: Each shape: its keys in order, with their usual values.
_SHAPES: tuple[Mapping[str, Any], ...] = (
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
#: Patterns that codegen features looked for.
_PATTERNS = (
    *(r"^cp\.async\.bulk\.tensor\.[1-5]d\.global\.shared::cta\b", r"^st\.global\b"),
    *(r"^cp\.async\.bulk\.tensor\.[1-5]d\.shared::(cluster|cta)\.global\b", r"!tt\.tensordesc<", r"\btt\.load\b"),
    *(r"^wgmma\.mma_async\.sync\b", r"^mma\.sync\.aligned\b", r"^tcgen05\.mma\b", r"^tensor_load_to_lds\b"),
    *(r"^tensor_store_from_lds\b", r"^(buffer|global|flat)_store_", r"^v_s?mfma", r"\bttg\.warp_specialize\("),
    r"^v_(wmma|swmmac)_",
)
#: The kinds of fills, by the number of the standard form.
_FILLS = ("exact", "bounded", "special")
_COMMAND = "python -m pytest --pyargs conformance.suites --conformance-case"


def expanded(line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of the JSON object ``line`` in full. Raises ValueError, or another error of Python's, for
    unknown forms. The types of values that have no short form are not checked."""
    fields = dict(line)
    for name in fields.keys() & {"problem", "config"}:
        fields[name] = _mapping(fields[name])
    if "verdicts" in fields:
        fields["verdicts"] = [_verdict(verdict) for verdict in fields["verdicts"]]
    if isinstance(fields.get("artefacts"), list):
        start, stages = fields["artefacts"]
        fields["artefacts"] = {stage: start + stage for stage in stages.split(" ")}
    if isinstance(fields.get("repro"), list):
        (words,) = fields["repro"]
        fields["repro"] = f"{_COMMAND} {shlex.quote(fields['case'])} {words}"
    return fields


def _mapping(value: Any) -> Any:
    if isinstance(value, list):
        return [_mapping(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _SHAPE not in value:
        return {key: _mapping(item) for key, item in value.items()}
    number = value[_SHAPE]
    if type(number) is not int or not _LITERAL <= number < len(_SHAPES):
        raise ValueError(f"no shape of a mapping: {value!r:.80}")
    if number == _LITERAL:
        return {key: _mapping(item) for key, item in value["value"].items()}
    shape = _SHAPES[number]
    given = {key: _mapping(item) for key, item in value.items() if key != _SHAPE}
    absent = [key for key, usual in shape.items() if usual is _NEEDED and key not in given]
    if absent or given.keys() - shape.keys():
        raise ValueError(f"not of the shape {number}: {value!r:.80}")
    return {key: given.get(key, [*usual] if usual == [] else usual) for key, usual in shape.items()}


def _verdict(value: Any) -> dict[str, Any]:
    match value:
        case [str(check), True, [*figures]]:
            text, details = _standard_text(check, figures)
            return {"check": check, "passed": True, "text": text, "details": details}
        case [str(check), bool(passed), *rest] if len(rest) <= 2:
            return {"check": check, "passed": passed, **dict(zip(("text", "details"), rest, strict=False))}
    raise ValueError(f"no verdict: {value!r:.80}")


def _standard_text(check: str, figures: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Returns the text and the details of a passed verdict in a standard form."""
    match figures:
        case [(0 | 1 | 2) as kind, int(seed), int(total), *ratio] if len(ratio) <= 1:
            fill = check.partition("/")[2].partition("@")[0]
            details = {"wrong": 0, "total": total, **({"worst_ratio": ratio[0]} if ratio else {})}
            return f"PASS {_FILLS[kind]}/{fill} seed {seed}: {total} elements", details
        case [3, (int() | str()) as pattern, str(stage), *line] if len(line) <= 1:
            if isinstance(pattern, int) and not 0 <= pattern < len(_PATTERNS):
                raise ValueError(f"no standard form of a verdict: the pattern {pattern} is not known")
            searched = pattern if isinstance(pattern, str) else _PATTERNS[pattern]
            outcome = f"matches line {line[0]}" if line else "no match"
            return f"CHECK: {{{{{searched}}}}} in {stage}: {outcome}", {"stage": stage}
        case [4, int(runs)]:
            return f"operands and surroundings untouched in {runs} runs", {}
        case [5, str(digest)]:
            return f"judged {digest}, launched {digest}", {}
        case [6]:
            return "within the target's limits", {}
        case [7, *grid]:
            return f"grid {tuple(grid)} ran", {"grid": grid}
    raise ValueError(f"no standard form of a verdict: {figures!r:.80}")
