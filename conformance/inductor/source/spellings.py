"""The spellings in generated source of what the suites look for. Spellings move between releases, so each concept has
one pattern per dialect, and the dialect is read from the templates that the installed torch carries."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from conformance.inductor.source import templates
from conformance.inductor.source.templates import NoSuchTemplate
from conformance.records import Reason, ReasonCode


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
    names = templates.registered()
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
    text = templates.text_of(name)
    for spelling in DIALECTS:
        if re.search(spelling.marker, text) and _importable(spelling):
            return spelling
    detail = f"the template {name} speaks none of the dialects {', '.join(spelling.name for spelling in DIALECTS)}"
    raise NoSuchTemplate(Reason(ReasonCode.CAPABILITY, name, detail))


def _importable(spelling: Dialect) -> bool:
    """True if the installed Triton has the interface: templates may carry several, for several Tritons."""
    language = importlib.import_module("triton.language")
    return hasattr(language, "make_tensor_descriptor") == (spelling.name != "experimental")
