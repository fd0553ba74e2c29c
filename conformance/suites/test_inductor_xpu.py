"""The code that Inductor generates for Intel's GPUs: the source, and its numbers in the interpreter.

The installed Triton cannot compile for one, so no case says anything about binaries.
"""

import pytest

from conformance.cases.generated_cases import Thin, generated
from conformance.inductor.compile.program import dense, program_of
from conformance.inductor.topics import templates as checks

GRAPHS = "conformance.inductor.topics.gemm"
OPERATIONS = ["mm", "addmm", "bmm", "baddbmm", "mm_plus_mm", "int_mm"]
TRITON = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON", "shape_padding": False}
#: Templates by how they load: the option that offers them, and their choices' names.
LOADS = {
    "pointers": ({}, "^triton_(mm|bmm|mm_plus_mm)_[0-9]"),
    "descriptors": ({"triton.enable_persistent_tma_matmul": True}, "^triton_mm_persistent_tma"),
}


def operands_of(operation, dtype):
    """Operands of products of 80 x 72 and 72 x 96: two tiles in a direction, and a rest of K for any of them."""
    batch = (2,) if operation in ("bmm", "baddbmm") else ()
    a, b = dense("a", *batch, 80, 72, dtype=dtype), dense("b", *batch, 72, 96, dtype=dtype)
    if operation == "mm_plus_mm":
        return [a, b, dense("c", 80, 72, dtype=dtype), dense("d", 72, 96, dtype=dtype)]
    return [a, b, dense("bias", *batch, *((80,) if batch else ()), 96, dtype=dtype)] if "add" in operation else [a, b]


def judge(inductor, operation, dtype, load, pick):
    """Generates one choice and judges its source and its numbers."""
    option, templates = LOADS[load]
    arguments = (("alpha", 1.0), ("beta", 1.0)) if "add" in operation else ()
    operands = operands_of(operation, "int8" if operation == "int_mm" else dtype)
    fields = {"arguments": arguments, "templates": templates, "pick": pick}
    program = program_of(f"{GRAPHS}:{operation}", operands, {**TRITON, **option}, **fields)
    compiled = inductor.generated_for_xpu(program)
    inductor.record(checks.check_source(compiled.generated, descriptors=load == "descriptors"))


@pytest.mark.slow(4)
@generated(vendors=(), sampled=True, operation=Thin(OPERATIONS), dtype=Thin(["fp16", "fp32"]), pick=Thin([0, 5, 11]))
def test_products(inductor, operation, dtype, pick):
    """Products by pointers, with configs of Intel's own lists."""
    judge(inductor, operation, dtype, "pointers", pick)


@pytest.mark.slow(4)
@generated(vendors=(), sampled=True, operation=Thin(["mm", "addmm"], quick=0), pick=Thin([0, 5], quick=0))
def test_products_by_descriptors(inductor, operation, pick):
    """Persistent products that load by descriptors, which Intel's GPUs read in blocks."""
    judge(inductor, operation, "fp16", "descriptors", pick)
