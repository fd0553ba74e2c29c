"""Every single edit of each class of faults on every synchronising operation of one TTGIR text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Each class of edits, with what it stands for.
CLASSES = {
    "wait dropped": "a wait for a barrier, for copies, for products or for stores is not there",
    "wait leaves more": "a wait for groups leaves one or two more of them running",
    "phase flipped": "a wait is for the other phase of its barrier",
    "fence removed": "a fence between the generic and the asynchronous proxy, or of a descriptor",
    "slot off by one": "a view takes the next slot of its buffer, cyclically",
    "slot past the end": "a view takes the next slot, the last one what is behind the buffer",
    "barrier slot off by one": "the same of an array of barriers, cyclically",
    "arrive removed": "an arrival that others wait for is not there",
    "commit removed": "a group of copies, or of products, is not closed",
    "count raised": "a barrier expects one arrival more",
    "count lowered": "a barrier expects one arrival less, or an arrival counts for one less",
    "arrival counts twice": "an arrival counts for one more",
    "bytes halved": "a barrier expects half of the bytes",
    "bytes doubled": "a barrier expects twice the bytes",
    "expect removed": "a barrier is not told which bytes will come",
    "copy removed": "a copy to or from shared or tensor memory is not there",
    "other barrier": "an operation takes another barrier in its scope",
    "other operand": "a product or copy takes another buffer of the same type in its scope",
    "operands swapped": "a product takes B for A, where both have one type",
    "predicate true": "what had a condition is done always",
    "predicate false": "what had a condition is never done",
    "sum kept": "a product adds to what it should overwrite, or the reverse",
    "barrier removed": "the barrier of a product is not signalled",
    "layout changed": "one type of an operation has another layout of the same kind and rank",
}

_NAME = r"%[\w$.#-]+"
_OPERATION = re.compile(rf'^(\s*)(?:({_NAME}(?::\d+)?(?:, {_NAME})*) = )?"?((?:ttng|ttg|amdg|tt)\.[\w.]+)"?(.*)$')
#: An attribute that stands between operands.
_PLACES_OF_TASKS = re.compile(r" \{async_task_id = array<[^>]*>\}(?=,)")
#: The name of a layout, its kind and its words, where it is defined, and where it is used.
_LAYOUT = re.compile(r"^(#\w+) = #(?:ttg|ttng)\.(\w+)<(.*)>\s*$")
_USED = re.compile(r"#\w+(?![\w.<])")
_VIEW = re.compile(
    rf"^\s*({_NAME}) = (?:ttg\.memdesc_\w+|ttg\.local_alloc|ttng\.tmem_\w+) .*?"
    r"(!ttg\.memdesc<[^>]*(?:<[^>]*>[^>]*)*>)\s*(?:loc\(.*)?$"
)


@dataclass(frozen=True)
class Edit:
    """One fault: its class, the line of the text (from 0), the operation there, what was done, and the text after it.
    ``about`` has the names in the line that the edit is about, and in whose place it put what."""

    kind: str
    line: int
    operation: str
    what: str
    text: str
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Line:
    """One line with an operation: its indentation, results, name, words, and what views of memory it may name."""

    indent: str
    results: str
    name: str
    words: str
    full: str
    views: dict[str, str]

    def without(self) -> list[str]:
        """The line's results, of no use to anybody, and not its operation."""
        names = [name for part in self.results.split(", ") if part for name in _each(part)]
        return [f"{self.indent}{name} = arith.constant false" for name in names]

    def others(self, name: str, count: int = 2) -> list[str]:
        """The latest other views of the same type as ``name``."""
        kind = self.views.get(name)
        same = [other for other, its in self.views.items() if its == kind and other != name] if kind else []
        return same[: -count - 1 : -1]

    def flipped(self, name: str, kind: str) -> tuple[list[str], str]:
        """Lines that make the opposite of ``name``, and its name."""
        return [
            f"{self.indent}%planted_one = arith.constant 1 : i32",
            f"{self.indent}%planted = arith.{kind} {name}, %planted_one : i32",
        ], "%planted"


def _each(results: str) -> list[str]:
    name, _, count = results.partition(":")
    return [f"{name}#{index}" for index in range(int(count))] if count else [name]


def _rank(words: str) -> int:
    order = re.search(r"order = \[([\d, ]+)\]", words)
    return len(order[1].split(",")) if order else 2


def _with_other_layouts(line: str, layouts: Mapping[str, tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """For each place where ``line`` names one of ``layouts``: the others of its kind and rank, as what was done and the
    line after it."""
    for match in _USED.finditer(line.split(" loc(")[0]):
        for other, kind in layouts.items():
            if other != match[0] and kind == layouts.get(match[0]):
                yield f"{other} for {match[0]}", line[: match.start()] + other + line[match.end() :]


def edits_of(text: str) -> Iterator[Edit]:
    """Every edit of every class of ``text``, in the order of its lines. None of them leaves the text as it was."""
    lines = text.splitlines()
    layouts = {match[1]: (match[2], _rank(match[3])) for line in lines if (match := _LAYOUT.match(line))}
    scopes: list[dict[str, str]] = [{}]
    for number, full in enumerate(lines):
        if full.lstrip().startswith("}") and len(scopes) > 1:
            scopes.pop()
        match = _OPERATION.match(full)
        if match:
            views = {name: kind for scope in scopes for name, kind in scope.items()}
            line = _Line(match[1], match[2] or "", match[3], _PLACES_OF_TASKS.sub("", match[4]), full, views)
            for kind, what, replacement in _edits_of_line(line):
                edited = "\n".join([*lines[:number], *replacement, *lines[number + 1 :]])
                if replacement != [full]:
                    about = tuple(dict.fromkeys(re.findall(_NAME, full.split(" loc(")[0] + " " + what)))
                    yield Edit(kind, number, line.name, what, edited, about)
            for what, changed in _with_other_layouts(full, layouts):
                yield Edit(
                    "layout changed",
                    number,
                    line.name,
                    what,
                    "\n".join([*lines[:number], changed, *lines[number + 1 :]]),
                )
        if view := _VIEW.match(full):
            scopes[-1][view[1]] = re.sub(r", mutable", "", view[2])
        if re.search(r"\{\s*(?:loc\(.*)?$", full) and not full.startswith(("module", "#")):
            isolated = re.match(r"\s*partition\d+\(", full)
            scopes.append({})
            if isolated:
                scopes = [{}, *({} for _ in scopes[1:])]


#: A class, what was done, and the lines in place of the one that was edited.
_Edited = tuple[str, str, list[str]]


def _edits_of_line(line: _Line) -> Iterator[_Edited]:
    name = line.name
    if name in _EDITS:
        yield from _EDITS[name](line)


def _changed(line: _Line, pattern: str, replacement: str, before: list[str] | None = None) -> list[str]:
    return [*(before or []), re.sub(pattern, replacement.replace("\\", r"\\") if "%" in replacement else replacement,
                                    line.full, count=1)]  # fmt: skip


def _group_wait(attribute: str, line: _Line) -> Iterator[_Edited]:
    match = re.search(rf"\b{attribute} = (\d+)", line.full)
    if match is None:
        return
    left = int(match[1])
    for more in (1, 2):
        yield (
            "wait leaves more",
            f"{left} became {left + more}",
            _changed(line, rf"\b{attribute} = \d+", f"{attribute} = {left + more}"),
        )
    yield "wait dropped", "leaves all running", _changed(line, rf"\b{attribute} = \d+", f"{attribute} = 9999")


def _async_wait(line: _Line) -> Iterator[_Edited]:
    yield from _group_wait("num", line)


def _pendings_wait(line: _Line) -> Iterator[_Edited]:
    yield from _group_wait("pendings", line)


def _wait_barrier(line: _Line) -> Iterator[_Edited]:
    barrier, phase, *more = re.findall(_NAME, line.words.split(" deps ")[0].split(" : ")[0])
    yield "wait dropped", "is gone", []
    before, flipped = line.flipped(phase, "xori")
    yield "phase flipped", f"of {phase}", [*before, line.full.replace(f", {phase}", f", {flipped}", 1)]
    yield from _other_barriers(line, barrier)
    if more:
        yield from _predicates(line, more[0])


def _other_barriers(line: _Line, barrier: str) -> Iterator[_Edited]:
    for other in line.others(barrier):
        yield "other barrier", f"{other} for {barrier}", [_renamed(line.full, barrier, other)]


def _renamed(text: str, name: str, other: str) -> str:
    return re.sub(re.escape(name) + r"(?![\w$.#-])", lambda _: other, text, count=1)


def _predicates(line: _Line, predicate: str) -> Iterator[_Edited]:
    for value in ("true", "false"):
        constant = f"{line.indent}%planted = arith.constant {value}"
        at = line.full.rindex(predicate, 0, len(line.full) - len(line.words) + len(line.words.split(" : ")[0]))
        yield f"predicate {value}", f"of {predicate}", [
            constant, line.full[:at] + "%planted" + line.full[at + len(predicate) :]
        ]  # fmt: skip


def _fence(line: _Line) -> Iterator[_Edited]:
    yield "fence removed", "is gone", line.without()


def _index(line: _Line) -> Iterator[_Edited]:
    match = re.search(rf"({_NAME})\[({_NAME})\] : !ttg\.memdesc<(\d+)x(1xi64)?", line.full)
    if match is None:
        return
    index, slots, barrier = match[2], int(match[3]), match[4] is not None
    one = f"{line.indent}%planted_one = arith.constant 1 : i32"
    past = f"{line.indent}%planted_past = arith.addi {index}, %planted_one : i32"
    count = f"{line.indent}%planted_slots = arith.constant {slots} : i32"
    cyclic = f"{line.indent}%planted = arith.remsi %planted_past, %planted_slots : i32"
    if slots > 1:
        kind = "barrier slot off by one" if barrier else "slot off by one"
        yield kind, f"after {index} of {slots}", [one, past, count, cyclic, _indexed(line, index, "%planted")]
    if not barrier:
        yield "slot past the end", f"after {index} of {slots}", [one, past, _indexed(line, index, "%planted_past")]


def _indexed(line: _Line, index: str, other: str) -> str:
    return line.full.replace(f"[{index}]", f"[{other}]", 1)


def _gone(kind: str) -> object:
    def edits(line: _Line) -> Iterator[_Edited]:
        yield kind, "is gone", line.without()

    return edits


def _arrive(line: _Line) -> Iterator[_Edited]:
    barrier, count, *more = [part.strip() for part in re.split(r" : | \{", line.words)[0].split(",")]
    yield "arrive removed", "is gone", []
    yield "arrival counts twice", f"{count} became {int(count) + 1}", _changed(line, r", \d+", f", {int(count) + 1}")
    if int(count) > 1:
        yield "count lowered", f"{count} became {int(count) - 1}", _changed(line, r", \d+", f", {int(count) - 1}")
    yield from _other_barriers(line, barrier)
    if more:
        yield from _predicates(line, more[0])


def _init(line: _Line) -> Iterator[_Edited]:
    barrier, count = [part.strip() for part in re.split(r" : | \{", line.words)[0].split(",")]
    yield "count raised", f"{count} became {int(count) + 1}", _changed(line, r", \d+", f", {int(count) + 1}")
    yield "count lowered", f"{count} became {int(count) - 1}", _changed(line, r", \d+", f", {int(count) - 1}")
    yield from _other_barriers(line, barrier)


def _expect(line: _Line) -> Iterator[_Edited]:
    barrier, size, predicate = [part.strip() for part in re.split(r" : | \{", line.words)[0].split(",")][:3]
    for kind, other in (("bytes halved", int(size) // 2), ("bytes doubled", 2 * int(size))):
        yield kind, f"{size} became {other}", _changed(line, rf", {size}", f", {other}")
    yield "expect removed", "is gone", []
    yield from _other_barriers(line, barrier)
    yield from _predicates(line, predicate)


def _operands_before_types(line: _Line) -> list[str]:
    return re.findall(_NAME, re.sub(r"\[[^\]]*\]", " ", line.words.split(" : ")[0]))


def _tma_load(line: _Line) -> Iterator[_Edited]:
    _, target, barrier, predicate = _operands_before_types(line)[:4]
    yield "copy removed", "is gone", []
    yield from _other_barriers(line, barrier)
    for other in line.others(target):
        yield "other operand", f"{other} for {target}", [_renamed(line.full, target, other)]
    yield from _predicates(line, predicate)


def _tma_store(line: _Line) -> Iterator[_Edited]:
    source = _operands_before_types(line)[1]
    yield "copy removed", "is gone", line.without()
    for other in line.others(source):
        yield "other operand", f"{other} for {source}", [_renamed(line.full, source, other)]


def _local_access(at: int) -> object:
    def edits(line: _Line) -> Iterator[_Edited]:
        view = re.findall(_NAME, line.words.split(" : ")[0])[at]
        if not line.results:
            yield "copy removed", "is gone", []
        for other in line.others(view):
            yield "other operand", f"{other} for {view}", [_renamed(line.full, view, other)]

    return edits


def _tmem_store(line: _Line) -> Iterator[_Edited]:
    target, _, predicate = re.findall(_NAME, line.words.split(" : ")[0])[:3] if line.words.count(",") else ("", "", "")
    yield "copy removed", "is gone", line.without()
    for other in line.others(target):
        yield "other operand", f"{other} for {target}", [_renamed(line.full, target, other)]
    if predicate:
        yield from _predicates(line, predicate)


def _copy(line: _Line) -> Iterator[_Edited]:
    yield "copy removed", "is gone", line.without()
    target = re.findall(_NAME, line.words.split(" : ")[0])[1]
    for other in line.others(target):
        yield "other operand", f"{other} for {target}", [_renamed(line.full, target, other)]


def _tcgen05(line: _Line) -> Iterator[_Edited]:
    words = line.words.split(" : ")[0].split(" {")[0]
    a, b, d, keep, predicate, *signals = [part.strip() for part in words.split(",")]
    d = d.partition("[")[0]
    yield from _product_operands(line, a, b)
    for other in line.others(d, 1):
        yield "other operand", f"{other} for {d}", [_renamed(line.full, d, other)]
    for value in ("true", "false"):
        constant = f"{line.indent}%planted = arith.constant {value}"
        kept, forced = (
            f"{a}, {b}, {_rest_of(words, 2)}, %planted, {predicate}",
            f"{a}, {b}, {_rest_of(words, 2)}, {keep}, %planted",
        )
        tail = "".join(f", {signal}" for signal in signals)
        yield "sum kept", f"{keep} became {value}", [constant, line.full.replace(words.strip(), kept + tail, 1)]
        yield f"predicate {value}", f"of {predicate}", [
            constant, line.full.replace(words.strip(), forced + tail, 1)
        ]  # fmt: skip
    for signal in signals:
        barrier = signal.partition("[")[0]
        yield from _other_barriers(line, barrier)
        kept = words.replace(f", {signal}", "", 1)
        yield "barrier removed", f"{barrier} is not signalled", [line.full.replace(words.strip(), kept.strip(), 1)]


def _rest_of(words: str, index: int) -> str:
    return words.split(",")[index].strip()


def _product_operands(line: _Line, a: str, b: str) -> Iterator[_Edited]:
    for operand in (a, b):
        for other in line.others(operand):
            yield "other operand", f"{other} for {operand}", [_renamed(line.full, operand, other)]
    types = line.full.split(" : ", 1)[-1] if " : " in line.full else ""
    shapes = re.findall(r"(?:memdesc|tensor)<((?:\d+x)+)", types)
    if len(shapes) > 1 and shapes[0] == shapes[1] and a != b:
        swapped = line.full.replace(f"{a}, {b}", f"{b}, {a}", 1)
        yield "operands swapped", f"{b} for {a}", [swapped]


def _product(line: _Line) -> Iterator[_Edited]:
    a, b = re.findall(_NAME, line.words)[:2]
    yield from _product_operands(line, a, b)


def _commit_barrier(line: _Line) -> Iterator[_Edited]:
    barrier = re.findall(_NAME, line.words)[0]
    yield "commit removed", "is gone", []
    yield from _other_barriers(line, barrier)


_EDITS = {
    "ttg.async_wait": _async_wait,
    "amdg.async_wait": _async_wait,
    "ttng.warp_group_dot_wait": _pendings_wait,
    "ttng.async_tma_store_wait": _pendings_wait,
    "ttng.wait_barrier": _wait_barrier,
    "ttng.fence_async_shared": _fence,
    "ttng.tensormap_fenceproxy_acquire": _fence,
    "ttg.memdesc_index": _index,
    "ttng.arrive_barrier": _arrive,
    "ttg.async_commit_group": _gone("commit removed"),
    "ttng.tc_gen5_commit": _commit_barrier,
    "ttng.init_barrier": _init,
    "ttng.barrier_expect": _expect,
    "ttng.async_tma_copy_global_to_local": _tma_load,
    "ttng.async_tma_gather": _tma_load,
    "ttng.async_tma_copy_local_to_global": _tma_store,
    "ttng.async_tma_reduce": _tma_store,
    "ttng.async_tma_scatter": _tma_store,
    "ttg.async_copy_global_to_local": _copy,
    "amdg.buffer_load_to_local": _gone("copy removed"),
    "ttg.local_load": _local_access(0),
    "ttg.local_store": _local_access(1),
    "ttng.tmem_load": _local_access(0),
    "ttng.tmem_store": _tmem_store,
    "ttng.tc_gen5_mma": _tcgen05,
    "ttng.tc_gen5_mma_scaled": _gone("copy removed"),
    "ttng.warp_group_dot": _product,
    "tt.dot": _product,
}
