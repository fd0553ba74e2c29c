"""A kernel of the catalogue that launches what a file's wrapper was seen to launch."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from conformance.families.attention.problem import Attention, Mask, Score
from conformance.families.examples import EVEN, WHOLE_TILES
from conformance.families.gemm.problem import OPERATIONS, Bias, Fusion
from conformance.heuristics.configs import Config, FlexConfig
from conformance.kernels.families.attention import AttentionFamily
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Features, Kernel, Plan, Variant, check_tensors
from conformance.kernels.launch import Launch, workspace
from conformance.numerics.contract import FMA, FMA64, INT32, Accumulator, Contract
from conformance.plain_files.description import Described, DescriptionError
from conformance.plain_files.device_functions import Taken, device_functions
from conformance.plain_files.replayable import first_launch
from conformance.plain_files.tape import (
    Callee,
    Constant,
    Copied,
    Descriptor,
    Dtype,
    Filled,
    Items,
    Launched,
    Step,
    Tape,
    View,
)
from conformance.problems import DTYPES, Layout, Operand
from conformance.records import ExecutorName, Reason, ReasonCode
from conformance.targets import Target

#: The variable with the folder in which the kernels of this process, and of its children, are described.
VARIABLE = "CONFORMANCE_JUDGED_FILE"
#: The file in that folder.
KERNELS = "kernels.json"

_TORCH = {str(dtype): dtype for dtype in DTYPES.values()}


class Recorded(msgspec.Struct, frozen=True):
    """One operation of a file: a tape for each plan by :func:`key`, with the number of its device functions among
    ``functions``. ``tiles`` has the constants of each config of the file's tuner;
    of a file without a tuner, one entry."""

    described: Described
    name: str
    tiles: tuple[dict[str, int], ...] = ({},)
    tapes: dict[str, tuple[Tape, int]] = {}
    functions: tuple[tuple[Taken, ...], ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the fields of every problem, as the classes of the family have them."""
        given = dict(self.described.fields)
        for name, kind in _FIELDS.items():
            if isinstance(given.get(name), dict):
                given[name] = msgspec.convert(given[name], kind)
        return given


#: The classes of fields that are tables.
_FIELDS: dict[str, Any] = {"mask": Mask, "score": Score, "bias": Bias, "fusion": Fusion}
_FIELDS |= dict.fromkeys(("layout_a", "layout_b", "layout_out"), Layout)


def key(problem: Any, config: Any, target: Target) -> str:
    """Returns the text by which the tape of a plan is found."""
    return f"{target.id} {config.number} {problem.id}"


@dataclass(frozen=True)
class FileConfig(Config):
    """The config of this ``number`` of those among which the file's tuner chooses; 0 if it has none."""

    number: int = field(default=0, kw_only=True)

    @property
    def _id_suffix(self) -> str:
        return f"-n{self.number}"


@dataclass(frozen=True)
class FileFlexConfig(FlexConfig):
    """As :class:`FileConfig`, for attention."""

    number: int = field(default=0, kw_only=True)

    @property
    def _id_suffix(self) -> str:
        return f"-n{self.number}"


@dataclass(frozen=True)
class AttentionOutput(Attention):
    """Attention whose result has no logarithms of the softmax's denominators."""

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """The output alone."""
        return super().outputs[:1]


def _block(tile: Mapping[str, int], letter: str, default: int) -> int:
    """Returns the block size of a dimension, by the usual names of such constants."""
    named = (size for name, size in tile.items() if re.fullmatch(rf"(?i)(BLOCK|BLK|TILE|B)(_?SIZE)?_?{letter}", name))
    size = next(named, default)
    return min(max(size, 16), 128)


class _FromFile(Kernel):
    """Launches what was recorded. Its plans are those of problems that were asked for."""

    weight = 1

    def __init__(self, recorded: Recorded, folder: Path) -> None:
        self.name, self.recorded, self.folder = recorded.name, recorded, folder
        self.operations = frozenset({recorded.described.operation})
        self.dtypes = recorded.described.dtypes
        self._made: dict[int, list[Any]] = {}
        numbers = recorded.described.configs or range(len(recorded.tiles))
        self.configs = tuple(map(self.config, numbers, recorded.tiles))

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: those that the description names, and no other."""
        return list(self.dtypes)

    def config(self, number: int, tile: Mapping[str, int]) -> Any:
        """Returns the config of this number, whose constants are ``tile``."""
        given = self.recorded.described.tile
        m, n, k = [*given, *(_block(tile, letter, 32) for letter in "mnk"[len(given) :])]
        stages, warps = (max(tile.get(name, default), 1) for name, default in (("num_stages", 2), ("num_warps", 4)))
        return FileConfig(m, n, k, stages, warps, number=number)

    def tape(self, plan: Plan) -> Tape | None:
        """Returns what was recorded for ``plan``; None if nothing was."""
        found = self.recorded.tapes.get(key(plan.problem, plan.config, plan.target))
        return found and found[0]

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: the wrapper's own refusal."""
        if reason := self.foreign(plan):
            return reason
        if plan.variant != Variant():
            return Reason(ReasonCode.CONFIG, "variant", f"{self.name} works in one way")
        tape = self.tape(plan)
        if tape is None:
            return Reason(ReasonCode.OPERATION, plan.problem.op, f"{self.name} was not asked for {plan.problem.id}")
        if tape.refused:
            return Reason(ReasonCode.LAYOUT, "operands", f"{self.name} refuses: {tape.refused}")
        return None

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: that of the file's last launch."""
        tape, number = self.recorded.tapes[key(plan.problem, plan.config, plan.target)]
        step = tape.steps[self._main(tape, number)]
        assert isinstance(step, Launched)
        return step.grid

    def _main(self, tape: Tape, number: int) -> int:
        """Returns the place of the last launch of the file's own functions."""
        functions = self.recorded.functions[number]
        places = [place for place, step in enumerate(tape.steps) if isinstance(step, Launched)]
        return max(place for place in places if not functions[tape.steps[place].function].is_own)  # type: ignore[union-attr]

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the last launch of the file, with what comes before and after it. Memory that is filled
        before the first launch is filled at once."""
        check_tensors(self.name, plan.problem, tensors)
        tape, number = self.recorded.tapes[key(plan.problem, plan.config, plan.target)]
        replayed = _Replayed(tape, tensors, self._functions(number))
        first = first_launch(tape)
        for step in tape.steps[:first]:
            replayed.done(step)
        launches = [replayed.launch(step) for step in tape.steps[first:]]
        main = self._main(tape, number) - first
        return dataclasses.replace(launches[main], before=tuple(launches[:main]), after=tuple(launches[main + 1 :]))

    def _functions(self, number: int) -> list[Any]:
        if number not in self._made:
            functions, folder = self.recorded.functions[number], self.folder / f"{self.name}-{number}"
            self._made[number] = device_functions(functions, folder)
        return self._made[number]

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: sums in fp32, on a device by its tensor core, unless the description says more."""
        problem, unit = plan.problem, plan.target.matrix_unit
        sums = Accumulator(alignment_bits=unit.alignment_bits, chunk=unit.products[2], assumed=True)
        plain = executor == ExecutorName.INTERPRETER or (problem.dtype, problem.precision) == ("fp32", "ieee")
        accumulator = FMA if plain else sums
        accumulator = {"int8": INT32, "fp64": FMA64}.get(problem.dtype, accumulator)
        fields = {
            "operand": "exact" if problem.precision == "ieee" else problem.precision,
            "flushes_subnormals": plan.target.vendor == "amd",
        }
        given = self.recorded.described.contract
        fields["stores_once"] = given.get("deterministic", True)  # what adds to memory stores to it more than once
        promised = {**fields, **self.more_promises(problem), **given}
        return Contract(problem.output_dtype, accumulator, **promised)

    def more_promises(self, problem: Any) -> dict[str, Any]:
        """Returns fields of the contract that kernels of a family have."""
        return {}

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: none is required."""
        return Features()


class _Replayed:
    """The memory of one replayed tape."""

    def __init__(self, tape: Tape, tensors: Mapping[str, Tensor], functions: list[Any]) -> None:
        self.functions = functions
        like = next(iter(tensors.values()))
        results = {view.memory: name for name, view in tape.outputs.items()}
        self.bases: list[Tensor] = []
        self.tensors = tensors
        self.names: dict[int, str] = {}
        for number, memory in enumerate(tape.memories):
            name = results.get(number, memory.name)
            if name in tensors and not (memory.workspace and number not in results):
                self.names[number] = name
                self.bases.append(tensors[name])
            else:
                self.bases.append(workspace((memory.size,), _TORCH[memory.dtype], like=like))
                if memory.kept and memory.initial is not None:
                    self.bases[-1].fill_(memory.initial.python)  # type: ignore[arg-type]

    def done(self, step: Step) -> None:
        """Fills or copies."""
        if isinstance(step, Filled):
            self.tensor(step.view).fill_(step.number.python)  # type: ignore[arg-type]
        elif isinstance(step, Copied):
            self.tensor(step.view).copy_(self.tensor(step.source))

    def launch(self, step: Step) -> Launch:
        """Returns a launch of the file, or one that does what torch does after a launch."""
        assert isinstance(step, Launched)
        arguments = {name: self.value(value) for name, value in step.arguments.items()}
        return Launch(self.functions[step.function], step.grid, arguments, step.options)  # type: ignore[arg-type]

    def tensor(self, view: View) -> Tensor:
        """Returns the tensor in the memory that it has here."""
        base, dtype = self.bases[view.memory], _TORCH[view.dtype]
        start = base.storage_offset()
        if dtype == base.dtype:
            if (view.shape, view.strides, view.offset) == (tuple(base.shape), base.stride(), 0):
                return base
            return base.as_strided(view.shape, view.strides, start + view.offset)
        offset = start * base.element_size() // dtype.itemsize + view.offset
        whole = torch.empty(0, dtype=dtype, device=base.device)
        return whole.set_(base.untyped_storage(), offset, view.shape, view.strides)

    def value(self, value: Any) -> Any:
        """Returns an argument of a launch."""
        import triton.language as tl

        if isinstance(value, View):
            return self.tensor(value)
        if isinstance(value, Descriptor):
            from triton.tools.tensor_descriptor import TensorDescriptor

            shape, strides, block = map(list, (value.shape, value.strides, value.block_shape))
            return TensorDescriptor(self.tensor(value.base), shape, strides, block)
        if isinstance(value, Items):
            return tuple(self.value(each) for each in value.items)
        if isinstance(value, Callee):
            return self.functions[value.number]
        if isinstance(value, Constant):
            return tl.constexpr(self.value(value.value))
        return tl.dtype(value.name) if isinstance(value, Dtype) else value.python


class FileGemm(_FromFile, GemmFamily):
    """A product of matrices of a file."""

    computes = OPERATIONS


class FileAttention(_FromFile, AttentionFamily):
    """Attention of a file."""

    computes = ("attention",)
    operation = "attention"

    def __init__(self, recorded: Recorded, folder: Path) -> None:
        super().__init__(recorded, folder)
        self.with_lse = len(recorded.described.outputs) > 1

    def config(self, number: int, tile: Mapping[str, int]) -> Any:
        """See :class:`_FromFile`."""
        usual = super().config(number, tile)
        return FileFlexConfig(usual.block_m, usual.block_n, usual.num_stages, usual.num_warps, number=number)

    def more_promises(self, problem: Any) -> dict[str, Any]:
        """See :class:`_FromFile`: weights may be rounded, and divided early. A kernel that does neither is within."""
        return {"intermediate": problem.dtype, "divides": "weights"}

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Any:
        """See :class:`Kernel`: with the description's fields, and without lse unless it is an output."""
        problem = super().example(dtype, config, shape)
        if self.with_lse:
            return problem
        fields = {each.name: getattr(problem, each.name) for each in dataclasses.fields(Attention)}
        return AttentionOutput(**fields)


#: The classes of kernels that a file can have.
KINDS = (FileGemm, FileAttention)


def kernel_of(recorded: Recorded, folder: Path) -> _FromFile:
    """Returns the kernel. Raises DescriptionError for an operation that no file can have, and for unknown shapes."""
    described = recorded.described
    kind = next((kind for kind in KINDS if described.operation in kind.computes), None)
    if kind is None:
        operations = ", ".join(name for kind in KINDS for name in kind.computes)
        raise DescriptionError(f"the operation {described.operation!r} is unknown: use one of {operations}")
    shapes = (*kind.shapes, WHOLE_TILES, EVEN)
    if wrong := {*described.shapes} - {*shapes}:
        raise DescriptionError(f"the shapes {sorted(wrong)} are unknown: use some of {', '.join(shapes)}")
    return kind(recorded, folder)


def kernels() -> list[Kernel]:
    """Returns the kernels of the file that is judged: what the entry point of its folder names."""
    folder = Path(os.environ[VARIABLE])
    recorded = msgspec.json.decode((folder / KERNELS).read_bytes(), type=list[Recorded])
    return [kernel_of(each, folder) for each in recorded]
