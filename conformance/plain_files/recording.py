"""Runs a file's wrapper over tensors without values and records what it launches. Runs in a process apart.

The tensors say that they lie on the target's device, and no device is needed. The wrapper cannot see a value, so its
result can come from its launches alone. What it asks of the device is answered for the target.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import importlib.util
import inspect
import math
import multiprocessing
import os
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.plain_files.description import root_of
from conformance.plain_files.tape import (
    Added,
    Answer,
    Callee,
    Constant,
    Copied,
    Descriptor,
    Dtype,
    Filled,
    Function,
    Global,
    Items,
    Launched,
    Memory,
    Module,
    Namespace,
    Number,
    Scalar,
    Step,
    Tape,
    Value,
    View,
    encode,
    in_order,
)
from conformance.problems import DTYPES, Operand
from conformance.targets import Target

#: Operations of torch that only make memory, and those that fill it with one number.
_EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
_FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
_FULL = {"full", "full_like", "new_full"}
#: Those that copy.
_COPIES = {"clone", "_to_copy", "copy", "contiguous", "_reshape_copy", "lift_fresh"}
#: Multiprocessors that the device is said to have: the problems are small, and a persistent kernel must take several
#: tiles for each of its programs.
_MULTIPROCESSORS = 2
#: Exceptions by which a wrapper refuses what it is given.
_REFUSALS = (AssertionError, ValueError, NotImplementedError, RuntimeError)


class NotRecorded(Exception):
    """The wrapper does what no launch needs; ``check`` names the check that fails."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(text)
        self.check = check


@dataclass(frozen=True)
class Question:
    """One problem for the wrapper: the operands and outputs, and what else the call may name. ``config`` is the number
    of the config that a tuner is to take."""

    operands: Sequence[Operand]
    outputs: Sequence[Operand]
    names: Mapping[str, Any]
    config: int


@dataclass
class _Allocation:
    """Memory that the file made at any time, and the number with which it was filled before its first launch. It is
    ``usable`` in a later call if nothing was copied to it: it holds nothing of an earlier one then."""

    storage: Any
    dtype: str
    size: int
    initial: Number | None = None
    is_launched: bool = False
    usable: bool = True

    def fill(self, tensor: Tensor, number: Number) -> None:
        """Takes that ``tensor`` in this memory was filled."""
        if not self.is_launched:
            self.initial = number
            self.usable = self.usable and tensor.numel() == self.size


class _Allocations(dict[int, _Allocation]):
    """The memory that the file made, by the numbers of its storages, which it keeps."""

    def take(self, func: Any, result: Any, args: Any) -> None:
        """Takes an operation of torch that gave ``result``."""
        name = func.overloadpacket.__name__
        if isinstance(result, Tensor) and name in {*_EMPTY, *_FILLED, *_FULL}:
            storage = result.untyped_storage()
            size = storage.nbytes() // result.element_size()
            allocation = self[storage._cdata] = _Allocation(storage, str(result.dtype), int(size))
            if name not in _EMPTY:
                allocation.fill(result, _filled_with(name, args))
        elif func._schema.is_mutable and args and isinstance(args[0], Tensor):
            changed = self.get(args[0].untyped_storage()._cdata)
            if changed is not None and name in ("zero_", "fill_"):
                changed.fill(args[0], _number(0 if name == "zero_" else args[1]))
            elif changed is not None:
                changed.usable = False


class _Importing(TorchDispatchMode):
    """Sees which memory a file makes while it is imported."""

    def __init__(self, allocations: _Allocations) -> None:
        super().__init__()
        self._allocations = allocations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._allocations.take(func, result, args)
        return result


@dataclass
class _Recorder(TorchDispatchMode):
    """Records what happens to memory while a wrapper runs. ``allocations`` has all memory that the file has made."""

    functions: _Functions
    choice: int
    allocations: _Allocations
    memories: list[Memory] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    configs: int = 1
    tile: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []

    def place(self, operand: Operand) -> Tensor:
        """Returns ``operand`` as a tensor without values."""
        base = torch.empty(max(operand.span, 1), dtype=DTYPES[operand.dtype], device="cuda")
        self._know(base, operand.name, workspace=False)
        return base.as_strided(operand.shape, operand.strides)

    def _know(self, tensor: Tensor, name: str, *, workspace: bool) -> None:
        storage = tensor.untyped_storage()
        self._kept.append(storage)
        self._numbers[storage._cdata] = len(self.memories)
        size = storage.nbytes() // tensor.element_size()
        self.memories.append(Memory(name, str(tensor.dtype), int(size), workspace))

    def view(self, tensor: Tensor) -> View:
        """Returns ``tensor`` as data. Raises NotRecorded if it was not made by this call."""
        identity = tensor.untyped_storage()._cdata
        number, allocation = self._numbers.get(identity), self.allocations.get(identity)
        if number is None and allocation is not None and allocation.usable:
            number = self._numbers[identity] = len(self.memories)
            name = f"workspace {number}"
            self.memories.append(
                Memory(name, allocation.dtype, allocation.size, True, kept=True, initial=allocation.initial)
            )
        if number is None:
            raise NotRecorded("kept-tensor", "uses a tensor that this call did not make: it is kept from before")
        shape, strides = map(int, tensor.shape), map(int, tensor.stride())
        return View(number, int(tensor.storage_offset()), tuple(shape), tuple(strides), str(tensor.dtype))

    def _launched_view(self, tensor: Tensor) -> View:
        view, allocation = self.view(tensor), self.allocations.get(tensor.untyped_storage()._cdata)
        if allocation is not None:
            allocation.is_launched = True
        return view

    def value(self, value: Any, where: str) -> Value:
        """Returns an argument as data."""
        if isinstance(value, Tensor):
            return self._launched_view(value)
        if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), Tensor):
            sizes = [tuple(map(int, each)) for each in (value.shape, value.strides, value.block_shape)]
            return Descriptor(self._launched_view(value.base), *sizes)
        if isinstance(value, (tuple, list)):
            return Items(tuple(self.value(each, where) for each in value))
        plain = _encoded(value)
        if plain is None and getattr(value, "fn", None) is not None:
            return Callee(self.functions.number(value))
        if plain is None:
            raise NotRecorded("arguments", f"passes {where} = {type(value).__name__}, which is no argument of a kernel")
        return plain

    def launched(self, function: Any, grid: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Takes a launch of ``function``."""
        bound = dict(zip(function.arg_names, positional, strict=False))
        options = {name: value for name, value in named.items() if name not in function.arg_names}
        bound |= {name: value for name, value in named.items() if name in function.arg_names}
        for name, parameter in inspect.signature(function.fn).parameters.items():
            if name not in bound and parameter.default is not inspect.Parameter.empty:
                bound[name] = parameter.default
        if callable(grid):
            grid = grid({**bound, **options})
        sizes = tuple(int(size) for size in (grid if isinstance(grid, (tuple, list)) else (grid,)))
        while len(sizes) > 1 and sizes[-1] == 1:  # a compiled kernel is launched with three
            sizes = sizes[:-1]
        for name in ("warmup", "stream", "device", "device_type", "debug"):
            options.pop(name, None)
        arguments = {name: self.value(value, name) for name, value in bound.items()}
        plain: dict[str, Scalar] = {
            name: value for name, value in options.items() if isinstance(value, (int, float, str, bool))
        }
        named_sizes = {**bound, **plain}.items()
        self.tile |= {name: value for name, value in named_sizes if type(value) is int and _is_size(name)}
        self.steps.append(Launched(self.functions.number(function), sizes, arguments, plain))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if own := _operator(func):
            with self, _Methods():
                return own(*args, **kwargs)
        before = set(self._numbers)
        result = func(*args, **kwargs)
        self.allocations.take(func, result, args)
        if not isinstance(result, Tensor):
            if isinstance(result, (tuple, list)) and all(self._is_view(each, before) for each in result):
                return result
            asks_of_dtypes = not any(isinstance(each, Tensor) for each in (*args, *kwargs.values()))
            if func.namespace == "prim" or name.startswith(("sym_", "is_")) or asks_of_dtypes:  # or of shapes
                return result
            raise NotRecorded("library-call", _library(name))
        if name in ("zero_", "fill_"):
            self.steps.append(Filled(self.view(result), _number(0 if name == "zero_" else args[1])))
        elif name == "copy_":
            self.steps.append(Copied(self.view(args[0]), self.view(args[1])))
        elif self._is_view(result, before):
            if func._schema.is_mutable:
                raise NotRecorded("library-call", _library(name))
        elif name in {*_EMPTY, *_FILLED, *_FULL, *_COPIES}:
            self._know(result, f"workspace {len(self.memories)}", workspace=True)
            if name in _COPIES:
                self.steps.append(Copied(self.view(result), self.view(args[0])))
            elif name not in _EMPTY:
                self.steps.append(Filled(self.view(result), _filled_with(name, args)))
        elif func is torch.ops.aten.sum.dim_IntList and len(args[1] or ()) == 1:
            self._know(result, f"workspace {len(self.memories)}", workspace=True)
            axis = args[1][0] % args[0].dim()
            self.steps.append(Added(self.view(result), self.view(args[0]), axis))
        else:
            raise NotRecorded("library-call", _library(name))
        return result

    def _is_view(self, result: Any, before: set[int]) -> bool:
        return isinstance(result, Tensor) and result.untyped_storage()._cdata in before


def _operator(func: Any) -> Any:
    """Returns the Python code for a device of an operator that such code registered; None for torch's own."""
    from torch._library.custom_ops import OPDEFS

    registered = OPDEFS.get(func._schema.name)
    return registered and registered._backend_fns.get("cuda", registered._init_fn)


def _is_size(name: str) -> bool:
    return name.isupper() or name in ("num_warps", "num_stages")


def _library(name: str) -> str:
    return f"calls torch's {name}: the result must come from the kernels of the file alone"


def _filled_with(name: str, args: Any) -> Number:
    """Returns the number with which the operation ``name`` of torch fills the memory that it makes."""
    return _number(_FILLED[name] if name in _FILLED else args[1 if name == "full" else -1])


def _number(value: Any) -> Number:
    value = getattr(value, "value", value)
    if isinstance(value, float) and not math.isfinite(value):
        return Number(special="nan" if math.isnan(value) else "inf" if value > 0 else "-inf")
    return Number(value)


def _encoded(value: Any) -> Number | Constant | Dtype | None:
    """Returns a plain value as data; None if it is none."""
    if isinstance(value, tl.constexpr):
        inner = _encoded(value.value)
        return None if inner is None or isinstance(inner, Constant) else Constant(inner)
    if isinstance(value, tl.dtype):
        return Dtype(value.name)
    return _number(value) if value is None or isinstance(value, (bool, int, float, str)) else None


def _names(code: types.CodeType) -> list[str]:
    """Returns what ``code`` names outside itself, and the attributes that it names, in a fixed order."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return sorted({*code.co_names, *code.co_freevars, *(name for each in inner for name in _names(each))})


class _Functions:
    """The device functions that were launched, by their numbers."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._answers: dict[int, Function] = {}

    def number(self, function: Any) -> int:
        """Returns the number of ``function``, which is new if it was not known."""
        python = function.fn
        if python not in self._known:
            number = self._known[python] = len(self._known)
            names = _names(python.__code__)
            cells = zip(python.__code__.co_freevars, python.__closure__ or (), strict=True)
            outside = {**python.__globals__, **{name: cell.cell_contents for name, cell in cells}}
            scope = {name: self._global(outside[name], names) for name in names if name in outside}
            named = {name: value for name, value in scope.items() if value is not None}
            path, line = python.__code__.co_filename, python.__code__.co_firstlineno
            said = getattr(inspect.getmodule(python), "__annotations__", {})
            annotated = tuple(name for name in named if "constexpr" in str(said.get(name, "")))
            self._answers[number] = Function(python.__name__, path, line, named, annotated)
        return self._known[python]

    def _global(self, value: Any, attributes: Sequence[str] = ()) -> Global | None:
        """Returns a global of a device function as data; of a module of the file's package, these attributes."""
        module = getattr(value, "__module__", None) or ""
        if isinstance(value, types.ModuleType):
            if value.__name__.partition(".")[0] == "triton" or not attributes:
                return Module(value.__name__)
            named = {name: self._global(vars(value).get(name)) for name in attributes if name in vars(value)}
            items = {name: each for name, each in named.items() if each is not None}
            return Namespace(items) if items else Module(value.__name__)
        plain = _encoded(value)
        if plain is not None:
            return plain
        python = getattr(value, "fn", None)
        if inspect.isfunction(python) and hasattr(value, "arg_names"):
            if python.__module__.startswith("triton."):
                return Callee(name=f"{python.__module__}:{python.__name__}")
            return Callee(self.number(value))
        if module.startswith("triton.") and hasattr(value, "__name__"):
            return Callee(name=f"{module}:{value.__name__}")
        return None

    @property
    def answers(self) -> tuple[Function, ...]:
        return tuple(self._answers[number] for number in range(len(self._answers)))


@functools.cache
def prepare() -> None:
    """Has torch import what tensors without values need, which takes seconds: once, before processes are forked. On a
    machine with a GPU this process has it from then on, and processes that are forked from it cannot use it."""
    with FakeTensorMode():
        torch.empty(2, 2, device="cuda").t()


def record(path: Path, call: str, target: Target, questions: Sequence[Question]) -> bytes:
    """Returns the answer about each question, encoded: what ``call``, an expression in the names of the file at
    ``path``, launches for ``target``. Each question is put twice; the second time must be as the first."""
    os.environ["TRITON_INTERPRET"] = "0"  # as on a device: wrappers ask for the class of their functions
    # a library may have locks between processes, which need shared memory; here is one process
    multiprocessing.Lock = multiprocessing.RLock = threading.RLock  # type: ignore[assignment]
    functions = _Functions()
    recorders: list[_Recorder] = []
    allocations = _Allocations()
    with _device(target), FakeTensorMode(allow_non_fake_inputs=True), _launches_to(recorders):
        try:
            with _Importing(allocations):
                names = vars(imported(path))
            _take_tuners()
        except BaseException as error:  # a script may exit
            return encode(Answer((), (), _import_fault(path, error)))
        tapes = []
        for question in questions:
            (first, numbers), (second, others) = (
                _tape(_Recorder(functions, question.config, allocations), recorders, call, names, question)
                for _ in range(2)
            )
            if not any(tape.fault or tape.refused for tape in (first, second)):
                first, second = _as_kept(first, numbers, second, others), in_order(second)
            # the second call may launch the kernel that the first one's tuner left
            again = msgspec.structs.replace(second, configs=first.configs, tile=first.tile)
            if first != again and not first.fault and not first.refused:
                text = "launches otherwise when it is called once more with the same: a result is kept from before"
                first = Tape(fault=second.fault or text, check="second-call")
            tapes.append(first)
    return encode(Answer(functions.answers, tuple(tapes)))


def _as_kept(first: Tape, numbers: Mapping[int, int], second: Tape, others: Mapping[int, int]) -> Tape:
    """Returns the tape of a first call. Memory that the ``second`` keeps from it is as there: its first fill is no
    step. ``numbers`` and ``others`` have the memory of both calls by its storage."""
    memories, steps = list(first.memories), list(first.steps)
    for identity, other in others.items():
        number = numbers.get(identity)
        if number is None or not second.memories[other].kept or memories[number].kept:
            continue
        memories[number] = second.memories[other]
        fills = [step for step in steps if isinstance(step, Filled) and step.view.memory == number]
        again = sum(isinstance(step, Filled) and step.view.memory == other for step in second.steps)
        for step in fills[: max(len(fills) - again, 0)]:
            steps.remove(step)
    return in_order(msgspec.structs.replace(first, memories=tuple(memories), steps=tuple(steps)))


def _tape(
    recorder: _Recorder, recorders: list[_Recorder], call: str, names: Mapping[str, Any], question: Question
) -> tuple[Tape, Mapping[int, int]]:
    """Returns the tape of one call, and the numbers of its memory by their storages."""
    tape = _recorded(recorder, recorders, call, names, question)
    return tape, recorder._numbers


def _recorded(
    recorder: _Recorder, recorders: list[_Recorder], call: str, names: Mapping[str, Any], question: Question
) -> Tape:
    tensors = {operand.name: recorder.place(operand) for operand in (*question.operands, *question.outputs)}
    recorders.append(recorder)
    try:
        scope = {"triton": triton, "torch": torch, **names, **question.names, **tensors}
        with recorder, _Methods():
            result = eval(call, scope)
        results = result if isinstance(result, (tuple, list)) else [result]
        outputs = {output.name: recorder.view(tensors[output.name]) for output in question.outputs}
        outputs |= {
            output.name: recorder.view(returned)
            for output, returned in zip(question.outputs, results, strict=False)
            if isinstance(returned, Tensor)
        }
        memories, steps = tuple(recorder.memories), tuple(recorder.steps)
        return Tape(memories, steps, outputs, configs=recorder.configs, tile=recorder.tile)
    except NotRecorded as error:
        return Tape(fault=f"the wrapper {error}", check=error.check)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        text = f"the wrapper reads values of a tensor, by torch's {error.func}: its launches may depend on shapes alone"
        return Tape(fault=text, check="values")
    except Exception as error:
        if isinstance(error, _REFUSALS) and _is_own(error):
            return Tape(refused=f"{type(error).__name__}: {error}")
        return Tape(fault=f"the wrapper raised {type(error).__name__}: {error}", check="wrapper")
    finally:
        recorders.pop()


def _is_own(error: BaseException) -> bool:
    """True if a statement of the user's code raised ``error``, and not torch or Triton for it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    libraries = [str(Path(str(library.__file__)).parent) for library in (torch, triton)]
    # a function written in C has no frame: its exception comes from the instruction that calls it
    is_statement = dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    return is_statement and not any(code.co_filename.startswith(folder) for folder in (*libraries, "<frozen"))


class _Methods(TorchFunctionMode):
    """Does without a device what torch does with one of the tensors' kind: indexes, copies, and moves to the device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.__getitem__:
            return self._indexed(*args)
        if func is Tensor.__setitem__:
            view, value = self._indexed(*args[:2]), args[2]
            copies = isinstance(value, Tensor)
            return torch.ops.aten.copy_(view, value) if copies else torch.ops.aten.fill_.Scalar(view, value)
        if func is Tensor.copy_:
            return torch.ops.aten.copy_(*args, **kwargs)
        if func is Tensor.contiguous:
            layout = kwargs.get("memory_format", *args[1:] or (torch.contiguous_format,))
            is_so = args[0].is_contiguous(memory_format=layout)
            return args[0] if is_so else args[0].clone(memory_format=layout)
        if func is torch.tensor:
            raise NotRecorded("library-call", _library("tensor"))
        if func in (Tensor.cuda, Tensor.to):
            args = [each for each in args if not _is_device(each)]
            kwargs = {name: value for name, value in kwargs.items() if not _is_device(value)}
            if func is Tensor.cuda or (len(args) == 1 and not kwargs.keys() - {"non_blocking"}):
                return args[0]
        return func(*args, **kwargs)

    def _indexed(self, tensor: Tensor, index: Any) -> Tensor:
        """Returns a view of ``tensor``."""
        parts = list(index) if isinstance(index, tuple) else [index]
        if any(not (part is None or part is Ellipsis or isinstance(part, (int, slice))) for part in parts):
            raise NotRecorded("library-call", _library("indexing by a tensor"))
        missing = tensor.dim() - sum(part is not None and part is not Ellipsis for part in parts)
        place = next((number for number, part in enumerate(parts) if part is Ellipsis), len(parts))
        parts[place : place + 1] = [slice(None)] * missing
        axis = 0
        for part in parts:
            if isinstance(part, int):
                tensor = tensor.select(axis, part)
                continue
            if part is None:
                tensor = tensor.unsqueeze(axis)
            elif part != slice(None):
                tensor = torch.ops.aten.slice.Tensor(tensor, axis, part.start, part.stop, part.step or 1)
            axis += 1
        return tensor


def _is_device(value: Any) -> bool:
    """True if ``value`` names a device of the target."""
    return isinstance(value, (str, torch.device)) and torch.device(value).type == "cuda"


def imported(path: Path) -> types.ModuleType:
    """Returns the module of the file at ``path``, as a part of the packages in whose folders it lies."""
    root = root_of(path)
    sys.path.insert(0, str(root))
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    if "." in name:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_fault(path: Path, error: BaseException) -> str:
    """Returns why the file at ``path`` cannot be imported, with the line and what a script needs."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    where = f"line {lines[0]} " if lines else ""
    what = str(error) if isinstance(error, NotRecorded) else f"raises {type(error).__name__}: {error}"
    text = f"{path.name} cannot be imported: {where}{what}"
    if not lines or isinstance(error, (ImportError, SyntaxError, NameError)):
        return text
    return f"{text}; put the lines that a script runs below 'if __name__ == \"__main__\":'"


@contextlib.contextmanager
def _launches_to(recorders: list[_Recorder]) -> Iterator[None]:
    """Inside, launches go to the last recorder, and tuners take the config that it names."""
    from triton.runtime import autotuner, interpreter, jit

    def launch(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> _Compiled:
        if warmup:
            raise NotRecorded("launch", "launches a kernel to warm up, which is not recorded")
        _last(recorders).launched(self, grid, args, kwargs)
        return _Compiled(self, recorders, args, kwargs)

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(self.arg_names, args, strict=False))
        configs = list(self.configs)
        if getattr(self, "early_config_prune", None):
            configs = list(self.early_config_prune(configs, arguments, **kwargs))
        if not configs:
            raise NotRecorded("configs", "has no config left after its early_config_prune")
        recorder = _last(recorders)
        recorder.configs = max(recorder.configs, len(configs))
        config = self.best_config = configs[min(recorder.choice, len(configs) - 1)]
        chosen = config.all_kwargs()
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **kwargs, **chosen})
        return self.fn.run(*args, **kwargs, **chosen)

    for owner, method in ((jit.JITFunction, launch), (interpreter.InterpretedFunction, launch)):
        owner.run = method
    autotuner.Autotuner.run = tuned
    yield


def _last(recorders: Sequence[_Recorder]) -> _Recorder:
    """Returns the recorder of the call that runs. Raises NotRecorded if none does."""
    if not recorders:
        raise NotRecorded("launch", "launches a kernel")
    return recorders[-1]


def _take_tuners(owner: Any = None) -> None:
    """Has the tuners of libraries, which benchmark in a way of their own, take a config as Triton's tuner does here."""
    from triton.runtime.autotuner import Autotuner

    for kind in (owner or Autotuner).__subclasses__():
        kind.run = Autotuner.run
        _take_tuners(kind)


@dataclass(frozen=True)
class _Compiled:
    """Stands in for the compiled kernel that a launch returns: a wrapper may keep it, to launch it again."""

    function: Any
    recorders: list[_Recorder]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    def __getitem__(self, grid: Any) -> Any:
        return functools.partial(self._launch, grid)

    def _launch(self, grid: Any, *args: Any, stream: Any = None) -> None:
        parameters = self.function.params
        bound = {**dict(zip(self.function.arg_names, self.positional, strict=False)), **self.named}
        constants = {each.name for each in parameters if each.is_constexpr}
        names = [each.name for each in parameters if len(args) == len(parameters) or not each.is_constexpr]
        if len(args) != len(names):
            text = f"launches a compiled kernel with {len(args)} arguments, {len(names)} are required"
            raise NotRecorded("launch", text)
        kept = {
            name: value for name, value in bound.items() if name in constants or name not in self.function.arg_names
        }
        _last(self.recorders).launched(self.function, grid, (), {**kept, **dict(zip(names, args, strict=True))})


class _Driver:
    """Stands in for Triton's driver of a device of ``target``."""

    def __init__(self, target: Any, properties: Mapping[str, int]) -> None:
        self.target = target
        self.utils = types.SimpleNamespace(get_device_properties=functools.partial(_returned, properties))

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_device_interface(self) -> types.ModuleType:
        return torch.cuda

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


@contextlib.contextmanager
def _device(target: Target) -> Iterator[None]:
    """Answers for a device of ``target`` what a wrapper may ask torch and Triton."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    number = target.arch if isinstance(target.arch, int) else 94
    limits = target.limits
    properties = types.SimpleNamespace(
        name=target.name or target.id,
        major=number // 10,
        minor=number % 10,
        multi_processor_count=_MULTIPROCESSORS,
        warp_size=target.warp_size,
        total_memory=80 << 30,
        shared_memory_per_block=limits.shared_memory,
        shared_memory_per_block_optin=limits.shared_memory,
        gcnArchName=str(target.arch),
    )
    of_triton = {"multiprocessor_count": _MULTIPROCESSORS, "max_shared_mem": limits.shared_memory}
    driver.set_active(_Driver(GPUTarget(target.backend, target.arch, target.warp_size), of_triton))
    values = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (number // 10, number % 10),
        "get_device_properties": properties,
        "get_device_name": properties.name,
        "synchronize": None,
        "set_device": None,
        "current_stream": types.SimpleNamespace(cuda_stream=0),
        "is_current_stream_capturing": False,
    }
    for name, value in values.items():
        setattr(torch.cuda, name, functools.partial(_returned, value))
    torch.cuda.device = torch.cuda.device_of = _Anywhere  # type: ignore[assignment, misc]
    if target.vendor == "amd":
        torch.version.hip, torch.version.cuda = torch.version.hip or "6.0", None
    else:
        torch.version.hip, torch.version.cuda = None, torch.version.cuda or "12.8"
    yield


def _returned(value: Any, *args: Any, **kwargs: Any) -> Any:
    return value


class _Anywhere(contextlib.nullcontext[None]):
    """A context that changes no device."""

    def __init__(self, device: Any = None) -> None:
        super().__init__()
