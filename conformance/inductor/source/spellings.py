"""How generated source spells what the suites look for. Spellings move between releases, so each concept has one
pattern per dialect, and the dialect is read from the templates that the installed torch carries."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from conformance.inductor.compile.program import Unsupported
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


class NoSuchTemplate(Unsupported):
    """The installed torch has no template of the kind."""


#: What a template is called, by release: the first that the installed torch registers is meant.
TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "mm": ("mm",),
    "bmm": ("bmm",),
    "persistent TMA": ("mm_persistent_tma",),
    "Blackwell": ("blackwell_ws_persistent_tma", "blackwell_ws_persistent_device_tma"),
    "scaled persistent TMA": ("scaled_mm_device_tma_epilogue_scaling", "scaled_mm_device_tma"),
    "mm_plus_mm": ("mm_plus_mm",),
    "convolution 2d": ("convolution2d",),
    "convolution 3d": ("convolution3d",),
}


def template(kind: str) -> str:
    """The name of the installed torch's template of ``kind``, a key of :data:`TEMPLATES`. Raises NoSuchTemplate."""
    known = _registered()
    for name in TEMPLATES[kind]:
        if name in known:
            return name
    detail = f"the installed torch registers no template for {kind}: none of {', '.join(TEMPLATES[kind])}"
    raise NoSuchTemplate(Reason(ReasonCode.CAPABILITY, kind, detail))


def only(name: str) -> str:
    """The regular expression that choices of the template ``name`` match and those of no other: Inductor numbers its
    choices, such as ``triton_mm_12``."""
    return rf"^triton_{re.escape(name)}_\d+$"


def dialect(name: str) -> Dialect:
    """How the template ``name`` of the installed torch spells descriptors. Raises NoSuchTemplate."""
    text = template_text(name)
    for spelling in DIALECTS:
        if re.search(spelling.marker, text) and _importable(spelling):
            return spelling
    detail = f"the template {name} speaks none of the dialects {', '.join(spelling.name for spelling in DIALECTS)}"
    raise NoSuchTemplate(Reason(ReasonCode.CAPABILITY, name, detail))


def _importable(spelling: Dialect) -> bool:
    """Whether the installed Triton has the interface: templates may carry several, for several Tritons."""
    language = importlib.import_module("triton.language")
    return hasattr(language, "make_tensor_descriptor") == (spelling.name != "experimental")


@functools.cache
def _registered() -> Mapping[str, Any]:
    """The Triton templates that torch registers when it is asked to lower, by name."""
    for module in ("torch._inductor.kernel", "torch._inductor.lowering"):
        importlib.import_module(module)
    algorithms = importlib.import_module("torch._inductor.select_algorithm")
    return dict(algorithms.TritonTemplate.all_templates)


def template_text(name: str) -> str:
    """All text that the template ``name`` may write, in any of its branches, from what jinja2 compiled: releases keep
    the source in different places. Raises NoSuchTemplate."""
    template = _registered().get(name)
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
