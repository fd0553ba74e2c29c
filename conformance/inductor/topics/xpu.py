"""Checks of what Inductor generates for Intel's GPUs."""

from __future__ import annotations

from conformance.inductor.compile.program import Generated
from conformance.inductor.source.source_checks import exactly, extern_calls, in_source
from conformance.records import Verdict


def check_source(generated: Generated, *, descriptors: bool) -> list[Verdict]:
    """One module for an xpu, which guards that device, allocates on it and launches one kernel of a template; the
    kernel is for an xpu, multiplies, and loads by ``descriptors`` or by pointers."""
    module = generated.modules[-1]
    kernels = [kernel for kernel in generated.kernels if kernel.kind == "template"]
    source = "\n".join(kernel.source for kernel in kernels)
    return [
        Verdict("modules", len(generated.modules) == 1, f"{len(generated.modules)}, 1 required"),
        Verdict("templates", len(kernels) == 1, f"{[kernel.name for kernel in generated.kernels]}, one required"),
        Verdict("library", not extern_calls(module), f"{extern_calls(module)}, none allowed"),
        in_source("guard", exactly(1, r"with torch\.xpu\._DeviceGuard\(0\)"), module),
        in_source("allocation", "CHECK: = empty_strided_xpu(", module),
        in_source("launch", exactly(1, r"triton_tem_\w+\.run\("), module),
        in_source("device", exactly(1, r"DeviceProperties\(type='xpu'"), source),
        in_source("product", "CHECK: tl.dot(", source),
        in_source("loads", exactly(2 if descriptors else 0, r"make_tensor_descriptor\("), source),
    ]
