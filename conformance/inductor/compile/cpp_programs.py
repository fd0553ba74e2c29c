"""Programs that C++ runs in place of Python: AOT packages, and functions that are compiled with a C++ wrapper.

Loading a package can end the process. So each of these functions runs in a process of its own, by :func:`in_child`, and
how that ends is a part of the result.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.execution.compile.compile_worker import named
from conformance.inductor.compile.observation import ALWAYS, failure_of, known
from conformance.inductor.compile.program import Failure, Generated, Launches, Program
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.replay.exact import exact_verdicts, values_of
from conformance.inductor.tuning.child_process import environment, spawned
from conformance.records import Reason, ReasonCode, Verdict

#: Seconds that a child may take, which may compile C++: less than a case has.
BUILD_SECONDS = 270.0

#: For one program headers are not worth compiling ahead, and its wrapper is not worth optimising.
ONCE: Mapping[str, Any] = {
    "aot_inductor.precompile_headers": False,
    "aot_inductor.compile_wrapper_opt_level": "O0",
    "cpp_cache_precompile_headers": False,
}


@dataclass(frozen=True)
class CppProgram:
    """A ``program`` that is compiled for ``device``, "cpu" or "cuda". What is compiled holds its operands ``constants``
    with the values of ``seed``; the others are inputs."""

    program: Program
    constants: tuple[str, ...]
    device: str
    seed: int

    @property
    def options(self) -> dict[str, Any]:
        """Inductor's options for it."""
        return known({**ALWAYS, **ONCE, **dict(self.program.settings)})

    def inputs(self, tensors: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns the ``tensors``, by name, that are inputs."""
        return [tensor for name, tensor in tensors.items() if name not in self.constants]

    def module(self) -> torch.nn.Module:
        """Returns the program as a module, which holds the constants."""
        program = self.program
        constants = {name: value for name, value in self.placed().items() if name in self.constants}

        class ProgramModule(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name, value in constants.items():
                    self.register_buffer(name, value)

            def forward(self, *inputs: Tensor) -> Any:
                rest = iter(inputs)
                tensors = [
                    getattr(self, operand.name) if operand.name in constants else next(rest)
                    for operand in program.operands
                ]
                return named(program.graph)(*tensors, **dict(program.arguments))

        return ProgramModule()

    def placed(self) -> dict[str, Tensor]:
        """Returns all operands on the device, by name."""
        return {name: value.to(self.device) for name, value in values_of(self.program, self.seed, {}).items()}


@dataclass(frozen=True)
class InCpp(CompiledProgram):
    """A program that takes no constants: its ``function`` holds them."""

    constants: tuple[str, ...] = ()

    def call(
        self, tensors: Any, executor: Any, *, number: int = 0, observe: bool = True
    ) -> tuple[tuple[Tensor, ...], Launches]:
        """The outputs over the ``tensors`` of all operands; what is launched is not observed."""
        assert self.function is not None
        operands = zip(self.program.operands, tensors, strict=True)
        result = self.function(*(tensor for operand, tensor in operands if operand.name not in self.constants))
        return tuple(result) if isinstance(result, (tuple, list)) else (result,), ()


# --- in the child -----------------------------------------------------------------------------------------------------


def build(cpp: CppProgram, path: str) -> Any:
    """Writes the package ``path`` of the exported program, and returns the path."""
    inputs = tuple(cpp.inputs(cpp.placed()))
    with torch.no_grad():
        exported = torch.export.export(cpp.module(), inputs)
        return torch._inductor.aoti_compile_and_package(exported, package_path=path, inductor_configs=cpp.options)


def load(cpp: CppProgram, path: str) -> list[Verdict]:
    """Verdicts on the numbers of the package ``path``, once it is loaded."""
    return _verdicts(cpp, torch._inductor.aoti_load_package(path))


def compile_with_wrapper(cpp: CppProgram) -> tuple[str, list[Verdict]]:
    """The text of the one module that the program is compiled to, and verdicts on its numbers."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    modules: list[str] = []
    keep = mock.patch.object(GraphLowering, "save_output_code", staticmethod(modules.append))
    with torch.no_grad(), config.patch({**cpp.options, "cpp_wrapper": True}), keep:
        verdicts = _verdicts(cpp, torch.compile(cpp.module(), dynamic=False))
    (module,) = modules
    return module, verdicts


def _verdicts(cpp: CppProgram, function: Callable[..., Any]) -> list[Verdict]:
    torch.set_num_threads(1)
    compiled = InCpp(cpp.program, Generated(), function, cpp.constants)
    return exact_verdicts(compiled, SimpleNamespace(device=torch.device(cpp.device)), cpp.seed, {})


def _answer(connection: Any, function: Callable[..., Any], *arguments: Any) -> None:
    """Sends what ``function`` returns, or the failure that it raises."""
    try:
        connection.send(function(*arguments))
    except Exception as error:  # whatever it is, it is judged
        connection.send(failure_of(error))


# --- in the parent ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The end of a child: its exit code and the ``value`` that it sent, a :class:`Failure` if it raised. The exit code
    is negative for a signal, and None if the child was killed for being too slow."""

    code: int | None
    value: Any

    @property
    def failure(self) -> Failure | None:
        """Returns the error that was raised in the child."""
        return self.value if isinstance(self.value, Failure) else None


def in_child(folder: Path, function: Callable[..., Any], *arguments: Any) -> Outcome:
    """Calls ``function`` in a fresh process and returns how that ended. What torch and the compiler write stays below
    ``folder``."""
    with environment(TMPDIR=str(folder), TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor")):
        return Outcome(*spawned(_answer, function, *arguments, seconds=BUILD_SECONDS))


def no_compiler() -> Reason | None:
    """Returns the reason why nothing can be compiled by C++ here; None if it can."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, OSError) as error:
        detail = f"torch found no C++ compiler: {error}; install g++ or name another in the variable CXX"
        return Reason(ReasonCode.CAPABILITY, "C++ compiler", detail)
    return None


#: A library that needs C++'s standard library, and the names under which its dynamic section can ask for a shared one.
LIBRARY = "#include <string>\nstd::string text(int number) { return std::to_string(number); }\n"
STANDARD_LIBRARIES = (b"libstdc++.so", b"libc++.so")


@functools.cache
def not_loadable() -> Reason | None:
    """Returns the reason why no package that is built here can be loaded; None if one can, or if a small library cannot
    be built: then the package says why. To build a package takes a minute, and this a second."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "library.cpp").write_text(LIBRARY)
        command = [get_cpp_compiler(), "-shared", "-fPIC", "library.cpp", "-o", "library.so"]
        built = subprocess.run(command, cwd=folder, capture_output=True, timeout=BUILD_SECONDS, check=False)
        return static_standard_library(Path(folder, "library.so").read_bytes()) if built.returncode == 0 else None


def static_standard_library(library: bytes) -> Reason | None:
    """Returns the reason why ``library`` cannot be loaded if it contains its own C++ standard library. Together with
    that of torch's process, ``std::regex`` then ends the process. None if it needs a shared one."""
    if any(name in library for name in STANDARD_LIBRARIES):
        return None
    detail = (
        "the C++ compiler of this machine links the C++ standard library into what it builds; such a library ends "
        "torch's process when it is loaded (https://github.com/pytorch/pytorch/issues/109923): install the shared "
        "libstdc++ for development, or name another compiler in the variable CXX"
    )
    return Reason(ReasonCode.CAPABILITY, "shared C++ standard library", detail)
