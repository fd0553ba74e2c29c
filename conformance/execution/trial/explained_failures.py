"""The diagnosis of a trial that failed: causes of wrong numbers, and of what memory, repetition and the grid show.

The tiles of the output in which numbers are wrong are counted here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.diagnosis.diagnose import FROM_NO_OPERAND, Diagnosis, diagnose
from conformance.diagnosis.nan_origins import HELD, OUTSIDE
from conformance.diagnosis.tile_search import NAN_FROM_OUTSIDE
from conformance.diagnosis.wrapped_numbers import overflow_words
from conformance.families.family import family_of
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import spans_wide
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill, Seen
from conformance.numerics.verdict import judge
from conformance.problems import Operand, Problem

#: Wrong outputs whose causes are searched for, one after the other until one is named.
ATTEMPTS = 3
#: Elements from an operand from which on an offset may have overflowed.
FAR_OFF = 1 << 28
#: So many origins of NaN are told.
MOST_ORIGINS = 3
#: From so many elements on the nearest operand has nothing to do with an address.
FAR_AWAY = 1 << 36
#: Tile edges of a config that does not say one.
USUAL_BLOCK = 64

_PLACE = re.compile(
    r"(?P<line>\S+:\d+(?: \(called at \S+\))?): program (?P<program>\(.*?\)) (?P<what>loads|stores|changes) "
    r"\d+ elements outside the operands, one of them (?P<far>\d+) "
    r"(?P<side>before the first|behind the last|behind the first) element of '(?P<operand>\w+)'"
)
#: The cause of results that hold the bits of memory that was not written.
NOT_WRITTEN = re.compile("not written: ")
#: What two programs did, and what it means if other elements were stored by none.
STORED_TWICE = "are stored"
NONE_STORED = ", and others by none: the order of tiles is wrong, or an address of a store"
#: What is wrong with a result that is added to, and that nothing has set before.
NOT_SET = "what its memory held before is in the result"
_AGAIN = re.compile(
    r"program (?P<program>\(.*?\)) stores \d+ elements of '(?P<operand>\w+)' again: program (?P<before>\(.*?\))"
)


def explain(
    plan: Plan,
    contract: Contract,
    seen: Sequence[Seen],
    disturbed: Iterable[str],
    grid: tuple[int, ...] | None,
    failed: Sequence[str],
    unread: Callable[[], Sequence[str]] = tuple,
    nan_origins: Callable[[Fill], Sequence[str]] = lambda fill: (),
    overflows: Callable[[Fill], Sequence[str]] = lambda fill: (),
) -> str:
    """Returns a text of where and why a trial of ``plan`` failed.

    ``seen`` is what each fill gave, ``disturbed`` what was said of memory, ``grid`` the one that ran. ``failed`` are
    the names of the checks that failed. ``unread`` says what programs read twice, or did not read and should have. It
    is asked where nothing else is a cause, or one of several, and where something is counted twice. ``nan_origins``
    and ``overflows`` run a launch over a fill again. The first says where NaN begins that should not be there, the
    second which integers of 32 bits overflow. It is asked if offsets may be that large, or numbers are right modulo
    2**32.
    """
    disturbed = list(disturbed)
    facts = list(dict.fromkeys([*_about_memory(plan.problem, disturbed), *_about_grid(plan, grid)]))[:2]
    # what lies outside the operands is no part of any other computation
    strayed = any(_PLACE.search(text) for text in disturbed)
    wrong = _wrong_outputs(plan.problem, contract, seen)
    numbers = _about_numbers(plan, contract, wrong, seen, by_tiles_only=strayed)
    origins, notes = _of_nan(wrong, nan_origins)
    if seen and _may_overflow(plan.problem, disturbed, numbers):
        fill = wrong[0][0].fill if wrong else seen[0].fill
        sentences, failed_trace = _traced(overflows, fill, "an overflow")
        facts, notes = sentences + facts, notes + failed_trace
    causes = () if numbers is None else numbers.causes
    left = any(NOT_WRITTEN.match(cause) for cause in causes)
    doubtful = not causes or any("twice" in cause or ", or " in cause for cause in causes)
    missing = list(unread()[:2]) if not facts and (doubtful or left) else []
    never_set = [text for text in missing if NOT_SET in text]
    if left and not doubtful:
        missing = never_set
    if left:  # some elements are stored twice and others never
        facts = [text + NONE_STORED if STORED_TWICE in text else text for text in facts]
    # an operand's own NaN is wrong where another element should have been read
    hidden = [OUTSIDE] * strayed + [HELD] * bool(missing)
    facts += missing + [text for text in origins if not any(each in text for each in hidden)]
    if numbers is None:
        head = f"FAIL {failed[0]}"
        return " | ".join([head, *(f"CAUSE {fact}" for fact in facts)]) if facts else ""
    first, *rest = (_without_guesses(numbers.text) if origins else numbers.text).split("\n")
    if never_set:  # what looks as if it were not written was added to
        first = " | ".join(part for part in first.split(" | ") if not NOT_WRITTEN.match(part.removeprefix("CAUSE ")))
    return "\n".join([" | ".join([first, *(f"CAUSE {fact}" for fact in facts)]), *rest, *notes])


def _without_guesses(text: str) -> str:
    """Returns the text of a diagnosis without what it says of NaN whose origin is known."""
    return text.replace(FROM_NO_OPERAND, "").replace(f", or {NAN_FROM_OUTSIDE}", "")


def _of_nan(
    wrong: Sequence[tuple[Seen, Operand]], nan_origins: Callable[[Fill], Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Returns sentences about where NaN begins that should not be there, and a note if
    the trace failed."""
    fill = next((entry.fill for entry, output in wrong if bool(wrong_nan(entry, output.name).any())), None)
    if fill is None:
        return [], []
    return _traced(nan_origins, fill, "where NaN begins")


def _traced(trace: Callable[[Fill], Sequence[str]], fill: Fill, what: str) -> tuple[list[str], list[str]]:
    """Returns the sentences of ``trace``, and a note if it failed: what explains a failure may not take its place."""
    try:
        return list(trace(fill))[:MOST_ORIGINS], []
    except Exception as error:
        return [], [f"{what} was not found: {type(error).__name__}: {error}"]


def _may_overflow(problem: Problem, disturbed: Iterable[str], numbers: Diagnosis | None) -> bool:
    """True if offsets of 32 bits may be too short, an address lies that far off, or numbers are right modulo 2**32."""
    far = any(int(match["far"]) >= FAR_OFF for text in disturbed if (match := _PLACE.search(text)))
    modulo = numbers is not None and any(overflow_words(32) in cause for cause in numbers.causes)
    return far or modulo or spans_wide(problem)


def wrong_nan(entry: Seen, output: str) -> Tensor:
    """Returns a mask of the elements of ``output`` that are NaN and should not be."""
    part, out = entry.fill.of(output), entry.outputs[output]
    wrong = out.double().isnan() & ~part.expected.cpu().isnan()
    return wrong if part.or_nan is None else wrong & ~part.or_nan.cpu()


def _wrong_outputs(problem: Problem, contract: Contract, seen: Sequence[Seen]) -> list[tuple[Seen, Operand]]:
    """Returns the wrong outputs of each fill. Exact fills come first: they prove most."""
    wrong = [
        (entry, output)
        for entry in seen
        for output in problem.outputs
        if output.name in entry.outputs
        and not judge(problem, contract, entry.fill, entry.outputs[output.name], output.name).passed
    ]
    methods = ("exact", "bounded", "special")
    return sorted(wrong, key=lambda pair: methods.index(pair[0].fill.of(pair[1].name).method))


def _about_numbers(
    plan: Plan, contract: Contract, wrong: Sequence[tuple[Seen, Operand]], seen: Sequence[Seen], *, by_tiles_only: bool
) -> Diagnosis | None:
    """The diagnosis of the first ``wrong`` output of which a cause can be named, else of the first; None if none is
    wrong."""
    problem = plan.problem
    if not wrong:
        return None
    diagnoses = []
    # one diagnosis is enough if it uses every output of every fill
    for entry, output in wrong[: 1 if family_of(problem).pools_fills else ATTEMPTS]:
        diagnosis = diagnose(
            problem,
            contract,
            entry.fill,
            entry.outputs[output.name],
            block=_block(plan.config),
            output=output.name,
            seen=seen,
            splits=_splits(plan),
            by_tiles_only=by_tiles_only,
        )
        diagnoses.append(diagnosis)
        if diagnosis.causes:
            return diagnosis
    return diagnoses[0]


def _block(config: AnyConfig) -> tuple[int, int, int]:
    m, n, k = (int(getattr(config, name, USUAL_BLOCK)) for name in ("block_m", "block_n", "block_k"))
    return m, n, k


def _splits(plan: Plan) -> int | None:
    """Parts into which K is split; the grid's second dimension where the kernel chose it."""
    chooses = plan.kernel in ("decompose_k_mm", "mm_atomic_split_k", "mm_reduce_split_k")
    if plan.variant.splits is None and chooses and len(plan.grid) > 1:
        return plan.grid[1]
    return plan.variant.splits


def _about_memory(problem: Problem, disturbed: Iterable[str]) -> Iterator[str]:
    tensors = {operand.name: operand for operand in problem.tensors}
    read, written = ({operand.name for operand in group} for group in (problem.operands, problem.outputs))
    others = written - read, read - written  # that a load, or a store, does not mean
    places = [(text, _PLACE.search(text)) for text in disturbed]
    seen: dict[tuple[str | Any, ...], set[tuple[str | Any, ...]]] = {}
    for _, place in places:
        if place:
            seen.setdefault(place.group("what", "line"), set()).add(place.group("operand", "side", "far"))
    for text, place in places:
        if again := _AGAIN.search(text):
            programs = f"by program {again['before']} and by program {again['program']}"
            yield f"elements of {again['operand']} {STORED_TWICE} {programs}"
        elif place:
            verb = {"loads": "read", "stores": "stored to", "changes": "changed"}[place["what"]]
            by = f"by program {place['program']} at {place['line']}"
            # operands lie elsewhere in each run: of which one an address is told is the same if it is the right one
            doubtful = (
                len(seen[place.group("what", "line")]) > 1 or place["operand"] in others[place["what"] != "loads"]
            )
            if int(place["far"]) >= FAR_AWAY or doubtful:
                yield f"memory that is no operand's is {verb}, {by}"
                continue
            where = _where(tensors.get(place["operand"]), place["side"], int(place["far"]))
            yield f"{place['operand']} is {verb} {where}, {by}"
        elif "bytes changed" in text:
            yield f"memory outside the result is written: {text}"


def _where(operand: Operand | None, side: str, far: int) -> str:
    """Returns the place that lies ``far`` elements ``side`` element of ``operand``."""
    if side != "behind the first" or operand is None:
        return f"{far} elements {side} element"
    rest, places = far, []
    order = sorted(range(len(operand.shape)), key=lambda dim: -operand.strides[dim])
    for dim in order:
        if operand.strides[dim]:
            index, rest = divmod(rest, operand.strides[dim])
            if index >= operand.shape[dim]:
                places.append(f"index {index} of dimension {dim}, which has {operand.shape[dim]}")
    return "outside its elements: " + (places[0] if places else f"{far} elements behind the first")


def _about_grid(plan: Plan, grid: tuple[int, ...] | None) -> Iterator[str]:
    if grid is None or grid == plan.grid:
        return
    ran, planned = math.prod(grid), math.prod(plan.grid)
    if ran == planned:
        yield f"the grid {grid} has the dimensions of {plan.grid} in another order or split"
    else:
        than = "more" if ran > planned else "fewer"
        yield f"the grid {grid} has {abs(ran - planned)} programs {than} than {plan.grid}"


#: Tiles of a map in each direction: the tiles of a larger output are joined.
MOST = 64


def wrong_tiles(bad: Tensor, block: tuple[int, int]) -> dict[str, Any]:
    """Counts the wrong elements in each tile of ``block`` (rows, columns) elements, as data for a record. It has
    ``shape`` in tiles, ``block``, ``rows`` and ``columns`` in elements, and ``wrong``, a list of (tile row, tile
    column, count).

    ``bad`` marks the wrong elements. Leading dimensions are stacked above each other, one matrix after the other. A
    block is doubled until at most :data:`MOST` tiles lie in each direction.
    """
    matrix = bad.reshape(-1, bad.shape[-1]) if bad.dim() else bad.reshape(1, 1)
    rows, columns = matrix.shape
    height, width = (_fitting(extent, size) for extent, size in zip((rows, columns), block, strict=True))
    row, column = matrix.nonzero(as_tuple=True)
    shape = (-(-rows // height), -(-columns // width))
    counts = torch.bincount(row // height * shape[1] + column // width, minlength=shape[0] * shape[1])
    wrong = [(index // shape[1], index % shape[1], int(counts[index])) for index in counts.nonzero().flatten().tolist()]
    return {"shape": shape, "block": (height, width), "rows": rows, "columns": columns, "wrong": wrong}


def _fitting(extent: int, block: int) -> int:
    while extent > MOST * block:
        block *= 2
    return block
