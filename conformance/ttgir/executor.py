"""Compiled launches as an executor: what the compiler made of each kernel, its TTGIR, runs over tensors on the CPU."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.execution.compile.specialisation import bound_arguments, parameters
from conformance.kernels.launch import Launch, Programs, Ran
from conformance.records import ExecutorName
from conformance.ttgir.arithmetic import MISREAD, UnknownOperation
from conformance.ttgir.formats import Type, rounded, size_of, type_of
from conformance.ttgir.layouts import UnknownLayout, cluster_bases, layout_of
from conformance.ttgir.machine import PROGRAM, SCHEDULES, Agent, ProgramRun, Schedule
from conformance.ttgir.memory import GlobalMemory, ProgramFault
from conformance.ttgir.nan_tracing import TtgirTracing
from conformance.ttgir.regions import prepared, run_steps
from conformance.ttgir.steps import Descriptor, Names, Step
from conformance.ttgir.text import TtgirModule, parse

#: Programs of a launch up to which it is run. Each takes some milliseconds, for each fill and order.
MOST_PROGRAMS = 4096


@functools.lru_cache(maxsize=64)
def _program(text: str) -> tuple[TtgirModule, list[Step]]:
    module = parse(text)
    return module, prepared(module.function.body)


class TtgirExecutor:
    """Runs launches whose TTGIR is in ``texts``, by the name of the kernel's function, under one ``schedule``.
    ``fences``: whether a missing fence of proxies is a fault, where the target has proxies. ``memory`` makes the global
    memory of a launch from its tensors. ``places``, if given, are the only programs that run; ``most`` is the number of
    programs up to which a launch is run."""

    name = ExecutorName.INTERPRETER
    on_device = False
    device = torch.device("cpu")

    def __init__(
        self,
        texts: Mapping[str, str],
        schedule: Schedule = SCHEDULES[0],
        *,
        fences: bool = True,
        memory: Callable[[Iterable[Tensor]], GlobalMemory] = GlobalMemory,
        places: Sequence[tuple[int, int, int]] | None = None,
        most: int = MOST_PROGRAMS,
    ) -> None:
        self.texts, self.schedule, self.fences, self.memory = texts, schedule, fences, memory
        self.places, self.most = places, most
        self._tracing: TtgirTracing | None = None

    @contextlib.contextmanager
    def tracing_nan(self, operands: Mapping[str, Tensor], outputs: Sequence[str], _: object) -> Iterator[TtgirTracing]:
        """The :class:`TtgirTracing` of the launches that run meanwhile over ``operands``, the ``outputs`` included."""
        self._tracing = tracing = TtgirTracing(operands, outputs)
        try:
            with tracing.installed():
                yield tracing
        finally:
            self._tracing = None

    def run(self, launch: Launch, programs: Programs | None = None, *, observe: bool = False) -> Ran:
        """Runs ``launch`` and the steps before and after it. Raises Fault for what a correct program never does, and
        UnknownOperation for what this executor does not know."""
        for step in launch.before:
            self._run(step, None)
        ran = self._run(launch, programs)
        for step in launch.after:
            self._run(step, None)
        return ran

    def _run(self, launch: Launch, programs: Programs | None) -> Ran:
        started = time.perf_counter()
        if launch.empty:
            return Ran(self.name, launch.grid, 0, 0.0)
        grid: tuple[int, int, int] = (*launch.grid, 1, 1)[:3]  # type: ignore[assignment]
        of_first = range(grid[0]) if programs is None else [each for each in programs if isinstance(each, int)]
        places = list(itertools.product(range(grid[2]), range(grid[1]), of_first))
        for each in programs or ():
            if isinstance(each, tuple):
                x, y, z = (*each, 0, 0)[:3]
                places.append((z, y, x))
        if self.places is not None:
            places = [(z, y, x) for x, y, z in self.places]
        if len(places) > self.most:
            raise UnknownOperation(f"{len(places)} programs: more than {self.most} are not run")
        function = launch.function.fn.__name__
        if function not in self.texts:
            raise UnknownOperation(f"the function {function}, which no text has")
        prepare = _program if self._tracing is None else _program.__wrapped__  # what is traced is prepared for it
        module, steps = prepare(self.texts[function])
        if module.attributes.get("ttng.two-ctas") == "true":
            raise UnknownOperation("products of two blocks together")
        names = _bound(module, launch)
        if self._tracing is not None:
            self._tracing.launch({name: getattr(value, "base", value) for name, value in launch.arguments.items()})
        memory = self.memory(_tensors(launch.arguments))
        shares = _cluster_shares(module)
        proxies = self.fences and "hip:" not in module.attributes.get("ttg.target", "")
        with np.errstate(all="ignore"):
            for z, y, x in places:
                memory.begin_program((x, y, z))
                program = ProgramRun((x, y, z), grid, memory, self.schedule, shares=shares, proxies=proxies)
                self._one(steps, names, program)
        return Ran(self.name, tuple(launch.grid), len(places), time.perf_counter() - started)

    def _one(self, steps: list[Step], names: Names, program: ProgramRun) -> None:
        agent = Agent(program, PROGRAM, {})
        try:
            program.run(agent, run_steps(steps, agent, dict(names)))
        except MISREAD as error:  # values of a form that no table here knows
            missing = isinstance(error, KeyError) and str(error.args[0]).startswith("%")
            text = f"the operation that makes {error.args[0]}" if missing else f"values that do not fit: {error}"
            raise UnknownOperation(text) from error
        except ProgramFault as fault:
            raise type(fault)(f"program {program.place}, order '{self.schedule.name}': {fault}") from None


def _cluster_shares(module: TtgirModule) -> dict[str, int]:
    """For each layout by its name, into how many parts the blocks of a cluster divide a tile; none without clusters.
    Its blocks have barriers and parts of tiles of their own, and do the same, so a program is run as one block."""
    if module.attributes.get("ttg.num-ctas", "1").split(" ")[0] == "1":
        return {}
    try:
        layouts = {name: layout_of(text, module.layouts) for name, text in module.layouts.items()}
        return {name: 2 ** sum(map(any, cluster_bases(layout))) for name, layout in layouts.items()}
    except (UnknownLayout, *MISREAD) as error:
        raise UnknownOperation(f"a cluster with the layout {error}") from None


def _tensors(arguments: Mapping[str, Any]) -> Iterator[Tensor]:
    for value in arguments.values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(getattr(value, "base", None), Tensor):
            yield value.base


def _arguments_of(module: TtgirModule, launch: Launch) -> list[str]:
    """For each parameter of the compiled function the argument of ``launch`` that it is; "" for the further parameters
    of a descriptor. Triton up to 3.4 names none: they stand in the order of the kernel's, without what is a constant.
    Raises UnknownOperation if their numbers do not fit."""
    names = [name.removeprefix("%") for name, _ in module.function.parameters]
    if not all(re.fullmatch(r"arg\d+", name) for name in names) or set(names) & set(launch.arguments):
        return [name if name in launch.arguments else "" for name in names]
    given = bound_arguments(launch.function, launch.arguments)
    kept: list[tuple[str, int]] = []
    for parameter in parameters(launch.function):
        value = given[parameter.name]
        one = type(value) is int and value == 1 and not parameter.do_not_specialize
        if not (parameter.is_constexpr or value is None or one or hasattr(value, "value")):
            kept.append((parameter.name, len(value.shape) if hasattr(value, "block_shape") else 0))
    # of each dimension of a descriptor its size and pitch, and both again where a pointer stands for the descriptor
    for sizes in (2, 4):
        in_order = [each for name, rank in kept for each in (name, *[""] * (sizes * rank))]
        if len(in_order) == len(names):
            return in_order
    raise UnknownOperation(f"{len(names)} parameters without names, for {len(kept)} arguments")


def _bound(module: TtgirModule, launch: Launch) -> Names:
    """The values of the function's parameters by their names. A descriptor has several: itself, or the pointer that
    stands for it on a target without TMA. Values that are no arguments of the launch come after it. Raises
    UnknownOperation for an argument that is none of the kinds below."""
    arguments = bound_arguments(launch.function, launch.arguments)
    descriptor: Any = None
    more: Iterator[Any] = iter(())
    bound: Names = {}
    for (name, spelled), argument in zip(module.function.parameters, _arguments_of(module, launch), strict=True):
        value = arguments.get(argument)
        value = getattr(value, "value", value)
        try:
            kind = type_of(spelled)
            if not argument:
                if descriptor is None:
                    raise UnknownOperation(f"a parameter {name}, which is no argument of the launch")
                flag = kind.element == "i1"
                bound[name] = _flag(descriptor, name) if flag else rounded(np.asarray(next(more)), kind.element)[()]
                continue
            descriptor = value if hasattr(value, "block_shape") else None
            if descriptor is not None:
                sizes = [*map(int, descriptor.shape), *map(int, descriptor.strides)]
                more = itertools.chain(sizes, sizes)
            bound[name] = _argument(value, kind)
        except (*MISREAD, StopIteration) as error:
            what = f"the argument {name} of type {spelled}" if argument else f"the parameter {name} of type {spelled}"
            raise UnknownOperation(f"{what} from a value of type {type(value).__name__}") from error
    return bound


def _argument(value: Any, kind: Type) -> Any:
    """``value``, an argument of a launch, as a parameter of type ``kind``."""
    if hasattr(value, "block_shape"):
        return _descriptor(value, kind.element) if kind.kind == "tensordesc" else value.base.data_ptr()
    if isinstance(value, Tensor):
        return np.int64(value.data_ptr())
    if kind.pointee is not None:
        return np.int64(0 if value is None else int(value))
    return rounded(np.asarray(value), kind.element)[()]


def _flag(descriptor: Any, name: str) -> bool:
    """Returns a flag of a descriptor: whether it pads with NaN, or rounds to tf32."""
    if getattr(descriptor, "padding", "zero") != "zero" or getattr(descriptor, "round_f32_to_tf32", False):
        raise UnknownOperation(f"a descriptor {name} that does not pad with zeros, or rounds")
    return False


def _descriptor(value: Any, element: str) -> Descriptor:
    size = size_of(element)
    pitches = tuple(int(stride) * size for stride in value.strides)
    return Descriptor(value.base.data_ptr(), tuple(map(int, value.shape)), pitches, element, tuple(value.block_shape))
