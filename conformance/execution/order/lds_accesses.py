"""Checks whether AMD's waves pass a barrier with an access of LDS open that other waves may meet behind it.

An access is open until s_waitcnt or s_wait says that it has ended. A load that is open at a barrier may read what other
waves write behind the barrier; of an open store other waves may read, or write over, what was there before. Ping-pong
schedules let half of the waves run one barrier ahead of the others. Then accesses one barrier further, and before the
barrier, count, too. Accesses of other places of LDS do no harm, and those of one wave end in their order. They are told
apart by their addresses, which are computed for every thread of a block. Where paths or lanes meet with different
values in a register, it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from conformance.execution.compile.code_structure import AssemblyCode
from conformance.execution.order.register_values import Value
from conformance.execution.order.walks import OrderAnswer

#: More accesses than the counters of the hardware can hold.
MOST_OPEN = 64
#: Turns of a loop for which addresses are computed; what still touches new words in the last one is not known.
_TURNS = 8
#: More than the waves of a block.
_WAVES = 64

#: Where waves say that they have come; later ones only wait for the others.
_BARRIER = re.compile(r"s_barrier(?!_wait|_leave|_init|_join)")
_LGKM = re.compile(r"\blgkmcnt\((\d+)\)")
_LDS = re.compile(r"ds_(?!bpermute|permute|swizzle|nop|gws)")
_LOAD = re.compile(r"ds_(read|load)")
_STORE = re.compile(r"ds_(write|store)")
_COPY = re.compile(r"(buffer|global)_load\w*|tensor_load_to_lds|global_load_async_to_lds\w*")
_ENDS = re.compile(r"s_(branch|endpgm|setpc_b64)$")
_SAVES_EXEC = re.compile(r"s_\w+_saveexec_b(32|64)$")
_SETS_EXEC = re.compile(r"s_(or|mov)_b(32|64)$")
_SKIPPED = re.compile(r"s_cbranch_(exec|vcc)\w+")
_THREADS = re.compile(r"\.max_flat_workgroup_size:\s*(\d+)")
_WAVE_32 = re.compile(r"\.wavefront_size:\s*32\b")
_OFFSET = re.compile(r"\boffset([01]?):(\d+)")
#: Of gfx11 on they are called ds_load_2addr_stride64_b32, before ds_read2st64_b32.
_TWO = re.compile(r"ds_(?:read|write|load|store)(?:2|_2addr)(st64|_stride64)?_")
_BITS = re.compile(r"_[bfui](8|16|32|64|96|128)(?:_|$)")
_REGISTER = re.compile(r"([vs])(?:\[(\d+):\d+\]|(\d+))$|(vcc|exec|m0)$")
_Words = Sequence[NDArray[np.int64]]
_Values = dict[str, NDArray[np.int64] | None]
#: Scalar registers that may have a value when a kernel begins.
_INPUTS = 20
_ALL = (1 << 32) - 1
_COMPUTED: dict[str, Callable[[_Words], NDArray[np.int64]]] = {
    "mov_b32": lambda x: x[0],
    "add_u32": lambda x: x[0] + x[1],
    "add_nc_u32": lambda x: x[0] + x[1],
    "add_i32": lambda x: x[0] + x[1],
    "sub_u32": lambda x: x[0] - x[1],
    "sub_nc_u32": lambda x: x[0] - x[1],
    "subrev_u32": lambda x: x[1] - x[0],
    "subrev_nc_u32": lambda x: x[1] - x[0],
    "and_b32": lambda x: x[0] & x[1],
    "or_b32": lambda x: x[0] | x[1],
    "xor_b32": lambda x: x[0] ^ x[1],
    "not_b32": lambda x: ~x[0],
    "lshlrev_b32": lambda x: x[1] << (x[0] & 31),
    "lshrrev_b32": lambda x: x[1] >> (x[0] & 31),
    "ashrrev_i32": lambda x: _signed(x[1]) >> (x[0] & 31),
    "lshl_b32": lambda x: x[0] << (x[1] & 31),
    "lshr_b32": lambda x: x[0] >> (x[1] & 31),
    "mul_u32_u24": lambda x: (x[0] & 0xFFFFFF) * (x[1] & 0xFFFFFF),
    "mul_i32_i24": lambda x: x[0] * x[1],
    "mul_lo_u32": lambda x: x[0] * x[1],
    "mul_i32": lambda x: x[0] * x[1],
    "mad_u32_u24": lambda x: (x[0] & 0xFFFFFF) * (x[1] & 0xFFFFFF) + x[2],
    "lshl_or_b32": lambda x: (x[0] << (x[1] & 31)) | x[2],
    "lshl_add_u32": lambda x: (x[0] << (x[1] & 31)) + x[2],
    "add_lshl_u32": lambda x: (x[0] + x[1]) << (x[2] & 31),
    "and_or_b32": lambda x: (x[0] & x[1]) | x[2],
    "or3_b32": lambda x: x[0] | x[1] | x[2],
    "xad_u32": lambda x: (x[0] ^ x[1]) + x[2],
    "add3_u32": lambda x: x[0] + x[1] + x[2],
    "bfe_u32": lambda x: (x[0] >> (x[1] & 31)) & ((1 << _bits_of_field(x)) - 1),
    "bfe_i32": lambda x: _sign_of_field(x[0] >> (x[1] & 31), _bits_of_field(x)),
    "bfi_b32": lambda x: (x[0] & x[1]) | (~x[0] & x[2]),
}


def _signed(value: NDArray[np.int64]) -> NDArray[np.int64]:
    extended: NDArray[np.int64] = value - ((value & (1 << 31)) << 1)
    return extended


def _bits_of_field(words: _Words) -> NDArray[np.int64]:
    """Returns the length of a field: a scalar instruction has it in the upper half of the word with the start."""
    bits: NDArray[np.int64] = words[2] & 31 if len(words) > 2 else words[1] >> 16 & 127
    return bits


def _sign_of_field(value: NDArray[np.int64], bits: NDArray[np.int64]) -> NDArray[np.int64]:
    field = value & ((1 << bits) - 1)
    extended: NDArray[np.int64] = field - ((field & (1 << np.maximum(bits - 1, 0))) << 1)
    return extended


def lds_answer(code: AssemblyCode, text: str) -> OrderAnswer:
    """Judges whether an access of LDS in AMD's ``code``, whose text is ``text``, is open across a barrier where other
    waves may meet it."""
    barriers, before = code.numbers(_BARRIER), code.predecessors()
    opened = {barrier: _open_accesses(code, before, barrier) for barrier in barriers}
    if not any(opened.values()):
        return OrderAnswer("lds")
    pieces = _Addresses(code, text).pieces
    shifted = any(_is_skipped(code, barrier) for barrier in barriers)
    unknown = ""
    for barrier, accesses in opened.items():
        others = _met(code, before, barrier, shifted) if accesses else []
        for access in sorted(accesses):
            for other in others:
                if _LOAD.match(code.operations[access]) and _LOAD.match(code.operations[other]):
                    continue
                first, second = pieces.get(access), pieces.get(other)
                where = f"{_named(code, access)} is open at the barrier of line {code.lines[barrier]}"
                if first is None or second is None:
                    unknown = unknown or f"{where}, and {_named(code, other)} follows"
                elif _of_several_waves(first, second):
                    verb = (
                        "overwrites what it reads" if _LOAD.match(code.operations[access]) else "needs what it writes"
                    )
                    return OrderAnswer("lds", f"{where}, and {_named(code, other)} of other waves {verb}")
    return OrderAnswer("lds", unknown=unknown)


def _open_accesses(code: AssemblyCode, before: Mapping[int, Sequence[int]], barrier: int) -> set[int]:
    """Returns the LDS accesses that some path brings to ``barrier`` without a wait for them.

    Accesses end in the order in which they began. So the paths are followed back from the barrier, with the number of
    accesses that the waits on the way leave open. Another barrier on the way ends nothing.
    """
    waiting, best, opened = [(at, MOST_OPEN) for at in before.get(barrier, ())], dict[int, int](), set[int]()
    while waiting:
        at, left = waiting.pop()
        operation = code.operations[at]
        left = min(left, _left_open(operation, code.operands[at]))
        if left <= best.get(at, 0):
            continue
        best[at] = left
        if operation.startswith("ds_"):
            left -= 1
            if _LDS.match(operation):
                opened.add(at)
        waiting += [(to, left) for to in before.get(at, ())]
    return opened


def _left_open(operation: str, operands: str) -> int:
    """Returns the largest number of LDS accesses that an instruction leaves open."""
    if operation == "s_waitcnt":
        match = _LGKM.search(operands)
        return int(match[1]) if match else MOST_OPEN
    if operation.startswith("s_wait_") and "dscnt" in operation:
        return int(operands.split()[0], 0) & 0x3F  # the other counter is in the bits above
    return MOST_OPEN


def _is_skipped(code: AssemblyCode, barrier: int) -> bool:
    """Returns True if some waves jump over ``barrier``, so that the others fall one barrier behind."""
    return any(_SKIPPED.match(code.operations[at]) for at in range(max(0, barrier - 3), barrier))


def _met(code: AssemblyCode, before: Mapping[int, Sequence[int]], barrier: int, shifted: bool) -> list[int]:
    """The accesses of other waves while this wave is between ``barrier`` and the next one."""
    after = dict(enumerate(code.successors))
    accesses, ends = _until_barrier(code, after, [barrier])
    if shifted:
        ahead, _ = _until_barrier(code, after, ends)
        behind, _ = _until_barrier(code, before, [barrier])
        accesses |= ahead | behind
    return sorted(accesses)


def _until_barrier(
    code: AssemblyCode, nexts: Mapping[int, Sequence[int]], starts: Iterable[int]
) -> tuple[set[int], set[int]]:
    """Returns the accesses of LDS on the paths from ``starts`` to the next barriers, and those barriers."""
    waiting = [to for start in starts for to in nexts.get(start, ())]
    seen, accesses, ends = set[int](), set[int](), set[int]()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        operation = code.operations[at]
        if _BARRIER.match(operation):
            ends.add(at)
            continue
        if _LDS.match(operation) or (_COPY.match(operation) and "lds" in f"{operation} {code.operands[at]}"):
            accesses.add(at)
        waiting += nexts.get(at, ())
    return accesses, ends


def _of_several_waves(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Returns True if two waves touch a word of LDS: the accesses of one wave end in their order."""
    words = np.intersect1d(first // _WAVES, second // _WAVES)
    touched = np.union1d(first, second)
    return bool(np.isin(touched // _WAVES, words).sum() > len(words))


class _Addresses:
    """``pieces``: by the number of an instruction the words of LDS (4 bytes) that it touches, each times _WAVES plus
    the number of the wave; None if they are not known. The instructions are executed in the order of the text, and
    loops several times. Where a jump forward ends, or masked lanes run again, the registers are joined with those that
    were there before."""

    def __init__(self, code: AssemblyCode, text: str) -> None:
        match = _THREADS.search(text)
        self._threads = int(match[1]) if match else 256
        self._lanes = 32 if _WAVE_32.search(text) else 64
        self._values: _Values = {"v0": np.arange(self._threads), **{f"s{number}": None for number in range(_INPUTS)}}
        self._masked: dict[str, _Values] = {}  # by the register that has exec the values when lanes were masked
        self._grew: dict[int, bool] = {}  # whether an access touched new words when it was last executed
        self.pieces: dict[int, NDArray[np.int64] | None] = {}
        coming: dict[int, _Values] = {}
        turns: dict[int, int] = {}
        at, live = 0, True
        while at < len(code.operations):
            if (values := coming.pop(at, None)) is not None:
                self._values = _joined(self._values, values) if live else values
                live = True
            if not live:
                at += 1
                continue
            self._execute(at, code.operations[at], code.operands[at])
            live = not _ENDS.match(code.operations[at])
            back = [to for to in code.successors[at] if to <= at]
            ahead = [to for to in code.successors[at] if to > at and (to > at + 1 or back or not live)]
            again = bool(back) and turns.get(at, 0) < _TURNS
            for to in ahead:
                coming[to] = _joined(coming[to], self._values) if to in coming else dict(self._values)
            if again:
                turns[at] = turns.get(at, 0) + 1
                live = True
            if turns.get(at) == _TURNS and not again:
                turns[at] += 1
                self.pieces.update((one, None) for one in range(back[0], at) if self._grew.get(one))
            at = back[0] if again else at + 1

    def _mask(self, operation: str, parts: list[str]) -> None:
        """Joins the values of lanes that were masked with those of the others, and notes those of lanes to mask."""
        saves = bool(_SAVES_EXEC.match(operation))
        if saves or (_SETS_EXEC.match(operation) and parts[0].startswith("exec")):
            saved = [self._masked[one] for one in parts[1:] if one in self._masked]
            if not saved and not saves:
                saved = [*self._masked.values()]
            for values in saved:
                self._values = {**self._values, **_joined(self._values, values)}
        if saves or (_SETS_EXEC.match(operation) and parts[-1].startswith("exec")):
            self._masked[parts[0]] = {name: value for name, value in self._values.items() if name.startswith("v")}

    def _execute(self, at: int, operation: str, operands: str) -> None:
        parts = [part.strip() for part in operands.split(",")]
        if operation.startswith("ds_"):
            self._access(at, operation, parts)
        self._mask(operation, parts)
        target = _REGISTER.match(parts[0]) if parts[0] else None
        if not target or operation.startswith(("s_cbranch", "s_wait", "ds_write", "ds_store", "buffer_store")):
            return
        if operation.startswith("v_readfirstlane"):
            value = self._value(parts[1])
            first = np.arange(self._threads) // self._lanes * self._lanes
            result = None if value is None else value[first]
        else:
            result = self._result(operation, parts[1:])
        for name in _names(parts[0]):
            self._values[name] = result

    def _result(self, operation: str, sources: list[str]) -> NDArray[np.int64] | None:
        name = re.sub(r"^[sv]_|_e(32|64)$|_dpp$|_sdwa$", "", operation)
        name = re.sub(r"_e(32|64)$", "", name)
        if name == "cndmask_b32":
            return None
        compute = _COMPUTED.get(name)
        values = [self._value(source.split()[0]) if source else None for source in sources]
        operands = [one for one in values if one is not None]
        if compute is None or len(operands) < len(values):
            return None
        return compute(operands) & _ALL

    def _value(self, operand: str) -> NDArray[np.int64] | None:
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", operand):
            return np.full(self._threads, int(operand, 0) & _ALL)
        return self._values.get(operand)

    def _access(self, at: int, operation: str, parts: list[str]) -> None:
        words = parts[1].split() if _LOAD.match(operation) and len(parts) > 1 else parts[0].split()
        base = self._value(words[0]) if words else None
        bits = _BITS.search(operation)
        if base is None or bits is None or not (_LOAD.match(operation) or _STORE.match(operation)):
            self.pieces[at] = None
            return
        size = int(bits[1]) // 8
        offsets = {index: int(number) for index, number in _OFFSET.findall(" ".join(parts))}
        starts = [offsets.get("", 0)]
        if two := _TWO.match(operation):  # two places, whose offsets count elements, or 64 of them
            unit = size * (64 if two[1] else 1)
            starts = [offsets.get("0", 0) * unit, offsets.get("1", 0) * unit]
        wave = np.arange(self._threads)[:, None] // self._lanes
        touched = np.unique([_spread(base + start, size) * _WAVES + wave for start in starts])
        if at not in self.pieces:
            self.pieces[at] = touched
        elif (earlier := self.pieces[at]) is not None:
            self.pieces[at] = union = np.union1d(earlier, touched)
            self._grew[at] = len(union) > len(earlier)


def _joined(one: _Values, other: _Values) -> _Values:
    """The registers where two paths meet: what is not the same on both is not known, unless one path has no value."""
    joined = {**one, **other}
    for name in one.keys() & other.keys():
        first, second = one[name], other[name]
        if first is not second and (first is None or second is None or not np.array_equal(first, second)):
            joined[name] = None
    return joined


def _spread(addresses: Value, size: int) -> NDArray[np.int64]:
    words: NDArray[np.int64] = (addresses[:, None] + np.arange(0, size, min(size, 4))[None, :]) // 4
    return words


def _names(operand: str) -> Iterator[str]:
    """Yields the registers of an operand such as v3 or v[4:7]."""
    match = re.fullmatch(r"([vs])\[(\d+):(\d+)\]", operand)
    if match is None:
        yield operand
        return
    for number in range(int(match[2]), int(match[3]) + 1):
        yield f"{match[1]}{number}"


def _named(code: AssemblyCode, at: int) -> str:
    return f"{code.operations[at]} at line {code.lines[at]}"
