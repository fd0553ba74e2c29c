"""The spellings in generated source of what the suites look for, and the Triton templates that torch registers."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from conformance.inductor.compile.program import Unsupported
from conformance.records import Reason, ReasonCode


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


@dataclass(frozen=True)
class Dialect:
    """Regular expressions of one way to spell tensor descriptors in a generated kernel: where one is ``created``
    in the kernel, ``load`` and ``store`` through one. ``marker`` occurs in the text of a template that speaks it;
    ``stores_output`` says whether the output can have a descriptor."""

    name: str
    marker: str
    created: str
    load: str
    store: str
    stores_output: bool = True


#: The newest first: a torch that carries several templates is described by the first whose marker it has.
DIALECTS = (
    Dialect(
        "methods",
        r"\b\w+_desc\.load\(",
        r"\b(?:tl|triton\.language)\.make_tensor_descriptor\(",
        r"\b\w*desc\w*\.load\(",
        r"\b\w*desc\w*\.store\(",
    ),
    Dialect(
        "functions",
        r"tl\.load_tensor_descriptor\(",
        r"\b(?:tl|triton\.language)\.make_tensor_descriptor\(",
        r"\btl\.load_tensor_descriptor\(",
        r"\btma_descriptor\d+\.store\(",
    ),
    Dialect(
        "experimental",
        r"experimental_device_tensormap_create2d",
        r"\btriton\.language\.extra\.cuda\.experimental_device_tensormap_create2d\(",
        r"\btl\._experimental_descriptor_load\(",
        r"\btl\._experimental_descriptor_store\(",
        stores_output=False,
    ),
)

#: The larger of two values: by a helper of Inductor's up to torch 2.14, by Triton's own function later.
MAXIMUM = r"\b(?:triton_helpers|tl)\.maximum\("

#: The wrapper asserts sizes and strides of an operand, or, from torch 2.15 on, of all at once.
STRIDES_ASSERTED = r"assert_size_stride(?:_grouped)?\(\(?arg[0-9_]+, "

#: A store that is no descriptor's.
POINTER_STORE = r"\btl\.store\("


#: What a template is called, by release: the first that the installed torch registers is meant.
TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "mm": ("mm",),
    "bmm": ("bmm",),
    "bmm of one A": ("bmm_shared_a",),
    "persistent pointers": ("mm_persistent",),
    "persistent TMA": ("mm_persistent_tma",),
    "persistent TDM": ("mm_persistent_tdm",),
    "Blackwell": ("blackwell_ws_persistent_tma", "blackwell_ws_persistent_device_tma"),
    "scaled persistent TMA": ("scaled_mm_device_tma_epilogue_scaling", "scaled_mm_device_tma"),
    "scaled main loop": ("scaled_mm_device_tma_main_loop_scaling",),
    "grouped mm": ("grouped_mm",),
    "scaled grouped mm": ("scaled_grouped_mm",),
    "mm_plus_mm": ("mm_plus_mm",),
    "convolution 2d": ("convolution2d",),
    "convolution 3d": ("convolution3d",),
    "gradient of a convolution's input": ("convolution2d_bwd_input",),
    "gradient of a convolution's weight": ("convolution2d_bwd_weight",),
    "depthwise convolution 1d": ("depthwise_conv1d",),
    "attention": ("flex_attention",),
    "attention of few queries": ("flex_decoding",),
    "gradients of attention": ("flex_attention_backward",),
}


def template(kind: str) -> str:
    """The name of the installed torch's template of ``kind``, a key of :data:`TEMPLATES`. Raises NoSuchTemplate."""
    names = registered()
    for name in TEMPLATES[kind]:
        if name in names:
            return name
    detail = f"the installed torch registers no template for {kind}: none of {', '.join(TEMPLATES[kind])}"
    raise NoSuchTemplate(Reason(ReasonCode.CAPABILITY, kind, detail))


def only(name: str) -> str:
    """Returns the regular expression that choices of the template ``name`` match and those of no other: Inductor
    numbers its choices, such as ``triton_mm_12``."""
    return rf"^triton_{re.escape(name)}_\d+$"


def dialect(name: str) -> Dialect:
    """Returns the spelling of descriptors in the template ``name`` of the installed torch. Raises NoSuchTemplate."""
    text = text_of(name)
    for spelling in DIALECTS:
        if re.search(spelling.marker, text) and _importable(spelling):
            return spelling
    detail = f"the template {name} speaks none of the dialects {', '.join(spelling.name for spelling in DIALECTS)}"
    raise NoSuchTemplate(Reason(ReasonCode.CAPABILITY, name, detail))


def _importable(spelling: Dialect) -> bool:
    """True if the installed Triton has the interface: templates may carry several, for several Tritons."""
    language = importlib.import_module("triton.language")
    return hasattr(language, "make_tensor_descriptor") == (spelling.name != "experimental")
