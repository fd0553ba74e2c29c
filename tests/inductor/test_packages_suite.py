"""Each check of the suite about AOT packages fails where a fault is planted. Faults are in what a package holds, in its
constants, in its kernels, and in the process that loads it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from conformance.cases.case_table import Selection
from conformance.cases.generated_cases import GeneratedCases
from conformance.inductor.compile import cpp_programs
from conformance.inductor.compile.cpp_programs import CppProgram, Outcome, in_child
from conformance.inductor.compile.program import Failure, dense, program_of
from conformance.inductor.replay.exact import values_of
from conformance.inductor.topics import packages as checks
from conformance.records import Verdict
from conformance.suites import test_inductor_packages as suite
from tests.inductor.planted_code import failed

# --- how a child ended ------------------------------------------------------------------------------------------------

RAISED = Failure(("RuntimeError",), "RuntimeError: Failed to initialize zip archive")


@pytest.mark.parametrize(
    ("outcome", "passed", "text"),
    [
        (Outcome(0, "path"), True, "ended by itself"),
        (Outcome(0, None), False, "sent nothing"),
        (Outcome(0, RAISED), False, "zip archive"),
        (Outcome(-11, None), False, "ended by SIGSEGV"),
        (Outcome(None, None), False, "was killed"),
        (Outcome(7, None), False, "exit code 7"),
        (Outcome(-11, []), False, "ended by SIGSEGV"),
    ],
)
def test_child(outcome: Outcome, passed: bool, text: str) -> None:
    verdict = checks.check_child("loaded", outcome)
    assert verdict.passed is passed
    assert text in verdict.text


def test_a_child_that_crashes_is_a_failure_that_says_so(tmp_path: Path) -> None:
    verdict = checks.check_child("loaded", in_child(tmp_path, signal.raise_signal, signal.SIGSEGV))
    assert not verdict.passed
    assert "SIGSEGV" in verdict.text


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome(0, RAISED), []),
        (Outcome(0, []), ["refused/half"]),
        (Outcome(-11, None), ["refused/half"]),
        (Outcome(1, RAISED), ["refused/half"]),
        (Outcome(0, Failure(("KeyError", "RuntimeError"), "KeyError: 'model.so' of the package")), ["refused/half"]),
        (Outcome(0, Failure(("RuntimeError",), "RuntimeError: ")), ["refused/half"]),
    ],
)
def test_refused(outcome: Outcome, expected: list[str]) -> None:
    assert failed([checks.check_refused("half", outcome)]) == expected


# --- what a package holds ---------------------------------------------------------------------------------------------

WRAPPER = """
void AOTInductorModel::run_impl(
    cpp_fused_mm_0((const float*)(arg1_1.data_ptr()), (float*)(buf0.data_ptr()));
} // AOTInductorModel::run_impl
"""
CALL = WRAPPER.splitlines()[2]
FOLDER = "product/data/aotinductor/model"


def archive(tmp_path: Path, **changed: Any) -> Path:
    """A package with the parts that are checked, of which some are ``changed`` or, for None, missing."""
    parts = {"wrapper": WRAPPER, "library": checks.ELF, "kernel": "void cpp_fused_mm_0_micro_gemm(", "device": "cpu"}
    parts |= {"form": "pt2", **changed}
    files = {
        f"{FOLDER}/a.wrapper.cpp": parts["wrapper"],
        f"{FOLDER}/a.wrapper.so": parts["library"],
        f"{FOLDER}/b.kernel.cpp": parts["kernel"],
        f"{FOLDER}/a.wrapper_metadata.json": parts["device"] and json.dumps({"AOTI_DEVICE_KEY": parts["device"]}),
        "product/archive_format": parts["form"],
    }
    path = tmp_path / "product.pt2"
    with zipfile.ZipFile(path, "w") as package:
        for name, content in files.items():
            if content is not None:
                package.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"wrapper": None}, ["entry", "product"]),
        ({"wrapper": WRAPPER.replace("run_impl(", "run(")}, ["entry"]),
        ({"wrapper": WRAPPER.replace("cpp_fused_mm_0(", "aoti_torch_cpu_mm_out(")}, ["product"]),
        ({"wrapper": WRAPPER + CALL}, ["product"]),
        ({"wrapper": WRAPPER.replace(CALL, f"// {CALL}")}, ["product"]),
        ({"library": None}, ["library"]),
        ({"library": b""}, ["library"]),
        ({"kernel": None}, ["kernels.kernel.cpp"]),
        ({"kernel": "void cpp_fused_relu_0("}, ["kernels.kernel.cpp"]),
        ({"device": None}, ["metadata"]),
        ({"device": "cuda"}, ["metadata"]),
        ({"form": None}, ["archive"]),
    ],
    ids=str,
)
def test_content(tmp_path: Path, changed: dict[str, Any], expected: list[str]) -> None:
    product, files = suite.PRODUCTS["cpp"]
    assert failed(checks.check_content(archive(tmp_path, **changed), "cpu", product, files)) == expected


@pytest.mark.parametrize(
    ("library", "loadable"),
    [
        (checks.ELF, False),
        (checks.ELF + b"\0libstdc++.so.6\0", True),
        (checks.ELF + b"libc++.so.1", True),
    ],
)
def test_static_standard_library(library: bytes, loadable: bool) -> None:
    assert (cpp_programs.static_standard_library(library) is None) is loadable


@pytest.mark.parametrize(
    ("flags", "loadable"), [("", True), ("-static-libstdc++", False), ("-no-such-flag", True)], ids=str
)
def test_a_compiler_with_a_static_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, loadable: bool
) -> None:
    """A package that cannot be built at all says why itself."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ here")
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nexec g++ {flags} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", lambda: str(compiler))
    assert (cpp_programs.not_loadable.__wrapped__() is None) is loadable


def test_a_package_of_triton_kernels_holds_binaries(tmp_path: Path) -> None:
    product, files = suite.PRODUCTS["triton"]
    path = archive(tmp_path, wrapper=f"{WRAPPER}\n    call_triton_tem_fused_mm_0(arg1_1)", device="cuda")
    assert failed(checks.check_content(path, "cuda", product, files)) == ["kernels.cubin"]
    with zipfile.ZipFile(path, "a") as package:
        package.writestr(f"{FOLDER}/c.cubin", checks.ELF)
    assert failed(checks.check_content(path, "cuda", product, files)) == []


MODULE = f"void inductor_entry_impl(\n{CALL}\n}} // inductor_entry_impl\nvoid cpp_fused_mm_0_micro_gemm("


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (MODULE, []),
        (MODULE.replace("void inductor_entry_impl(", ""), ["entry"]),
        (MODULE.replace(CALL, ""), ["product"]),
        (MODULE.replace("micro_gemm", "relu"), ["kernel"]),
    ],
)
def test_wrapper(module: str, expected: list[str]) -> None:
    assert failed(checks.check_wrapper(module, suite.PRODUCTS["cpp"][0])) == expected


def test_altering_what_a_package_does_not_hold_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 times, once is required"):
        checks.altered(archive(tmp_path), tmp_path / "altered.pt2", b"a constant")


def test_a_test_without_vendors_has_no_target() -> None:
    cases: GeneratedCases = suite.test_damaged_package.conformance_cases
    assert cases.table(Selection((), "quick"), ()).rows == {}
    assert len(cases.table(Selection((), "default"), ()).rows) == 1
    table = cases.table(Selection((), "full"), ())
    assert table.names == ("damage",)
    assert table.rows == {"damage=incomplete": ("incomplete",), "damage=altered": ("altered",)}


# --- real packages, which take a C++ compiler -------------------------------------------------------------------------


#: In the environment of a process that runs the package: its kernel leaves out the last step of K.
FAULTY = "CONFORMANCE_FAULTY_KERNEL"


def judge(cpp: CppProgram, path: str, altered: str) -> list[list[Verdict]]:
    """In the child: builds the package with a kernel that obeys :data:`FAULTY`. Returns verdicts on it as it is, with
    the faulty kernel, and with another constant."""
    from torch._inductor.codecache import AotCodeCompiler

    compile_code: Callable[..., Any] = AotCodeCompiler.compile

    def compile_faulty(graph: Any, wrapper: str, kernel: str, *arguments: Any, **options: Any) -> Any:
        faulty = kernel.replace("k < K; ++k", f'k + (std::getenv("{FAULTY}") != nullptr) < K; ++k')
        assert faulty != kernel
        return compile_code(graph, wrapper, f"#include <cstdlib>\n{faulty}", *arguments, **options)

    with mock.patch.object(AotCodeCompiler, "compile", staticmethod(compile_faulty)):
        assert cpp_programs.build(cpp, path) == path
    (constant,) = cpp.constants
    checks.altered(Path(path), Path(altered), values_of(cpp.program, 0, {})[constant].T.numpy().tobytes())
    healthy = cpp_programs.load(cpp, path)
    with mock.patch.dict(os.environ, {FAULTY: "1"}):
        faulty = cpp_programs.load(cpp, path)
    return [healthy, faulty, cpp_programs.load(cpp, altered)]


@pytest.mark.long(30)
def test_an_altered_constant_a_faulty_kernel_and_a_crash(tmp_path: Path) -> None:
    """One package is judged as it is, with a kernel that is wrong, and with a bit of its constant changed. Last, its
    library's code is zeros."""
    reason = cpp_programs.no_compiler()
    if reason is not None:
        pytest.skip(str(reason))
    operands = [dense("a", 40, 32), dense("b", 32, 48)]
    # which vector instructions the processor has is found by compiling programs, and this product has no use for any
    settings = {**suite.SETTINGS["cpp"], **suite.SETTINGS["library"]}
    cpp = CppProgram(program_of(f"{suite.GRAPHS}:mm", operands, settings), ("b",), "cpu", 0)
    path = tmp_path / "product.pt2"
    verdicts = in_child(tmp_path, judge, cpp, str(path), str(tmp_path / "altered.pt2")).value
    assert isinstance(verdicts, list), verdicts
    assert [failed(part) for part in verdicts] == [[], ["numerics/0"], ["numerics/0"]]

    with zipfile.ZipFile(path) as package, zipfile.ZipFile(tmp_path / "zeros.pt2", "w") as zeros:
        for name in package.namelist():
            content = package.read(name)
            zeros.writestr(name, content[:4096] + bytes(len(content) - 4096) if name.endswith(".so") else content)
    outcome = in_child(tmp_path, cpp_programs.load, cpp, str(tmp_path / "zeros.pt2"))
    assert "this torch's code crashed" in checks.check_child("loaded", outcome).text


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder, exc

    def missing() -> str:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    reason = cpp_programs.no_compiler()
    assert reason is not None
    assert "no C++ compiler" in reason.detail
