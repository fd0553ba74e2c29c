"""The Triton templates that the installed torch registers, and which test of the suites judges each."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import torch

from conformance.inductor.compile.program import Unsupported
from conformance.records import Reason, ReasonCode

OPERATIONS, GEMM = "test_inductor_operations.py", "test_inductor_gemm.py"
TEMPLATES, ATTENTION = "test_inductor_templates.py", "test_inductor_attention.py"
SCALED = "test_inductor_scaled.py"

#: Template -> the test whose cases judge its code, as "suite::test". Names of all releases.
JUDGED: Mapping[str, str] = {
    "mm": f"{OPERATIONS}::test_dynamic_sizes",
    "bmm": f"{OPERATIONS}::test_baddbmm",
    "bmm_shared_a": f"{TEMPLATES}::test_bmm_of_one_matrix",
    "mm_plus_mm": f"{OPERATIONS}::test_mm_plus_mm",
    "mm_persistent_tma": f"{GEMM}::test_mm_persistent_tma",
    "mm_persistent_tdm": f"{GEMM}::test_persistent_tdm",
    "scaled_mm_device_tma": f"{GEMM}::test_scaled_mm_persistent_tma",
    "scaled_mm_device_tma_epilogue_scaling": f"{GEMM}::test_scaled_mm_persistent_tma",
    "blackwell_ws_persistent_device_tma": f"{GEMM}::test_mm_blackwell",
    "blackwell_ws_persistent_tma": f"{GEMM}::test_mm_blackwell",
    "convolution2d": f"{OPERATIONS}::test_conv2d",
    "convolution3d": f"{OPERATIONS}::test_conv3d",
    "convolution2d_bwd_input": f"{TEMPLATES}::test_convolution_gradients",
    "convolution2d_bwd_weight": f"{TEMPLATES}::test_convolution_gradients",
    "mm_persistent": f"{TEMPLATES}::test_mm_persistent_without_descriptors",
    "scaled_mm_device_tma_main_loop_scaling": f"{SCALED}::test_block_scales",
    "grouped_mm": f"{TEMPLATES}::test_grouped_mm",
    "scaled_grouped_mm": f"{TEMPLATES}::test_scaled_grouped_mm",
    "flex_attention": f"{ATTENTION}::test_attention",
    "flex_decoding": f"{ATTENTION}::test_few_queries",
    "flex_attention_backward": f"{ATTENTION}::test_gradients",
    "depthwise_conv1d": f"{TEMPLATES}::test_depthwise_convolution",
}

#: Template -> why no test judges it.
UNJUDGED: Mapping[str, str] = {
    "b2b_gemm_left": "two products in one kernel: a pass that is off unless one asks for it",
    "b2b_gemm_right": "two products in one kernel: a pass that is off unless one asks for it",
}


class NoSuchTemplate(Unsupported):
    """The installed torch has no such template."""


def registered() -> Mapping[str, Any]:
    """The Triton templates that torch registers when it is asked to lower, by name."""
    for module in ("torch._inductor.kernel", "torch._inductor.lowering"):
        importlib.import_module(module)
    algorithms = importlib.import_module("torch._inductor.select_algorithm")
    return dict(algorithms.TritonTemplate.all_templates)


def is_lowered(operation: str) -> bool:
    """True if the installed torch lowers the operation of ATen, and does not call ATen's kernel for it."""
    registered()
    packet = getattr(torch.ops.aten, operation, None)
    lowerings = importlib.import_module("torch._inductor.lowering").lowerings
    return packet is not None and packet.default in lowerings


def leaves_gradients_to_aten() -> bool:
    """True if the installed torch takes ATen's gradients of convolutions on NVIDIA's GPUs whatever backends are asked
    for. Releases from 2.14 on do, because of https://github.com/pytorch/pytorch/issues/187081. Nothing but a variable
    of the lowering tells."""
    lowering = importlib.import_module("torch._inductor.kernel.conv").convolution_backward_lowering
    return "disable_triton_conv_bwd" in inspect.unwrap(lowering).__code__.co_varnames


def without_test(names: Iterable[str]) -> list[str]:
    """A sentence for each of the templates ``names`` of which the tables say neither that a test judges it nor why
    none does."""
    return [
        f"no test of the suites judges the template {name}: add one, and its name to JUDGED of {__name__}, or to "
        "UNJUDGED why there is none"
        for name in names
        if name not in JUDGED and name not in UNJUDGED
    ]


@functools.cache
def text_of(name: str) -> str:
    """All text that the template ``name`` may write, in any of its branches, from what jinja2 compiled: releases keep
    the source in different places. Raises NoSuchTemplate."""
    template = registered().get(name)
    if template is None:
        detail = f"the installed torch registers no template {name}"
        raise NoSuchTemplate(Reason(ReasonCode.CAPABILITY, name, detail))
    return "\n".join(_texts(template.template.root_render_func.__code__))


def _texts(compiled: CodeType) -> Iterator[str]:
    for constant in compiled.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts(constant)
