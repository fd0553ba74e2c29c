"""Faults planted in what Inductor generates for Intel's GPUs: each must be caught. Then the checks of the source one by
one, and a process that generates for NVIDIA's GPUs afterwards."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest

from conformance.inductor.compile import deviceless_worker, provider, xpu
from conformance.inductor.compile.program import Generated, GeneratedKernel, Program
from conformance.inductor.topics.templates import check_source
from conformance.records import ReasonCode
from conformance.targets import Target
from tests.execution.sample_kernels import pool
from tests.inductor.planted_code import Fault, PlantedFaults, failed
from tests.inductor.sample_programs import SM90, product, task


def case(test: str, **parameters: Any) -> Any:
    def run(inductor: Any, target: Target) -> None:
        getattr(importlib.import_module("conformance.suites.test_inductor_xpu"), test)(inductor, **parameters)

    return run


CASES = {
    "addmm": case("test_products", operation="addmm", dtype="fp16", pick=0),
    "bmm": case("test_products", operation="bmm", dtype="fp32", pick=5),
    "descriptors": case("test_products_by_descriptors", operation="mm", pick=0),
}

FAULTS = (
    Fault("k's mask", "addmm", r"< \(K - k_idx", "< (K + 8 - k_idx", ("numerics",)),
    Fault(
        "last k left out",
        "addmm",
        r"range\(0, tl\.cdiv\(K, BLOCK_K\)\)",
        "range(1, tl.cdiv(K, BLOCK_K))",
        ("numerics",),
    ),
    Fault("bias dropped", "addmm", r"tmp1 = acc \+ tmp0", "tmp1 = acc", ("numerics",)),
    Fault("another batch", "bmm", r"idx_q_clamped\*stride_bq", "0", ("numerics",)),
    Fault("for cuda", "addmm", r"DeviceProperties\(type='xpu'", "DeviceProperties(type='cuda'", ("device",)),
    Fault("launched twice", "bmm", r"^( *triton_tem_\w+\.run\(.*)$", r"\1\n\1", ("launch",)),
    Fault("a tile left out", "descriptors", r"num_tiles, NUM_SMS", "num_tiles - 1, NUM_SMS", ("numerics",)),
)


class TestFaults(PlantedFaults):
    pass


KERNEL = "@template(DeviceProperties(type='xpu'))\nacc += tl.dot(a, b)\n"
MODULE = """
with torch.xpu._DeviceGuard(0):
    buf0 = empty_strided_xpu((40, 48), (48, 1), torch.float16)
    triton_tem_fused_mm_0.run(arg0_1, buf0)
"""
DESCRIPTORS = KERNEL + 2 * "d = triton.language.make_tensor_descriptor(\n"
CALL = "    extern_kernels.mm(arg0_1, out=buf0)\n"


def of(module: str = MODULE, source: str = KERNEL, kind: str = "template", more: tuple[str, ...] = ()) -> Generated:
    return Generated(modules=(*more, module), kernels=(GeneratedKernel("triton_tem_fused_mm_0", kind, source),))


@pytest.mark.parametrize(
    ("generated", "descriptors", "expected"),
    [
        (of(), False, []),
        (of(source=DESCRIPTORS), True, []),
        (of(source=DESCRIPTORS), False, ["loads"]),
        (of(), True, ["loads"]),
        (of(more=("",)), False, ["modules"]),
        (of(kind="pointwise"), False, ["templates", "device", "product"]),
        (of(MODULE + CALL), False, ["library"]),
        (of(MODULE.replace("torch.xpu", "torch.cuda")), False, ["guard"]),
        (of(MODULE.replace("strided_xpu", "strided_cuda")), False, ["allocation"]),
        (of(MODULE.replace(".run(", ".skip(")), False, ["launch"]),
        (of(source=KERNEL.replace("xpu", "cuda")), False, ["device"]),
        (of(source=KERNEL.replace("tl.dot", "tl.sum")), False, ["product"]),
    ],
)
def test_source(generated: Generated, descriptors: bool, expected: list[str]) -> None:
    assert failed(check_source(generated, descriptors=descriptors)) == expected


def both_vendors(program: Program, target: Target) -> list[Any]:
    """In a process of the pool: what is generated for NVIDIA's, Intel's and again NVIDIA's GPU."""
    first, other, again = (module.generate(program, target) for module in (deviceless_worker, xpu, deviceless_worker))
    same = first.kernels[0].source == again.kernels[0].source and again.kernels[0].artefact is not None
    return [same, "empty_strided_xpu(" in other.modules[0], other.kernels[0].error]


def test_a_process_generates_for_both() -> None:
    program = product(templates="^triton_mm_[0-9]", pick=0)
    result = pool().submit(task("both_vendors", program, SM90, module=__name__)).result()
    assert result.value is not None, result.error
    same, for_xpu, error = result.value
    assert (same, for_xpu) == (True, True)
    assert "no backend for Intel's GPUs" in error


def test_without_the_interpreter_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from conformance.judging.case_recorder import CaseEnded, CaseRecorder
    from conformance.judging.inductor_judge import Inductor

    harness: Any = SimpleNamespace(executor=SimpleNamespace(name="device"))
    monkeypatch.setattr(provider, "generate_for_xpu", functools.partial(pytest.fail, "it was generated"))
    with pytest.raises(CaseEnded) as ended:
        Inductor(harness, CaseRecorder("xpu")).generated_for_xpu(product())
    assert ended.value.reason.code is ReasonCode.NO_INTERPRETER
