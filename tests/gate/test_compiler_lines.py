"""The cause of a failed compilation is the compiler's own line, without what is only one case's."""

from __future__ import annotations

import pytest

from conformance.gate.runs.failure_causes import compiler_cause

WROTE = "\n--- the compiler wrote ---\n"
TRACEBACK = """
  File "/site/triton/compiler/compiler.py", line 327, in compile
    next_module = compile_ir(module, metadata)
"""


def died(output: str, signal: str = "SIGABRT") -> str:
    return f"the compiler died: {signal}{WROTE}{output}"


def assertion(folder: str, kernel: str, line: int = 402) -> str:
    return died(
        f"python: {folder}/lib/Dialect/Pipeliner.cpp:{line}: void mlir::pipeline(mlir::scf::ForOp, int): Assertion "
        f'`stage < numStages && "too late"\' failed.\nFatal Python error: Aborted\n\nCurrent thread 0x{line:x} (most '
        f'recent call first):\n  File "/site/triton/backends/nvidia/compiler.py", line 3 in make_ttgir\n# {kernel}'
    )


def ptxas(kernel: str, line: int, code: str = "C7602") -> str:
    text = (
        f"ptxas fatal   : ({code}) Insufficient registers (128) to compile instruction at line {line} in function "
        f"{kernel}. Try to compile with register target of 154 or higher.\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n\nRepro command: /a/ptxas /tmp/tmpab.ptx"
    )
    return (
        f"PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n{text}\n{TRACEBACK}{WROTE}{text}"
    )


def diagnostic(kernel: str, line: int, message: str, failing: str = "TritonGPUPipeline") -> str:
    wrote = (
        f"/home/u/{kernel}.py:{line}:8: error: {message}\n    acc = tl.dot(a, b)\n          ^\n"
        f"/home/u/{kernel}.py:{line}:8: note: see current operation: %{line} = tt.dot\n"
        f"/home/u/{kernel}.py:9:0: error: Failures have been detected while processing an MLIR pass pipeline\n"
        f"/home/u/{kernel}.py:9:0: note: Pipeline failed while executing [`{failing}` on 'builtin.module' operation]"
    )
    return f"RuntimeError: PassManager::run failed\n{TRACEBACK}{WROTE}{wrote}"


def front_end(kernel: str, line: int, message: str) -> str:
    return f"mm: CompilationError: at {line}:4:\ndef {kernel}(a_ptr):\n    ^\n{message}\n{TRACEBACK}"


def segfault(frame: str, address: int = 0) -> str:
    stack = (
        f"Fatal Python error: Segmentation fault\n\nThread 0x{address:x} (most recent call first):\n"
        '  File "/site/conformance/worker.py", line 3 in _receive\n\nCurrent thread 0x00 (most recent call first):\n'
        f'  File "/home/{address}/triton/x/triton/backends/amd/compiler.py", line {address} in {frame}'
    )
    return died(stack, "SIGSEGV")


NATIVE = (
    " #0 0x00007f12 llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) (/a/libtriton.so+0x12)\n"
    " #1 0x00007f13 llvm::sys::RunSignalHandlers() (/a/libtriton.so+0x13)\n"
    " #2 0x00007f14 __restore_rt (/lib64/libc.so.6+0x14)\n"
    " #3 0x00007f15 mlir::triton::AMD::Membar::update(mlir::Operation*) (/a/libtriton.so+0x15)"
)
STATED = [
    (assertion("/src/llvm", "k"), 'Assertion `stage < numStages && "too late"\' failed at Pipeliner.cpp:402'),
    (died("oops\nUNREACHABLE executed at /a/b/Lower.cpp:77!"), "unreachable code at Lower.cpp:77: oops"),
    (
        died("LLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.mfma.f32.4x4x1f32"),
        "LLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.mfma.f32.4x4x1f32",
    ),
    (
        ptxas("k", 9),
        "ptxas: (C7602) Insufficient registers (N) to compile instruction at line N in function F. Try to compile with "
        "register target of N or higher.",
    ),
    (
        diagnostic("k", 12, "'tt.dot' op has tensor<64x32xf16, #mma<{v = 2}>> and %arg3"),
        "pass TritonGPUPipeline failed: 'tt.dot' op has tensor<> and %V",
    ),
    (f"RuntimeError: no{WROTE}ld.lld: error: undefined symbol: __ocml_exp", "error: undefined symbol: __ocml_exp"),
    (front_end("k", 1, "ValueError('fp8 lacks')"), "CompilationError: ValueError('fp8 lacks')"),
    (
        died("terminate called after throwing an instance of 'std::out_of_range'\n  what():  map::at"),
        "uncaught std::out_of_range: map::at",
    ),
    (died("double free or corruption (!prev)"), "double free or corruption (!prev)"),
    (segfault("make_llir"), "SIGSEGV in make_llir (triton/backends/amd/compiler.py)"),
    (died(NATIVE, "SIGSEGV"), "SIGSEGV in mlir::triton::AMD::Membar::update"),
    (died("", "SIGSEGV"), "SIGSEGV"),
    ("the process died while it ran this case in stage run", None),
    ("KeyError: 'a word'", None),
    ("", None),
]


@pytest.mark.parametrize(("output", "cause"), STATED, ids=range(len(STATED)))
def test_cause_is_the_compilers_own_line(output, cause):
    assert compiler_cause(output) == cause


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (assertion("/src/llvm", "mm"), assertion("/build/7/llvm", "bmm")),
        (ptxas("mm", 998), ptxas("gemm_persistent", 1701)),
        (
            diagnostic("mm", 12, "'tt.dot' op has tensor<64x32xf16, #blocked> and %1"),
            diagnostic("bmm", 40, "'tt.dot' op has tensor<128x256xbf16, #blocked1> and %arg4"),
        ),
        (front_end("mm", 1, "ValueError('no')"), front_end("bmm", 23, "ValueError('no')")),
        (segfault("make_llir", 7), segfault("make_llir", 33)),
        (died("LLVM ERROR: bad node 0x55ab t12: i32"), died("LLVM ERROR: bad node 0x91 t7: i32")),
    ],
)
def test_what_varies_from_case_to_case_splits_no_group(one, other):
    assert one != other
    assert compiler_cause(one) == compiler_cause(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (assertion("/a/b", "mm", 402), assertion("/a/b", "mm", 403)),
        (ptxas("mm", 998), ptxas("mm", 998, "C7600")),
        (diagnostic("mm", 12, "it failed"), diagnostic("mm", 12, "it failed", "TritonAMDGPUBlockPingpong")),
        (diagnostic("mm", 12, "it failed"), diagnostic("mm", 12, "it is not supported")),
        (front_end("mm", 1, "ValueError('no')"), front_end("mm", 1, "ValueError('other')")),
        (segfault("make_llir"), segfault("make_ttgir")),
        (died("", "SIGSEGV"), died("", "SIGABRT")),
    ],
)
def test_other_causes_stay_apart(one, other):
    assert compiler_cause(one) != compiler_cause(other)


def test_a_long_output_takes_no_time():
    for sign in ("error: ", 'File "/triton/', "a:1: Assertion `", "tensor<" * 9, "#0 0x1 mlir::", "at /a/b/c/d"):
        compiler_cause("CompilationError: at 1:0:\n" + sign * 5000 + "\n" + (sign + "\n") * 3000)
