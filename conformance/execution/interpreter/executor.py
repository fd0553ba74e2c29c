"""Triton's interpreter, corrected, as an executor: numerics without a GPU.

While a kernel runs, the methods of `corrections` stand in for those that do otherwise than a device. `proof` compares
them with other arithmetic before the first use; what fails there is refused. Everything is put back after each launch.
What the interpreter cannot do right is a typed reason, and no fault of the kernel.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.exception_text import causes_of, class_name, raised_by_kernel
from conformance.execution.interpreter.accesses import Accesses, Lanes, watched, with_undefined_lanes
from conformance.execution.interpreter.corrections import (
    NotFaithful,
    corrections,
    descriptor_rules,
    refuse_rounding_descriptors,
    refusing,
)
from conformance.execution.interpreter.named_builtins import builtins_by_name
from conformance.execution.interpreter.nan_tracing import NanTracing
from conformance.execution.interpreter.overflow_tracing import OverflowTracing
from conformance.execution.interpreter.proof import Faults, faults_of_kernels, faults_of_methods
from conformance.execution.interpreter.savings import replaced_in, savings
from conformance.kernels.launch import Launch, Programs, Ran
from conformance.records import ExecutorName, Reason, ReasonCode

#: Methods of the interpreter's builder that must be there to be replaced.
_BUILDER_METHODS = (
    "create_dot",
    "create_fp_to_fp",
    "cast_impl",
    "binary_op",
    "unary_op",
    "set_grid_dim",
    "set_grid_idx",
)
#: Folders of what the interpreter calls: NumPy's, torch's and that of ``conformance.execution``.
_BELOW = (str(Path(np.__file__).parent), str(Path(str(torch.__file__)).parent), str(Path(__file__).parents[1]))


class InterpreterUnsupported(Exception):
    """The installed interpreter lacks a name that is replaced, or what a kernel asks for; ``reason`` says which."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class InterpreterExecutor:
    """Runs launches in the interpreter on CPU tensors, and reports the grid that its executor walked."""

    name = ExecutorName.INTERPRETER
    on_device = False
    device = torch.device("cpu")

    def __init__(self) -> None:
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise RuntimeError("the interpreter runs only with TRITON_INTERPRET=1, set before triton is imported")
        from triton.runtime import interpreter

        builder = interpreter.InterpreterBuilder
        for method in _BUILDER_METHODS:
            if not hasattr(builder, method):
                detail = f"this Triton's InterpreterBuilder has no {method}, which is replaced"
                raise InterpreterUnsupported(Reason(ReasonCode.NO_INTERPRETER, method, detail))
        self._interpreter = interpreter
        (_, self._methods), *self._reductions = corrections(interpreter)
        self._accesses: Accesses | None = None
        self._refuse(faults_of_methods(interpreter, self._methods))
        self._refuse(faults_of_kernels(self.run))

    def _refuse(self, faults: Faults) -> None:
        """Whatever asks for a method that has one of the ``faults``, in its format, is refused from here on."""
        builder = self._interpreter.InterpreterBuilder
        for (name, format_name), text in faults.items():
            owners = [(owner, names) for owner, names in self._reductions if name in names]
            for owner, names in owners or [(builder, self._methods)]:
                method = names.get(name) or getattr(owner, name)
                names[name] = refusing(method, name, format_name, text)

    @contextlib.contextmanager
    def watching(self, operands: Mapping[str, Tensor], **rules: Any) -> Iterator[Accesses]:
        """The :class:`Accesses` of the launches that run meanwhile, under its ``rules``."""
        self._accesses = Accesses(operands, **rules)
        try:
            yield self._accesses
        finally:
            self._accesses = None

    @contextlib.contextmanager
    def tracing_nan(self, operands: Mapping[str, Tensor], outputs: Sequence[str], lanes: Lanes) -> Iterator[NanTracing]:
        """The :class:`NanTracing` of the launches that run meanwhile over ``operands``, the ``outputs`` included.
        ``lanes`` says which lanes without a value are 0."""
        tracing = NanTracing(operands, outputs)
        with self.watching(operands, lanes=lanes, tracing=tracing):
            yield tracing

    @contextlib.contextmanager
    def tracing_overflow(
        self, operands: Mapping[str, Tensor], outputs: Sequence[str], lanes: Lanes
    ) -> Iterator[OverflowTracing]:
        """The :class:`OverflowTracing` of the launches that run meanwhile, as :meth:`tracing_nan`."""
        tracing = OverflowTracing(operands, outputs)
        with self.watching(operands, lanes=lanes, tracing=tracing):
            yield tracing

    def run(self, launch: Launch, programs: Programs | None = None, *, observe: bool = False) -> Ran:
        """Runs ``launch`` and the steps before and after it. What is observed is the launch itself, always:
        ``observe`` changes nothing here.

        ``programs`` restricts the launch to these program ids of the first grid dimension, or to these indices. Raises
        InterpreterUnsupported for what the interpreter cannot do, and whatever else it raises (an InterpreterError for
        a fault inside the kernel).
        """
        for step in launch.before:
            self._run(step)
        ran = self._run(launch, programs)
        for step in launch.after:
            self._run(step)
        return ran

    def _run(self, launch: Launch, programs: Programs | None = None) -> Ran:
        started = time.perf_counter()
        if launch.empty:
            return Ran(self.name, launch.grid, 0, 0.0)
        interpreter, builder = self._interpreter, self._interpreter.InterpreterBuilder
        walked: list[tuple[int, int, int]] = []
        seen: list[tuple[int, ...]] = []
        set_dim, set_idx, accesses = builder.set_grid_dim, builder.set_grid_idx, self._accesses

        def grid_dim(self: Any, x: int, y: int, z: int) -> None:
            full = (x, y, z) if programs is None else (*launch.grid, 1, 1)[:3]
            seen.append(full)
            set_dim(self, *full)

        def grid_idx(self: Any, x: int, y: int, z: int) -> None:
            if programs is not None:
                program = programs[x]
                x, y, z = (program, y, z) if isinstance(program, int) else (*program, 0, 0)[:3]
            walked.append((x, y, z))
            if accesses is not None:
                accesses.program((x, y, z))
            set_idx(self, x, y, z)

        methods = {**self._methods, "set_grid_dim": grid_dim, "set_grid_idx": grid_idx}
        if accesses is not None and accesses.undefined_lanes:
            methods["create_masked_load"] = with_undefined_lanes(interpreter, accesses)
        executor = {"_restore_args_dev": lambda *arguments: None}  # arguments are host memory already
        whole = programs is None or any(isinstance(program, int) for program in programs)
        grid = launch.grid if programs is None else (len(programs), *(launch.grid[1:] if whole else ()))
        arguments = {name: getattr(value, "value", value) for name, value in launch.arguments.items()}
        with contextlib.ExitStack() as replaced, np.errstate(all="ignore"):
            replacements = [(builder, methods), (interpreter.GridExecutor, executor), *self._reductions]
            reduce = self._methods.get("create_descriptor_reduce")
            replacements += [*descriptor_rules(interpreter, accesses, reduce), *savings(interpreter)]
            for owner, names in replacements:
                replaced.enter_context(replaced_in(owner, names))
            if accesses is not None and accesses.tracing is not None:
                for owner, names in accesses.tracing.replacements(interpreter):
                    replaced.enter_context(replaced_in(owner, names))
            if accesses is not None:
                accesses.launch(arguments)
                native = interpreter._interpreter
                replaced.enter_context(replaced_in(native, watched(native, accesses)))
            try:
                refuse_rounding_descriptors(interpreter, arguments)
                with builtins_by_name(launch.function):
                    launch.function[grid](**arguments)
            except Exception as error:
                reason = _unsupported(error, builder)
                if reason is None:
                    raise
                raise InterpreterUnsupported(reason) from error
        return Ran(self.name, seen[-1][: len(launch.grid)], len(set(walked)), time.perf_counter() - started)


def _unsupported(error: BaseException, builder: type) -> Reason | None:
    """The reason if ``error`` is a fault of the interpreter; None for one of the kernel.

    It is the interpreter's if the harness refused, if the interpreter's builder lacks a method, or if Triton's own
    function asks for the compiler's builder. It is, too, if the interpreter's code raised it for what Triton's
    semantics, which the compiler shares, had accepted. An assertion is the kernel's, and so is an index out of range.
    """
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, NotFaithful):
        return _lacking(cause.subject, cause)
    frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
    if isinstance(cause, AttributeError) and isinstance(cause.obj, builder):
        return _lacking(str(cause.name), cause)
    if isinstance(cause, ValueError) and "must be provided outside of JIT functions" in str(cause):
        subject = getattr(frames[-1].f_locals.get("fn"), "__name__", frames[-1].f_code.co_name)
        return _lacking(subject, f"it has no {subject}")
    while frames and frames[-1].f_code.co_filename.startswith(_BELOW):
        frames.pop()
    if not frames or frames[-1].f_code.co_filename != inspect.getfile(builder):
        return None
    subject = frames[-1].f_code.co_name
    if isinstance(cause, AssertionError) and subject != "_patch_lang":
        return None
    if isinstance(cause, IndexError) and subject == "create_gather":
        return None
    return _lacking(subject, cause)


#: Errors of Python that no compiled kernel raises: if a kernel compiles, they come from what only the interpreter does
#: with its source. Assertions and indices out of range are not among them.
_OF_PYTHON = (AttributeError, NameError, TypeError, ValueError, NotImplementedError)


def reason_if_compiled(error: BaseException) -> Reason | None:
    """Returns the reason for which the interpreter cannot run a kernel if the compiler accepts the kernel; None if
    ``error``, which the interpreter raised, is then still a failure of the kernel."""
    first, text = causes_of(error)[-1], raised_by_kernel(error)
    if not text or not isinstance(first, _OF_PYTHON):
        return None
    detail = f"{text} in Triton's interpreter, and the compiler accepts the kernel: it needs a device"
    return Reason(ReasonCode.NO_INTERPRETER, class_name(first), detail)


def _lacking(subject: str, why: object) -> Reason:
    detail = f"Triton's interpreter cannot do what the kernel asks for ({why}): it needs a device"
    return Reason(ReasonCode.NO_INTERPRETER, subject, detail)
