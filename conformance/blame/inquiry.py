"""Two stacks and one case: its kernel is compiled by both compilers in turn, which change over at every place.

Two directions are tried at each boundary between stages. In the first the bad compiler goes on from the good one's
text; in the second the good compiler goes on from the bad one's. Inside the guilty stage the same is done between its
passes, as far as both compilers have them in common.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance.blame.attribution import Blame, blamed, turn
from conformance.blame.symptoms import (
    COMPILES,
    ORDERS,
    Shown,
    alike,
    chosen,
    differing,
    failure,
    gravity,
    shown,
    unknown,
)
from conformance.gate.stacks.environments import Environment

#: The stages of a target's compiler, the front end first, by the name of its assembly.
STAGES = {
    "ptx": ("source", "ttir", "ttgir", "llir", "ptx", "cubin"),
    "amdgcn": ("source", "ttir", "ttgir", "llir", "amdgcn", "hsaco"),
}
#: Stages that run passes on MLIR.
WITH_PASSES = ("ttir", "ttgir", "llir")
#: Seconds after which no further place between passes is tried: a large unrolled kernel compiles for half a minute.
SEARCH_SECONDS = 60.0
#: Seconds of compiling from which on not every swap of stages is tried, but those that bisect the first difference.
SLOW = 12.0
#: Seconds from the beginning after which nothing between passes is tried any more: an answer should take two minutes.
LATEST_SEARCH = 100.0
#: What the exception is called that says that a text cannot be taken.
_CANNOT_ENTER = "CannotEnter: "
#: What a process of a stack runs.
_MODULE = "conformance.blame.stack_process"


class BlameError(Exception):
    """The question cannot be answered; the message says why."""


class StackProcess:
    """The process of one stack (see :mod:`~conformance.blame.stack_process`). A request takes ``deadline`` seconds at
    most. Files of requests lie below ``folder``."""

    def __init__(self, environment: Environment, folder: Path, deadline: float) -> None:
        self.name, self._folder = environment.stack.name, folder
        self._numbers = itertools.count(1)
        folder.mkdir()
        self._log = (folder / "log.txt").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {_MODULE} import main; main()", str(deadline)],
            env=environment.environ(),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Returns the answer to one request. Raises :class:`BlameError` if the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            if do == "compile":
                request["folder"] = str(self._folder / str(next(self._numbers)))
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
                self._process.stdin.flush()
            began = time.monotonic()
            line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise BlameError(f"the process of stack {self.name!r} ended: {self._log.read()[-1500:].strip()}")
        answer: dict[str, Any] = json.loads(line)
        return answer | {"folder": request.get("folder"), "seconds": time.monotonic() - began}

    def close(self) -> None:
        """Ends the process and what it has started."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()
        self._log.close()


@dataclass(frozen=True)
class PassBlame:
    """The passes of a stage behind which the symptom changes sides, in one direction: those of the bad compiler and
    those of the good one. Empty, with the reason in ``why_not``, if they cannot be named."""

    bad: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class Attribution:
    """The result for one ``symptom``: its values with both stacks, after each stage in both directions, and the guilty
    stages. ``passes`` are those of the guilty stage, by direction, if they were looked for."""

    symptom: str
    good: float | None
    bad: float | None
    into_bad: tuple[float | None, ...]
    into_good: tuple[float | None, ...]
    blame: Blame
    text: str = ""
    passes: tuple[PassBlame, ...] = ()


@dataclass(frozen=True)
class LaunchAnswer:
    """The answer for the launch of one ``function``. ``not_swapped`` are sentences about what could not be tried or
    was tried in another way."""

    function: str
    stages: tuple[str, ...]
    attributions: tuple[Attribution, ...]
    not_swapped: tuple[str, ...]


@dataclass(frozen=True)
class OtherLaunch:
    """A launch of ``function`` that differs in less than another launch of the case, so that no stage is looked for.
    ``changes`` are its differences: each with its values with the good stack and with the bad one."""

    function: str
    changes: tuple[tuple[str, float | None, float | None], ...]


@dataclass(frozen=True)
class CaseAnswer:
    """The answer for a case: one for each launch that speaks against the bad stack, and the ``others`` that differ.
    ``together`` is what is wrong only if all launches are those of the bad stack, "" if nothing is."""

    case: str
    target: str
    names: tuple[str, str]
    launches: tuple[LaunchAnswer, ...]
    seconds: float
    others: tuple[OtherLaunch, ...] = ()
    together: str = ""
    #: Why the executor says nothing about the order of asynchronous operations; "" if it does.
    orders_why_not: str = ""

    @property
    def named(self) -> bool:
        """True if there is a difference and each launch with an answer has guilty stages for its first one."""
        return bool(self.launches) and all(one.attributions[0].blame.span is not None for one in self.launches)


@dataclass
class _TriedStack:
    process: StackProcess
    functions: list[str]
    ptxas: str | None
    #: The answers for each launch, compiled by this stack alone.
    own: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _LaunchDifference:
    """The differences of one launch: ``names``, the worst first."""

    number: int
    names: tuple[str, ...]
    good: Shown
    bad: Shown

    @property
    def gravity(self) -> tuple[bool, int]:
        return gravity(self.names[0], self.good, self.bad)


def ask_case(
    case: str,
    good: Environment,
    bad: Environment,
    folder: Path,
    *,
    symptoms: Sequence[str] = (),
    deadline: float = 100.0,
    say: Callable[[str], None] = lambda text: None,
) -> CaseAnswer:
    """Names the stages that are guilty of what ``case`` shows with the stack ``bad`` and not with ``good``.
    ``symptoms`` are those to look at; all if it is empty. ``folder`` gets what was compiled. Raises
    :class:`BlameError`."""
    began = time.monotonic()
    with ExitStack() as ends:
        processes = []
        for name, environment in (("good", good), ("bad", bad)):
            processes.append(StackProcess(environment, folder / name, deadline))
            ends.callback(processes[-1].close)
        say("the case is planned and compiled with both stacks")
        inquiry = Inquiry(case, processes[0], processes[1], symptoms, say)
        return replace(inquiry.answer(), seconds=round(time.monotonic() - began, 1))


class Inquiry:
    """One case and the processes of two stacks. ``say`` is told what begins."""

    def __init__(
        self, case: str, good: StackProcess, bad: StackProcess, symptoms: Sequence[str], say: Callable[[str], None]
    ) -> None:
        self._case, self._symptoms, self._say, self._began = case, symptoms, say, time.monotonic()
        plans = _both(lambda process: process.ask("plan", case=case), (good, bad))
        for process, plan in zip((good, bad), plans, strict=True):
            if plan["status"] != "pass":
                raise BlameError(f"stack {process.name!r} cannot plan {case}: {_last_line(plan)}")
        if plans[0]["functions"] != plans[1]["functions"]:
            launched = " and ".join(", ".join(plan["functions"]) or "nothing" for plan in plans)
            raise BlameError(f"{case} launches {launched}: stages are compared for the same functions in both stacks")
        if plans[0]["plans"] != plans[1]["plans"]:
            raise BlameError(f"{case} launches its functions in other plans with one stack than with the other")
        if not plans[0]["functions"]:
            raise BlameError(f"{case} compiles no kernel of the catalogue: its stages cannot be compared")
        self._target: str = plans[0]["target"]
        self._plans: list[int] = plans[0]["plans"]
        self._stages = STAGES["amdgcn" if self._target.startswith("gfx") else "ptx"]
        self._good, self._bad = (
            _TriedStack(process, plan["functions"], plan["ptxas"])
            for process, plan in zip((good, bad), plans, strict=True)
        )
        self._why_no_order = ""
        self._not_swapped: list[str] = []
        self._ran: dict[tuple[int, tuple[str, ...]], Mapping[str, Any]] = {}

    def answer(self) -> CaseAnswer:
        self._good.own, self._bad.own = _both(
            lambda side: [side.process.ask("compile", launch=number) for number in range(len(side.functions))],
            (self._good, self._bad),
        )
        for name, own in ((side.process.name, own) for side in (self._good, self._bad) for own in side.own):
            if own["status"] == "pass" and not own["stages"].keys() >= set(self._stages):
                stages = ", ".join(own["stages"])
                raise BlameError(f"{name} compiles for {self._target} in stages that are not known: {stages}")
        differences = list(filter(None, (self._difference(number) for number in range(len(self._good.functions)))))
        gravest = min((one.gravity for one in differences), default=None)
        launches: dict[str, LaunchAnswer] = {}
        others: dict[str, OtherLaunch] = {}
        for one in sorted(differences, key=lambda one: one.gravity):
            function = self._good.functions[one.number]
            if function in launches or function in others:
                continue  # a case may launch a function for several problems: the gravest difference is enough
            if one.gravity == gravest or (self._symptoms and not one.gravity[0]):
                self._not_swapped = []
                attributions = self._attributions(one)
                launches[function] = LaunchAnswer(function, self._stages, attributions, tuple(self._not_swapped))
            else:
                changes = tuple((name, one.good.value(name), one.bad.value(name)) for name in one.names)
                others[function] = OtherLaunch(function, changes)
        return CaseAnswer(
            self._case,
            self._target,
            (self._good.process.name, self._bad.process.name),
            tuple(launches.values()),
            0.0,
            tuple(others.values()),
            "" if any(one.names[0] == ORDERS for one in differences) else self._wrong_together(),
            self._why_no_order,
        )

    def _difference(self, number: int) -> _LaunchDifference | None:
        """Returns the differences of launch ``number`` between the two stacks; None if it has none."""
        good, bad = _both(lambda side: self._shown(side, side.own[number], number, True), (self._good, self._bad))
        names = chosen(differing(good, bad), self._symptoms)
        return _LaunchDifference(number, tuple(names), good, bad) if names else None

    def _attributions(self, difference: _LaunchDifference) -> tuple[Attribution, ...]:
        number, names, good, bad = difference.number, difference.names, difference.good, difference.bad
        self._say(f"{self._good.functions[number]}: {', '.join(names)}; the stages are swapped")
        directions = ((self._good, self._bad, bad, good), (self._bad, self._good, good, bad))
        into_bad, into_good = _both(lambda each: self._row(number, names, *each), directions)
        attributions = []
        for place, name in enumerate(names):
            values, back = (tuple(one.value(name) for one in shows) for shows in (into_bad, into_good))
            text = bad.texts.get(name) or good.texts.get(name, "")
            one = Attribution(name, good.value(name), bad.value(name), values, back, blamed(values, back), text)
            if place == 0 or self._symptoms:
                one = self._with_passes(number, one)
            attributions.append(one)
        return tuple(attributions)

    def _row(
        self, number: int, names: Sequence[str], maker: _TriedStack, rest: _TriedStack, first: Shown, last: Shown
    ) -> list[Shown]:
        """Returns the symptoms of a launch for each stage of ``maker`` after which ``rest`` goes on: ``first`` for
        none, ``last`` for all."""
        shows = {0: first, len(self._stages): last}
        slow = max(side.own[number]["seconds"] for side in (maker, rest)) > SLOW

        def measured(at: int) -> float | None:
            shows[at + 1] = self._boundary(number, maker, rest, at + 1, names)
            return shows[at + 1].value(names[0])

        ends = first.value(names[0]), last.value(names[0])
        if slow and None not in ends:
            turn(measured, len(self._stages) - 1, *ends)  # type: ignore[arg-type]
            self._say_once(f"swaps that tell nothing of {names[0]}: not tried, for one takes more than {SLOW:g} s")
        else:
            for at in range(len(self._stages) - 1):
                measured(at)
        untried = unknown("not tried")
        return [shows.get(place, untried) for place in range(len(self._stages) + 1)]

    def _shown(self, side: _TriedStack, answer: Mapping[str, Any], number: int, orders: bool) -> Shown:
        """Returns the symptoms of a compilation by ``side``, and those of running its TTGIR if ``orders``."""
        one = shown(answer, self._target)
        if not orders or "ttgir" not in answer["stages"]:
            return one
        # the other launches are the good stack's: what is wrong in them would be laid at this one's door
        files = self._ttgir(self._good, number) | {side.functions[number]: answer["stages"]["ttgir"]}
        fault = self._order_fault(side, number, files)
        if fault is None:
            return one
        wrong = {ORDERS: fault} if fault else {}
        return Shown({**one.figures, ORDERS: len(wrong)}, {**one.texts, **wrong})

    def _ttgir(self, side: _TriedStack, number: int) -> dict[str, str | None]:
        """The TTGIR of each function that is launched in the plan of launch ``number``, as ``side`` alone makes it."""
        plan = [other for other, plan in enumerate(self._plans) if plan == self._plans[number]]
        return {side.functions[other]: side.own[other]["stages"].get("ttgir") for other in plan}

    def _order_fault(self, side: _TriedStack, number: int, files: Mapping[str, str | None]) -> str | None:
        """Runs a plan whose functions have the TTGIR in ``files`` in every order, and returns the first fault; "" if
        there is none, None if it cannot be run."""
        if None in files.values():
            self._why_no_order = "TTGIR was not run: a launch of the case does not compile to it"
            return None
        texts = tuple(Path(str(file)).read_text(encoding="utf-8") for file in files.values())
        key = (self._plans[number], texts)
        if key not in self._ran:
            self._ran[key] = side.process.ask("orders", launch=number, files=files)
        ran = self._ran[key]
        if ran["status"] != "pass":
            self._why_no_order = f"TTGIR of {side.process.name} was not run: {_last_line(ran)}"
            return None
        return str(ran["said"] or "")

    def _wrong_together(self) -> str:
        """Returns the fault in an order that appears only if every launch of a plan is the bad stack's."""
        for number in {plan: number for number, plan in enumerate(self._plans)}.values():
            good, bad = (self._ttgir(side, number) for side in (self._good, self._bad))
            if len(bad) < 2 or None in (*good.values(), *bad.values()):
                continue
            fault = self._order_fault(self._bad, number, bad)
            if fault and not self._order_fault(self._good, number, good):
                return fault
        return ""

    def _boundary(self, number: int, maker: _TriedStack, rest: _TriedStack, place: int, names: Sequence[str]) -> Shown:
        """Returns the symptoms of the launch if ``rest`` goes on from the text that ``maker`` made in its first
        ``place`` stages."""
        stage = self._stages[place - 1]
        entry = self._entry(maker, number, place)
        if entry is None:
            return unknown(f"{maker.process.name} makes no {stage}")
        answer = rest.process.ask("compile", launch=number, entry=entry)
        what = f"{stage} of {maker.process.name} in {rest.process.name}"
        if answer["status"] != "pass" and stage == "ptx" and rest.ptxas and maker.ptxas:
            # an older assembler refuses newer text; a compiler that is told of it writes text for it
            refused, answer = answer, maker.process.ask("compile", launch=number, ptxas=rest.ptxas)
            done = f"; {maker.process.name} was asked to write for that ptxas" if answer["status"] == "pass" else ""
            self._say_once(f"{what}: {failure(refused)}{done}")
            rest = maker
        return self._judged(number, rest, answer, what, names)

    def _judged(
        self, number: int, side: _TriedStack, answer: Mapping[str, Any], what: str, names: Iterable[str]
    ) -> Shown:
        """Returns the symptoms in ``answer``. A compiler error that is no symptom leaves the symptoms unknown."""
        one = self._shown(side, answer, number, ORDERS in names)
        if answer.get("respelled") and answer["status"] == "pass":
            swap = re.sub(r"^\w+ (of .*?)( after \w+)? in ", r"texts \1 in ", what)
            self._say_once(f"{swap}: the types of tensor descriptors are spelled in its way")
        if COMPILES not in one.figures:
            return one
        failed = [own[number] for own in (self._good.own, self._bad.own) if own[number]["status"] != "pass"]
        why = one.texts[COMPILES]
        if (
            COMPILES in names
            and any(alike(why, failure(own)) for own in failed)
            and _CANNOT_ENTER not in answer["error"]
        ):
            return one
        self._say_once(f"{what}: {why}")
        return unknown(why)

    def _say_once(self, sentence: str) -> None:
        """Adds what will be said of a swap, if nothing is said of it yet. All places between the passes of a stage are
        one swap."""
        swaps = [re.sub(r" after \w+ in ", " after passes in ", each.partition(": ")[0]) for each in self._not_swapped]
        if re.sub(r" after \w+ in ", " after passes in ", sentence.partition(": ")[0]) not in swaps:
            self._not_swapped.append(sentence)

    def _entry(self, maker: _TriedStack, number: int, place: int) -> dict[str, Any] | None:
        own, stages = maker.own[number], self._stages[:place]
        if not all(stage in own["stages"] for stage in stages):
            return None
        metadata: dict[str, Any] = {}
        for stage in stages:
            metadata |= own["metadata"].get(stage, {})
        files = {stage: own["stages"][stage] for stage in stages}
        return {"stage": stages[-1], "files": files, "metadata": metadata, "module": None, "passes": 0}

    def _with_passes(self, number: int, one: Attribution) -> Attribution:
        """``one`` with the guilty passes, if the guilty stage runs passes. Of several stages that could not be told
        apart the first is looked into: between its passes there may be texts that both compilers take."""
        span = one.blame.span
        if span is None or self._stages[span.first - 1] not in WITH_PASSES:
            return one
        stage, place = self._stages[span.first - 1], span.first
        if time.monotonic() - self._began > LATEST_SEARCH:
            why = f"its passes were not looked at, {LATEST_SEARCH:g} s were over"
            return replace(one, passes=(PassBlame(why_not=why), PassBlame(why_not=why)))
        self._say(f"{one.symptom}: the passes of {stage} are swapped")
        traces = _both(lambda side: side.process.ask("compile", launch=number, trace=stage), (self._good, self._bad))
        for side, trace in zip((self._good, self._bad), traces, strict=True):
            if _text(side.own[number], stage) != _text(trace, stage):
                why = f"the passes of {side.process.name} give another {stage} if they run one by one"
                return replace(one, passes=(PassBlame(why_not=why), PassBlame(why_not=why)))
        good, bad = traces
        directions = (
            (self._good, self._bad, good, bad, one.into_bad),
            (self._bad, self._good, bad, good, one.into_good),
        )
        passes = _both(
            lambda each: self._passes(number, place, one.symptom, *each),
            directions,
        )
        turned = PassBlame(passes[1].good, passes[1].bad, passes[1].why_not)  # there the maker is the bad one
        return replace(one, passes=(passes[0], turned))

    def _passes(
        self,
        number: int,
        place: int,
        symptom: str,
        maker: _TriedStack,
        rest: _TriedStack,
        trace: Mapping[str, Any],
        other: Mapping[str, Any],
        values: Sequence[float | None],
    ) -> PassBlame:
        """Returns the passes of stage number ``place`` between which the symptom changes sides. ``good`` are those of
        the ``maker``, with the trace ``trace``, ``bad`` those of ``rest``."""
        first = next(value for value in reversed(values[:place]) if value is not None)
        last = next(value for value in values[place:] if value is not None)
        if first == last:
            return PassBlame(why_not="in this direction the symptom does not turn in this stage")
        mine, theirs, folder = trace["passes"], other["passes"], Path(trace["folder"])
        blocks = difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
        common = [(block.a + at, block.b + at) for block in blocks for at in range(1, block.size + 1)]
        cuts = [(own, others) for own, others in common if (folder / f"{own}.mlir").exists()]
        entry = self._entry(maker, number, place - 1)
        if entry is None:
            return PassBlame(why_not="the front end has no passes")

        end = min(time.monotonic() + SEARCH_SECONDS, self._began + LATEST_SEARCH)

        def measured(at: int) -> float | None:
            if time.monotonic() > end:
                self._say_once("not every place between passes was tried: that would have taken too long")
                return None
            own, others = cuts[at]
            inner = {**entry, "module": str(folder / f"{own}.mlir"), "passes": others}
            answer = rest.process.ask("compile", launch=number, entry=inner)
            what = f"{self._stages[place - 1]} of {maker.process.name} after {mine[own - 1]} in {rest.process.name}"
            return self._judged(number, rest, answer, what, [symptom]).value(symptom)

        low, high = turn(measured, len(cuts), first, last)
        from_own, from_other = cuts[low] if low >= 0 else (0, 0)
        to_own, to_other = cuts[high] if high < len(cuts) else (len(mine), len(theirs))
        died = trace["status"] != "pass" and self._stages[place - 1] not in trace["stages"]
        if high == len(cuts) and died:  # in its last pass
            to_other = next((others for own, others in common if own == len(mine)), from_other)
        behind: tuple[str, ...] = ()
        if high == len(cuts) and not died and values[place] is None:
            behind = ("what follows its passes, later stages too",)
        elif high == len(cuts) and not died and self._stages[place - 1] == "llir":
            behind = ("LLVM after its passes",)
        return PassBlame((*theirs[from_other:to_other], *behind), (*mine[from_own:to_own], *behind))


def _both(function: Callable[[Any], Any], pair: Sequence[Any]) -> list[Any]:
    """Returns the results of ``function`` for both of ``pair``, worked out at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(function, pair))


def _text(answer: Mapping[str, Any], stage: str) -> str | None:
    file = answer["stages"].get(stage)
    return Path(file).read_text(encoding="utf-8") if file else None


def _last_line(answer: Mapping[str, Any]) -> str:
    lines = [line.strip() for line in answer["error"].splitlines() if line.strip()]
    return f"{answer['status']}: {lines[0] if lines else 'no message'}"
