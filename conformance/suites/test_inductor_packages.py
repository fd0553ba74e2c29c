"""Products that C++ runs in place of Python: AOT packages and the C++ wrapper, on the CPU and on a device.

PyTorch's tests compare with eager, in the process that compiled. Here each package is built in one process, loaded in
another, which it may end, and judged bit by bit there. Operands are whole numbers, so that every order of summation
gives the same bits.
"""

import pytest

from conformance.cases.generated_cases import Thin, generated
from conformance.inductor.compile import cpp_programs
from conformance.inductor.compile.cpp_programs import CppProgram, in_child
from conformance.inductor.compile.program import dense, program_of
from conformance.inductor.replay.exact import values_of
from conformance.inductor.topics import packages as checks

GRAPHS = "conformance.inductor.topics.gemm"
#: A case takes some 20 s of a processor, so the default tier has one of each test.
OPERATIONS, DTYPES = Thin(["mm", "addmm", "bmm"], 0, 1), Thin(["fp32", "bf16", "fp16"], 0, 1)
#: Who computes the product: a C++ kernel that Inductor writes, which needs a constant operand, or the library. Which
#: vector instructions the processor has is found by compiling programs, and the library's calls have no use for any.
SETTINGS = {
    "cpp": {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"},
    "library": {"cpp.vec_isa_ok": False},
    "triton": {"max_autotune": True, "max_autotune_gemm_backends": "TRITON", "shape_padding": False},
}
#: What calls the product in a package's wrapper, and what the files of its kernels hold.
PRODUCTS = {
    "cpp": (r"^ *cpp_\w*mm\w*\(\(const", {".kernel.cpp": b"micro_gemm"}),
    "library": (r"aoti_torch_cpu_{operation}_out\(", {}),
    "triton": (r"^ *call_triton_tem_\w*\(", {".cubin": checks.ELF}),
}


def cpp_program(inductor, operation, dtype, kernels, device="cpu"):
    """A product of 40 x 32 and 32 x 48, whose second operand is constant. Ends the case as not run where nothing
    compiles C++."""
    reason = cpp_programs.no_compiler()
    if reason is not None:
        inductor.recorder.not_run(reason)
    batch = (3,) if operation == "bmm" else ()
    operands = [dense("a", *batch, 40, 32, dtype=dtype), dense("b", *batch, 32, 48, dtype=dtype)]
    if operation == "addmm":
        operands.append(dense("bias", 48, dtype=dtype))
    arguments = (("alpha", 1.0), ("beta", 1.0)) if operation == "addmm" else ()
    program = program_of(f"{GRAPHS}:{operation}", operands, SETTINGS[kernels], arguments=arguments)
    inductor.recorder.set(kernel=f"inductor/{operation}", options={"program": program})
    return CppProgram(program, ("b",), device, inductor.harness.settings.seed)


def package(inductor, cpp, folder):
    """The package of a program; the case ends if it cannot be built."""
    path = folder / "product.pt2"
    with inductor.recorder.timed("compile"):
        outcome = in_child(folder, cpp_programs.build, cpp, str(path))
    inductor.record([checks.check_child("built", outcome)])
    inductor.conclude()
    return path


def need_loadable(inductor):
    """Ends the case as not run where what this machine's compiler builds cannot be loaded."""
    reason = cpp_programs.not_loadable()
    if reason is not None:
        inductor.recorder.not_run(reason)


def judge_package(inductor, cpp, operation, kernels, folder):
    """Judges what the package of a program holds, and what it computes in another process."""
    need_loadable(inductor)
    path = package(inductor, cpp, folder)
    product, files = PRODUCTS[kernels]
    inductor.record(checks.check_content(path, cpp.device, product.format(operation=operation), files))
    inductor.conclude()
    with inductor.recorder.timed("run"):
        outcome = in_child(folder, cpp_programs.load, cpp, str(path))
    loaded = checks.check_child("loaded", outcome)
    inductor.record([loaded, *(outcome.value if loaded.passed else [])])


@pytest.mark.slow(40)
@generated(vendors=(), sampled=True, operation=OPERATIONS, dtype=DTYPES, kernels=Thin(["cpp", "library"], 0, 1))
def test_package_on_the_cpu(inductor, tmp_path, operation, dtype, kernels):
    """A package of C++ kernels, or of calls of the library."""
    cpp = cpp_program(inductor, operation, dtype, kernels)
    judge_package(inductor, cpp, operation, kernels, tmp_path)


@pytest.mark.slow(60)
@generated(vendors=("nvidia",), sampled=True, operation=OPERATIONS, dtype=Thin(["fp16", "bf16"], 0, 1))
def test_package_on_a_device(inductor, target, tmp_path, operation, dtype):
    """A package of Triton kernels, which holds their binaries."""
    inductor.need_device("a package of kernels, which are loaded", target)
    cpp = cpp_program(inductor, operation, dtype, "triton", "cuda")
    inductor.recorder.set(target=target, executor="device")
    judge_package(inductor, cpp, operation, "triton", tmp_path)


@pytest.mark.slow(50)
@generated(vendors=(), damage=Thin(["incomplete", "altered"], 0, 1))
def test_damaged_package(inductor, tmp_path, damage):
    """A package lacks a part, or a bit of a constant has changed, so that the checksum of its file is wrong. It is
    refused with an error and ends no process."""
    cpp = cpp_program(inductor, "mm", "fp32", "library")
    if damage == "altered":
        need_loadable(inductor)
    path, to = package(inductor, cpp, tmp_path), tmp_path / "damaged.pt2"
    for name, write in checks.INCOMPLETE.items() if damage == "incomplete" else [("altered", None)]:
        if write is not None:
            write(path, to)
        else:
            constant = values_of(cpp.program, cpp.seed, {})["b"]
            checks.altered(path, to, constant.numpy().tobytes())
        inductor.record([checks.check_refused(name, in_child(tmp_path, cpp_programs.load, cpp, str(to)))])


@pytest.mark.slow(40)
@generated(vendors=(), sampled=True, operation=OPERATIONS, dtype=DTYPES)
def test_cpp_wrapper_on_the_cpu(inductor, tmp_path, operation, dtype):
    """A compiled function whose C++ kernels are called by C++."""
    cpp = cpp_program(inductor, operation, dtype, "cpp")
    with inductor.recorder.timed("compile"):
        outcome = in_child(tmp_path, cpp_programs.compile_with_wrapper, cpp)
    ran = checks.check_child("ran", outcome)
    inductor.record([ran])
    if ran.passed:
        module, verdicts = outcome.value
        inductor.record([*verdicts, *checks.check_wrapper(module, PRODUCTS["cpp"][0])])
