"""Runs a module that Inductor generated for CUDA or XPU in Triton's interpreter, on CPU tensors.

The module's own text runs: its ``call`` allocates, launches and frees as on a device. Only the names that need a device
are replaced, and only for this text. Everything that the module allocates is filled with a sentinel, so that an element
which is not written shows in the outputs.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import inspect
import itertools
import linecache
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.execution.interpreter.executor import InterpreterExecutor
from conformance.inductor.compile.program import Launches, Unsupported
from conformance.kernels.launch import Launch
from conformance.records import Reason, ReasonCode

_NUMBERS = itertools.count()
_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_HELPERS = "torch._inductor.runtime.triton_helpers"
_LIBDEVICE = frozenset(
    {"abs", "cos", "erf", "erfc", "exp", "exp2", "expm1", "floor", "hypot", "isinf", "isnan", "log", "log1p", "log2"}
    | {"pow", "rsqrt", "sin", "sqrt", "tanh"}
)


#: Kinds of devices whose modules can be replayed.
KINDS = ("cuda", "xpu")

#: Bytes around every allocation of a module that are watched; a multiple of every descriptor's alignment.
SURROUNDING = 1 << 16
#: Their content: a large number in every float format, unlike NaN, which unwritten elements and their results hold.
AROUND = 0x7D


class ReplayUnsupported(Unsupported):
    """The interpreter cannot run this module."""

    def __init__(self, subject: str, detail: str) -> None:
        super().__init__(Reason(ReasonCode.NO_INTERPRETER, subject, detail))


def replay(
    module_source: str, arguments: Sequence[Tensor | int], executor: InterpreterExecutor
) -> tuple[tuple[Tensor, ...], Launches]:
    """Runs ``call`` of ``module_source`` with ``arguments``, the inputs of the compiled graph in the graph's order.
    They are CPU tensors, and an int for each size that is an input. Returns what ``call`` returned, and each launch of
    a generated kernel with the grid that the interpreter walked.

    Raises ReplayUnsupported for what cannot be run without a device, and ValueError for arguments of another kind.
    Raises AssertionError if the module's own checks of sizes and strides refuse the arguments, or if something was
    written around its allocations. A fault inside a kernel raises what the interpreter raises.
    """
    for position, argument in enumerate(arguments):
        if isinstance(argument, Tensor) and argument.device.type != "cpu":
            raise ValueError(f"argument {position} is on {argument.device}: the interpreter needs CPU tensors")
        if not isinstance(argument, (Tensor, int)):
            raise ValueError(f"argument {position} is {argument!r}: a tensor or an int is required")
    from triton.runtime.interpreter import InterpreterBuilder

    with (
        # Inductor's own device functions call libdevice through their module.
        mock.patch.object(importlib.import_module(_HELPERS), "libdevice", _Libdevice()),
        mock.patch.object(InterpreterBuilder, "create_splat", _splat(InterpreterBuilder.create_splat)),
    ):
        replayed, call = _loaded(module_source, executor)
        replayed.launches.clear()
        replayed.allocated.clear()
        try:
            with mock.patch.dict(linecache.cache, replayed.lines):
                outputs = call(list(arguments))
        except NameError as error:  # such as a tensor constant, which is no part of the text
            detail = f"the module uses a name that it does not define: {error}"
            raise ReplayUnsupported(str(error.name), detail) from error
        except NotImplementedError as error:
            raise ReplayUnsupported("operator", f"the module calls what a CPU does not implement: {error}") from error
        replayed.check_surroundings()
    return tuple(outputs), tuple(replayed.launches)


@functools.lru_cache(maxsize=4)
def _loaded(module_source: str, executor: InterpreterExecutor) -> tuple[_Replay, Callable[..., Any]]:
    """Returns the module's state and its function ``call``. They are kept for further calls, because the interpreter
    rewrites every kernel, and each function that it calls, before its first launch."""
    replayed = _Replay(executor)
    call = replayed.load(module_source, "module").get("call")
    if call is None:
        raise ReplayUnsupported("call", "the module defines no function call(args)")
    return replayed, call


class _Replay:
    """The state of a module: its lines by file, and what its present call has launched and allocated."""

    def __init__(self, executor: InterpreterExecutor) -> None:
        self.executor = executor
        self.lines: dict[str, Any] = {}
        self.launches: list[tuple[str, tuple[int, ...]]] = []
        self.allocated: list[Tensor] = []
        self.stand_ins = _stand_ins(self)

    def allocate(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Returns memory for the module that shows whether it was written, inside more memory that must not be
        written."""
        span = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        memory = torch.full((2 * SURROUNDING + span * dtype.itemsize,), AROUND, dtype=torch.uint8)
        memory[SURROUNDING : len(memory) - SURROUNDING] = _unwritten_byte(dtype)
        self.allocated.append(memory)
        empty = torch.empty(0, dtype=dtype)
        return empty.set_(memory.untyped_storage(), SURROUNDING // dtype.itemsize, tuple(size), tuple(stride))

    def check_surroundings(self) -> None:
        """Raises AssertionError if anything was written before or behind what the module allocated."""
        for number, memory in enumerate(self.allocated):
            for where, part in (("before", memory[:SURROUNDING]), ("behind", memory[-SURROUNDING:])):
                changed = int((part != AROUND).sum())
                if changed:
                    raise AssertionError(f"{changed} bytes were written {where} allocation {number} of the module")

    def load(self, source: str, name: str) -> dict[str, Any]:
        """Runs the text with the stand-ins behind its imports, and returns its globals."""
        # The interpreter reads a kernel's lines through inspect, which finds them in linecache by this name.
        file = f"<replay {next(_NUMBERS)} {name}>"
        self.lines[file] = (len(source), None, source.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {
            "__name__": f"replay_{name}",
            "__file__": file,
            "__builtins__": {**vars(builtins), "__import__": self._import},
        }
        try:
            with mock.patch.dict(linecache.cache, self.lines):
                exec(compile(source, file, "exec"), namespace)
        except (ImportError, AttributeError, NameError) as error:
            raise ReplayUnsupported(name, f"needs a name that this torch or Triton does not have: {error}") from error
        return namespace

    def _import(
        self,
        name: str,
        importing: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        root = name.partition(".")[0]
        if root != "torch":
            return builtins.__import__(name, importing, local, names or (), level)
        if name in self.stand_ins:
            return self.stand_ins[name]
        if names and all(f"{name}.{part}" in self.stand_ins for part in names):
            return _PatchedModule(None, name, self.stand_ins)
        module = importlib.import_module(name)
        return _PatchedModule(module, name, self.stand_ins) if names else _PatchedModule(torch, "torch", self.stand_ins)

    def build(self, name: str, source: str, *_: Any, **__: Any) -> _ReplayedKernel:
        """Returns the kernel ``name`` of ``source``, in place of compiling it."""
        kernel = self.load(_with_interpretable_loops(source), name).get(name)
        if not isinstance(kernel, _ReplayedKernel):
            raise ReplayUnsupported(name, "its source does not define a kernel with one of Inductor's heuristics")
        return kernel

    def launch(self, function: Any, grid: tuple[int, ...], arguments: Mapping[str, Any]) -> None:
        name = function.fn.__name__
        try:
            ran = self.executor.run(Launch(function, grid, arguments))
        except Exception as error:
            unsupported = _unsupported_cause(name, error)
            if unsupported is None:
                raise
            raise unsupported from error
        self.launches.append((name, ran.grid or grid))


def _unsupported_cause(kernel: str, error: BaseException) -> ReplayUnsupported | None:
    """Returns the gap of the interpreter that stopped a kernel, if that was the cause: it wraps every exception in its
    own."""
    from triton.runtime.interpreter import InterpreterBuilder

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ReplayUnsupported):
            return cause
        missing = isinstance(cause, AttributeError) and isinstance(getattr(cause, "obj", None), InterpreterBuilder)
        if missing or isinstance(cause, NotImplementedError):
            return ReplayUnsupported(kernel, f"the interpreter does not implement what the kernel uses: {cause!r}")
        cause = cause.__cause__
    return None


def _splat(original: Callable[..., Any]) -> Callable[..., Any]:
    """``create_splat`` that keeps conditions. The interpreter gives the result of a comparison the type of its
    operands. So a scalar condition that is broadcast becomes an integer, which Triton 3.9 refuses as a mask."""

    def create_splat(self: Any, shape: Any, scalar: Any) -> Any:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        condition = scalar.data.dtype == bool
        return original(self, shape, TensorHandle(scalar.data, tl.int1) if condition else scalar)

    return create_splat


def _with_interpretable_loops(source: str) -> str:
    """Returns the only edit of a kernel's text: ``x.to(dtype)`` of a loop variable becomes ``tl.cast(x, dtype)``. The
    two mean the same, but in the interpreter a loop variable is a Python int, which has no method ``to``."""
    variables = set(re.findall(r"^\s*for\s+(\w+)\s+in\s+(?:tl\.)?range\(", source, flags=re.MULTILINE))
    if not variables:
        return source
    return re.sub(rf"(?<![\w.])({'|'.join(sorted(variables))})\.to\(", r"tl.cast(\1, ", source)


@dataclass(frozen=True)
class _ReplayedKernel:
    """Stands for Inductor's autotuner of one kernel: takes what the wrapper passes and launches it. Of the configs that
    Inductor offers it takes the one with the fewest programs."""

    replay: _Replay
    function: Any
    configs: Sequence[Any]
    triton_meta: Mapping[str, Any]
    inductor_meta: Mapping[str, Any]

    def run(self, *arguments: Any, stream: Any = None) -> None:
        bound = [self._bind(config, arguments) for config in self.configs]
        grid, values = min(bound, key=lambda pair: math.prod(pair[0]))
        self.replay.launch(self.function, grid, values)

    def _bind(self, config: Any, arguments: Sequence[Any]) -> tuple[tuple[int, ...], dict[str, Any]]:
        """The grid and all arguments by name, under ``config``."""
        parameters = inspect.signature(self.function.fn).parameters
        fixed = {**self.triton_meta.get("constants", {}), **config.kwargs}
        # The wrapper passes no constexpr whose value is known; what follows the parameters is for the grid alone.
        constants = {name for name in fixed if name in parameters and "constexpr" in str(parameters[name].annotation)}
        passed = [name for name in parameters if name not in constants]
        passed += self.inductor_meta.get("extra_launcher_args", ())
        if len(arguments) != len(passed):
            raise TypeError(f"{self.function.fn.__name__} takes {', '.join(passed)}, {len(arguments)} values are given")
        by_name = dict(zip(passed, arguments, strict=True))
        expression = _heuristics("GridExpr").from_meta(dict(self.inductor_meta), config, mode="python")
        grid = tuple(int(extent) for extent in expression.eval_slow(by_name))
        values = {name: fixed[name] if name in constants else by_name[name] for name in parameters}
        for name, descriptor in self.inductor_meta.get("host_tma_descriptor_args", {}).items():
            values[name] = _host_descriptor(values[name], descriptor, fixed)
        return grid, values


def _host_descriptor(tensor: Tensor, descriptor: Mapping[str, Any], constants: Mapping[str, Any]) -> Any:
    """Returns the object that Inductor's launcher passes in place of ``tensor`` where the host makes the descriptor."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    resolve = _heuristics("_resolve_dims")
    shape, strides, block = (resolve(descriptor[name], constants, {}) for name in ("shape", "strides", "block_shape"))
    return TensorDescriptor(tensor, list(shape), list(strides), list(block))


def _heuristics(name: str) -> Any:
    module = importlib.import_module(_HEURISTICS)
    if not hasattr(module, name):
        raise ReplayUnsupported(name, f"this torch has no {_HEURISTICS}.{name}")
    return getattr(module, name)


class _Decorators:
    """Stands for Inductor's heuristics, the decorators of its kernels: each offers what it offers on a device, but
    nothing is tuned."""

    def __init__(self, replay: _Replay) -> None:
        self._replay = replay

    def __getattr__(self, name: str) -> Callable[..., Any]:
        heuristic, signature = _heuristics(name), inspect.signature(_heuristics("cached_autotune"))

        def factory(*arguments: Any, **options: Any) -> Callable[[Any], _ReplayedKernel]:
            if name.startswith("cooperative"):
                # One program would wait for another that starts when it has ended.
                raise ReplayUnsupported(name, "its programs wait for each other, the interpreter runs them in turn")
            with mock.patch.object(importlib.import_module(_HEURISTICS), "cached_autotune") as autotuned:
                heuristic(*arguments, **options)
            offered = signature.bind(*autotuned.call_args.args, **autotuned.call_args.kwargs).arguments
            metas = offered["triton_meta"], offered.get("inductor_meta") or {}
            return lambda function: _ReplayedKernel(self._replay, function, offered["configs"], *metas)

        return factory


class _StandIn:
    """Stands for the object ``path`` of torch and has ``attributes``. ``lack`` says why no other can be replayed."""

    def __init__(self, path: str, lack: str, **attributes: Any) -> None:
        self._path, self._lack = path, lack
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        raise ReplayUnsupported(f"{self._path}.{name}", self._lack)


class _Libdevice:
    """Stands for the device's mathematical functions, which the interpreter has not: torch's of the same name."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _LIBDEVICE:
            raise ReplayUnsupported(f"libdevice.{name}", "the interpreter has no such function")

        def function(*operands: Any) -> Any:
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            first = next(operand for operand in operands if isinstance(operand, tl.tensor))
            values = [
                torch.as_tensor(operand.handle.data) if isinstance(operand, tl.tensor) else operand
                for operand in operands
            ]
            result = getattr(torch, name)(*values)
            kind = tl.int32 if result.dtype == torch.bool else first.dtype.scalar
            data = result.to(torch.int32).numpy() if result.dtype == torch.bool else result.numpy()
            shaped = tl.block_type(kind, list(first.shape)) if first.type.is_block() else kind
            return tl.tensor(TensorHandle(data, kind), shaped)

        return function


class _PatchedModule:
    """A module with some of its names, or of the names in it, replaced."""

    def __init__(self, real: Any, path: str, stand_ins: Mapping[str, Any]) -> None:
        self._real, self._path, self._stand_ins = real, path, stand_ins

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}"
        if path in self._stand_ins:
            return self._stand_ins[path]
        real = getattr(self._real, name)
        within = any(replaced.startswith(f"{path}.") for replaced in self._stand_ins)
        return _PatchedModule(real, path, self._stand_ins) if within else real


def _stand_ins(replayed: _Replay) -> dict[str, Any]:
    """Returns the replacements, by the full name of what they replace."""
    compiler = _StandIn(
        "async_compile",
        "only Triton kernels can be replayed",
        triton=replayed.build,
        size_hint_multi_kernel=_kernels_by_size,
        wait=lambda scope: None,
    )
    # There is one device, and nothing to guard or to wait for.
    device = functools.partial(
        _StandIn,
        lack="the module uses the device in a way that cannot be replayed",
        _DeviceGuard=contextlib.nullcontext,
        device=contextlib.nullcontext,
        set_device=lambda index: None,
        synchronize=lambda: None,
    )
    return {
        **{f"torch.{kind}": device(f"torch.{kind}") for kind in KINDS},
        "torch.device": lambda *_, **__: torch.device("cpu"),
        **{f"torch._C._{kind}_getCurrentRawStream": lambda index: 0 for kind in KINDS},
        **{f"torch._C._dynamo.guards._empty_strided_{kind}": replayed.allocate for kind in KINDS},
        "torch._inductor.async_compile.AsyncCompile": lambda: compiler,
        "torch._inductor.select_algorithm.extern_kernels": _ExternKernels(),
        _HEURISTICS: _Decorators(replayed),
        f"{_HELPERS}.set_driver_to_gpu": lambda: None,
        f"{_HELPERS}.libdevice": _Libdevice(),
    }


def _kernels_by_size(*arguments: Any, **options: Any) -> Any:
    """Torch's own choice between kernels by sizes, over kernels that are replayed. No choice of an earlier run is
    loaded."""
    from torch._inductor.codegen.multi_kernel import SizeHintMultiKernelCall

    with mock.patch.object(SizeHintMultiKernelCall, "load_cache", return_value=None):
        return SizeHintMultiKernelCall(*arguments, **options)


def _unwritten_byte(dtype: torch.dtype) -> int:
    """Returns the byte of unwritten memory of ``dtype``: floats are NaN, integers a number far from any small one."""
    if dtype.is_floating_point or dtype.is_complex:
        return 0xFF
    return 0x01 if dtype == torch.bool else 0x80


class _ExternKernels:
    """Stands for the kernels of ATen that templates compete with: the same product, summed in fp64 and rounded once."""

    def mm(self, a: Tensor, b: Tensor, *, out_dtype: torch.dtype | None = None, out: Tensor | None = None) -> Tensor:
        return _rounded(_wide(a) @ _wide(b), out_dtype or a.dtype, out)

    bmm = mm
    mm_dtype = mm
    bmm_dtype = mm

    def _mm_plus_mm(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor, *, out: Tensor | None = None) -> Tensor:
        return _rounded(_wide(a) @ _wide(b) + _wide(c) @ _wide(d), a.dtype, out)

    def addmm(
        self, bias: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1, beta: float = 1, out: Tensor | None = None
    ) -> Tensor:
        product = alpha * (_wide(a) @ _wide(b))
        return _rounded(product + beta * _wide(bias) if beta else product, a.dtype, out)

    bias_addmm = addmm
    baddbmm = addmm

    def _int_mm(self, a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
        return _rounded(_wide(a) @ _wide(b), torch.int32, out)

    int_mm = _int_mm

    def _scaled_mm(
        self,
        a: Tensor,
        b: Tensor,
        scale_a: Tensor,
        scale_b: Tensor,
        bias: Tensor | None = None,
        scale_result: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        use_fast_accum: bool = False,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        rows, columns = (a.shape[0], 1), (1, b.shape[1])
        fits = scale_a.numel() == 1 or scale_a.shape == rows, scale_b.numel() == 1 or scale_b.shape == columns
        if not all(fits) or scale_result is not None:
            detail = f"only one scale per tensor or per row: given {tuple(scale_a.shape)} and {tuple(scale_b.shape)}"
            raise ReplayUnsupported("extern_kernels._scaled_mm", detail)
        product = (_wide(a) @ _wide(b)) * _wide(scale_a) * _wide(scale_b)
        return _rounded(product if bias is None else product + _wide(bias), out_dtype or a.dtype, out)

    def convolution(self, x: Tensor, weight: Tensor, *, bias: Tensor | None, **options: Any) -> Tensor:
        wide = torch.ops.aten.convolution(_wide(x), _wide(weight), None if bias is None else _wide(bias), **options)
        # Inductor expects this layout where it sees no cuDNN, as in a process without a device.
        return _rounded(wide, x.dtype, None).contiguous()

    def __getattr__(self, name: str) -> Any:
        raise ReplayUnsupported(f"extern_kernels.{name}", "no CPU stand-in for this kernel")


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64 if tensor.dtype.is_floating_point else torch.int64)


def _rounded(wide: Tensor, dtype: torch.dtype, out: Tensor | None) -> Tensor:
    return wide.to(dtype) if out is None else out.copy_(wide)
