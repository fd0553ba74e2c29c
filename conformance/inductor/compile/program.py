"""The input of ``torch.compile`` and its results: plain data that passes between processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from conformance.execution.compile.compilation import Artefact
from conformance.problems import Operand
from conformance.records import Reason

#: (kernel, grid) of each launch that was observed.
Launches = tuple[tuple[str, tuple[int, ...]], ...]


class Unsupported(Exception):
    """Something cannot be done here; ``reason`` says what, and why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Decision(str, Enum):
    """A decision of Inductor's that is replaced while a program is compiled."""

    #: Each choice is timed as infinite when its product is lowered. Notes the number of choices, for each lowering.
    TIMES_ARE_INFINITE = "times are infinite"
    #: The same when the scheduler has fused what it can.
    DEFERRED_TIMES_ARE_INFINITE = "times are infinite, deferred"
    #: K is long enough to be split, and not so long that nothing else is offered.
    K_MAY_BE_SPLIT = "decomposes k"
    #: The same, and where a choice splits K only the first of these is left. Notes (lowering, name of the choice).
    K_IS_SPLIT = "decomposes k first"
    #: The exhaustive list of configs holds one.
    ONE_EXHAUSTIVE_CONFIG = "one exhaustive config"
    #: The scheduler selects, when it has fused what it can: the default of torch, which measures fusions.
    SELECTION_IS_DEFERRED = "selection deferred"
    #: The same. Notes (stage, renames, nodes) of the scheduler: the stage is "before fusion" or "after fusion", the
    #: renames are {buffer: name that its readers use since it was written in place}, the nodes are :class:`Scheduled`.
    SCHEDULE_IS_NOTED = "selection deferred, schedule noted"
    #: Choices come from the table of the option lookup_table.table. Notes the keys that are looked up in it.
    TABLE_IS_USED = "table used"
    #: A heuristic of the user's offers one config for mm.
    HEURISTIC_IS_OVERRIDDEN = "heuristic overridden"
    #: Products that descriptors would serve are offered the persistent template without them, as on AMD.
    WITHOUT_DESCRIPTORS = "persistent without descriptors"
    #: Configs past the estimate of their shared memory stay. Notes of each its template and numbers, the ``estimate``
    #: in bytes, and whether torch would have ``kept`` it.
    NOTHING_IS_PRUNED = "nothing pruned"
    #: Triton's choices are prescreened as if they were CUTLASS's, and the later one is offered, the faster it is. Notes
    #: the names of the choices that are timed in each round.
    TRITON_IS_PRESCREENED = "triton prescreened"
    #: Choices are timed while Inductor goes on, the later one is submitted, the faster it is. Notes their names.
    SELECTION_IS_PIPELINED = "selection pipelined"
    #: The scheduler selects, and is given figures of a product fused with its epilogue. Either it takes no more
    #: registers than the product alone, or it spills, or a fourth of its blocks fits. Notes the nodes of each kernel.
    FUSION_FITS = "fusion fits"
    FUSION_SPILLS = "fusion spills"
    FUSION_CROWDS = "fusion crowds"
    #: The scheduler selects, any choice of Triton's is faster than a library's, and every fusion fits. Notes whenever a
    #: buffer's layout is fixed: its name, whether it was ``flexible`` before, and its ``strides`` afterwards.
    LAYOUTS_ARE_WATCHED = "layouts watched"
    #: No size speaks against making the second operand contiguous.
    CONTIGUOUS_IS_BETTER = "contiguous wanted"


@dataclass(frozen=True)
class Scheduled:
    """One node of Inductor's scheduler. ``kind`` and ``operation`` are the class names of the node and of the operation
    in it. The others are sorted names of buffers: those that it writes, overwrites in place, and waits for."""

    kind: str
    operation: str
    writes: tuple[str, ...]
    mutates: tuple[str, ...]
    unmet: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A function to compile, and how.

    ``graph`` names a function as "package.module:function"; it is called with the tensors of ``operands`` in their
    order, and with ``arguments`` by keyword. ``settings`` are options of ``torch._inductor.config`` by their dotted
    name; one that the installed torch does not have is an error. ``marked`` are the (operand, dimension) pairs marked
    dynamic. ``carveout`` is the SM carveout that torch is asked for.

    ``templates`` and ``descriptions`` are regular expressions that must be found in a choice's name and description.
    Each lowering keeps all choices that match (``pick`` None), or only the one at ``pick`` modulo their
    number. ``calls`` are further sets of the operands, the same in number, dtype and name, that the same compiled
    function is called with after the first. ``decision`` is one of Inductor's that is replaced meanwhile.
    """

    graph: str
    operands: tuple[Operand, ...]
    arguments: tuple[tuple[str, Any], ...] = ()
    dynamic: bool | None = False
    settings: tuple[tuple[str, Any], ...] = ()
    marked: tuple[tuple[str, int], ...] = ()
    carveout: int | None = None
    templates: str | None = None
    descriptions: str | None = None
    pick: int | None = None
    calls: tuple[tuple[Operand, ...], ...] = ()
    decision: Decision | None = None


def program_of(graph: str, operands: Iterable[Operand], settings: Mapping[str, Any], **fields: Any) -> Program:
    """The program that compiles ``graph`` under ``settings``, with further ``fields``."""
    return Program(graph, tuple(operands), settings=tuple(settings.items()), **fields)


@dataclass(frozen=True)
class Choice:
    """One implementation that Inductor offers for a lowering. ``kind`` is "triton", "extern", "subgraph" or "other",
    ``layout`` the name of Inductor's class for the layout of its output."""

    name: str
    description: str
    kind: str
    layout: str = ""

    @property
    def numbers(self) -> dict[str, int]:
        """The whole numbers in the description, such as BLOCK_M and num_warps, by name."""
        return {name: int(value) for name, value in re.findall(r"\b(\w+)=(\d+)\b", self.description)}


@dataclass(frozen=True)
class Lowering:
    """The choices for one lowering, such as ``name`` "mm".

    ``offered`` are all choices, or all of one template if the program's expression names it; if it picks too, and has
    no expression for descriptions, they are not described. ``matching`` is how many of them match the program's
    expressions. Inductor selected from those ``left``: one if the program picks.
    """

    name: str
    offered: tuple[Choice, ...]
    left: tuple[Choice, ...]
    matching: int = 0


@dataclass(frozen=True)
class GeneratedKernel:
    """One Triton kernel of a generated module: its source with decorators, and what it was compiled to, or ``error``
    if it was not. ``kind`` is the heuristic that decorates it: "template", "pointwise", "reduction" and so on."""

    name: str
    kind: str
    source: str
    artefact: Artefact | None = None
    error: str = ""


@dataclass(frozen=True)
class Failure:
    """An exception of ``torch.compile``: the class names of it and of what caused it, outermost first, and its text."""

    types: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{' <- '.join(self.types)}: {self.message}"


@dataclass(frozen=True)
class Invocation:
    """One call of the generated module with the number ``module``. Each of ``inputs``, in the module's own order, is
    ("operand", its number in the program) or ("size", a whole number)."""

    module: int
    inputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Generated:
    """The results of a :class:`Program`: ``modules`` are the generated sources in the order of their generation.
    Without a device ``invocations`` says which of them each call of the program would have run. ``failure`` is what
    stopped the compilation. ``counters`` are torch's own, such as ``recompiles`` (compilations of the function after
    its first). ``notes`` are those of the replacement of the program's ``decision``."""

    modules: tuple[str, ...] = ()
    lowerings: tuple[Lowering, ...] = ()
    kernels: tuple[GeneratedKernel, ...] = ()
    invocations: tuple[Invocation, ...] = ()
    failure: Failure | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[Any, ...] = ()

    @property
    def offered(self) -> list[Choice]:
        """The choices of all lowerings."""
        return [choice for lowering in self.lowerings for choice in lowering.offered]

    @property
    def left(self) -> list[Choice]:
        """The choices of all lowerings that Inductor selected from."""
        return [choice for lowering in self.lowerings for choice in lowering.left]


def dense(
    name: str, *shape: int, dtype: str = "fp32", last: int | None = None, strides: tuple[int, ...] | None = None
) -> Operand:
    """An operand of ``shape`` without gaps between its elements, unless ``strides`` (in elements) are given.

    ``last`` is the dimension with stride 1: the last one unless given.
    """
    if strides is None:
        dimensions = [d for d in range(len(shape)) if d != last] + ([] if last is None else [last])
        by_dimension, step = [0] * len(shape), 1
        for dimension in reversed(dimensions):
            by_dimension[dimension] = step
            step *= max(shape[dimension], 1)
        strides = tuple(by_dimension)
    return Operand(name, shape, strides, dtype)
