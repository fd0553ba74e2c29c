"""Runs the TTGIR of one launch over the memory that it was given, and says what was wrong.

The whole launch runs once, with operations that end at once. Its results are what the test sees. Some of its programs
then run on copies of the memory, in the other legal orders. Those that load lanes without a value run with ones in all
bits of these. A result that changes with either is wrong.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from conformance.execution.compile.masked_loads import NOT_SHOWN, ZERO, masked_values
from conformance.kernels.launch import Launch
from conformance.records import Check, CheckKind, Verdict
from conformance.ttgir.executor import TtgirExecutor
from conformance.ttgir.machine import SCHEDULES, Schedule, orders_of
from conformance.ttgir.memory import ProgramFault
from conformance.ttgir.text import parse
from conformance.watching.launch_memory import Observations, WatchedMemory

#: Bytes of all tensors of a launch up to which they are copied.
COPY_LIMIT = 1 << 28
#: Programs that run on copies.
SAMPLE = 3

_MEMORY = str(Check(CheckKind.MEMORY, "bounds"))
_RACES = str(Check(CheckKind.RACES))
_EXECUTED = str(Check(CheckKind.EXECUTED, "ttgir"))
_LANES = str(Check(CheckKind.UNDEFINED_LANES))


@dataclass(frozen=True)
class LaunchRun:
    """Holds what a launch showed. ``outputs`` are digests of the bits of tensors that it changed, by parameter;
    ``integers`` are those of integers alone. ``notes`` say what was not looked at. ``lost``: the device is in an
    error."""

    verdicts: tuple[Verdict, ...]
    programs: int | None
    outputs: Mapping[str, str] = field(default_factory=dict)
    integers: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    lost: bool = False


class LaunchRunner:
    """Runs ``launch``, whose TTGIR is ``ttgir`` and whose LLVM IR is ``llir``, of at most ``programs`` programs, within
    ``seconds``. ``elsewhere`` gives the bytes of the device's memory by an address."""

    def __init__(
        self,
        launch: Launch,
        ttgir: str,
        llir: str,
        *,
        elsewhere: Callable[[int], tuple[int, int] | None],
        programs: int,
        seconds: float,
    ) -> None:
        self._launch, self._ttgir, self._llir = launch, ttgir, llir
        self._elsewhere = elsewhere if "tt.int_to_ptr" in ttgir else lambda address: None
        self._most, self._deadline = programs, time.monotonic() + seconds
        self._tensors = {
            name: tensor
            for name, value in launch.arguments.items()
            if isinstance(tensor := getattr(value, "base", value) if not isinstance(value, Tensor) else value, Tensor)
        }
        self._names: dict[int, tuple[str, int]] = {}
        for name, tensor in self._tensors.items():
            self._names.setdefault(tensor.untyped_storage().data_ptr(), (name, tensor.element_size()))
        self._before = self._copies()

    def run(self) -> LaunchRun:
        """Returns what the launch showed. Its tensors hold the results. Raises UnknownOperation for what the executor
        does not know, or cannot run in time; the tensors may have changed then."""
        seen = Observations()
        started = time.monotonic()
        faults: list[Verdict] = []
        programs = 0
        try:
            programs = self._execute(SCHEDULES[0], seen, None).programs or 0
        except ProgramFault as fault:
            faults.append(Verdict(_EXECUTED, False, str(fault)))
        seconds = time.monotonic() - started
        verdicts = [
            *_of(seen.strays, _MEMORY, "every access lies in a tensor of the launch"),
            *([] if seen.unraced and not seen.races else _of(seen.races, _RACES, "no two programs race")),
        ]
        notes: dict[str, Any] = {"seconds": round(seconds, 3), "programs": programs}
        if seen.unraced:
            notes["races"] = f"not looked for: {seen.unraced}"
        if self._before is None:
            notes["one order"] = f"the tensors have more than {COPY_LIMIT} bytes"
        elif not faults:
            orders, of_orders = self._in_other_orders()
            faults += of_orders
            notes["orders"] = orders
            verdicts += self._lanes(seen)
        text = f"right in {notes.get('orders', 1)} orders; {programs} programs"
        verdicts += faults or [Verdict(_EXECUTED, True, text)]
        outputs, integers = self._digests()
        return LaunchRun(tuple(verdicts), programs, outputs, integers, notes)

    # --- runs

    def _execute(
        self,
        schedule: Schedule,
        seen: Observations,
        copied: dict[int, Any] | None,
        places: list[tuple[int, int, int]] | None = None,
        *,
        poison: bool = False,
    ) -> Any:
        def memory(tensors: Any) -> WatchedMemory:
            return WatchedMemory(
                tensors,
                self._names,
                seen,
                elsewhere=self._elsewhere,
                poison=poison,
                races=copied is None,
                copied=copied,
                deadline=self._deadline,
            )

        texts = {self._launch.function.fn.__name__: self._ttgir}
        executor = TtgirExecutor(texts, schedule, memory=memory, places=places, most=self._most)
        return executor.run(self._launch)

    def _in_other_orders(self) -> tuple[int, list[Verdict]]:
        """Runs some programs in each legal order. Returns the number of orders, and what failed."""
        orders = orders_of(parse(self._ttgir))
        places = self._sample()
        right = self._on_copies(orders[0], places) if len(orders) > 1 else {}
        for order in orders[1:]:
            try:
                results = self._on_copies(order, places)
            except ProgramFault as fault:
                return len(orders), [Verdict(_EXECUTED, False, str(fault))]
            if changed := self._first_difference(right, results):
                text = f"order '{order.name}': {changed} has other bits than where each operation ends at once"
                return len(orders), [Verdict(_EXECUTED, False, text)]
        return len(orders), []

    def _lanes(self, seen: Observations) -> list[Verdict]:
        """Returns the verdict about lanes that a mask leaves without a value, if any were loaded."""
        if not seen.lanes:
            return []
        places = list(seen.places)
        places = sorted({*places[:SAMPLE], *places[-SAMPLE:]})
        zero = self._on_copies(SCHEDULES[0], places)
        ones = self._on_copies(SCHEDULES[0], places, poison=True)
        lines = sorted({what.rpartition("(")[2].rstrip(")") for what in seen.lanes})
        changed = self._first_difference(zero, ones)
        if not changed:
            return [Verdict(_LANES, True, f"lanes without a value ({', '.join(lines)}) reach no result")]
        shown = masked_values([self._llir])
        others = [line for line in lines if shown.get(line, NOT_SHOWN) != ZERO]
        text = f"lanes that the mask leaves without a value ({', '.join(lines)}) reach {changed}: the code "
        text += f"gives {'no known value' if others else '0'} to {', '.join(others or lines)}"
        return [Verdict(_LANES, not others, text, {"severity": "error" if others else "warn"})]

    def _on_copies(
        self, schedule: Schedule, places: list[tuple[int, int, int]], *, poison: bool = False
    ) -> dict[int, Any]:
        """Returns the bytes of the tensors after ``places`` have run on copies of what was there before the launch."""
        copies = {start: data.copy() for start, data in (self._before or {}).items()}
        self._execute(schedule, Observations(), copies, places, poison=poison)
        return copies

    def _sample(self) -> list[tuple[int, int, int]]:
        x, y, z = (*self._launch.grid, 1, 1)[:3]
        return sorted({(0, 0, 0), (x // 2, y // 2, z // 2), (x - 1, y - 1, z - 1)})[:SAMPLE]

    def _first_difference(self, first: Mapping[int, Any], second: Mapping[int, Any]) -> str:
        """Returns the name of a tensor whose bytes differ, and an element; "" if there is none."""
        for start, data in first.items():
            if (different := data != second[start]).any():
                name, size = self._names.get(start, ("memory", 1))
                return f"element {int(np.argmax(different)) // size} of {name!r}"
        return ""

    # --- memory

    def _storages(self) -> dict[int, Any]:
        storages: dict[int, Any] = {}
        for tensor in self._tensors.values():
            storage = tensor.untyped_storage()
            if storage.nbytes():
                start = storage.data_ptr()
                storages[start] = np.ctypeslib.as_array((ctypes.c_uint8 * storage.nbytes()).from_address(start))
        return storages

    def _copies(self) -> dict[int, Any] | None:
        """Returns copies of the bytes of all tensors; None if there are too many."""
        storages = self._storages()
        if sum(map(len, storages.values())) > COPY_LIMIT:
            return None
        return {start: data.copy() for start, data in storages.items()}

    def _digests(self) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the digests of tensors that the launch changed, and those of integers among them."""
        outputs: dict[str, str] = {}
        integers: dict[str, str] = {}
        storages = self._storages()
        for name, tensor in self._tensors.items():
            start = tensor.untyped_storage().data_ptr()
            if self._before is None or start not in storages:
                continue
            if self._names[start][0] == name and (storages[start] != self._before[start]).any():
                digest = hashlib.sha256(storages[start].tobytes()).hexdigest()[:16]
                outputs[name] = digest
                if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
                    integers[name] = digest
        return outputs, integers


def _of(notes: Mapping[str, str], check: str, right: str) -> list[Verdict]:
    """Returns a failing verdict for each of the first ``notes``; one that passes if there is none."""
    failed = [Verdict(check, False, text) for text in list(notes.values())[:4]]
    return failed or [Verdict(check, True, right)]
