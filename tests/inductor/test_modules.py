"""Reading generated modules: which kernels they hold, and what is refused."""

from __future__ import annotations

import pytest

from conformance.inductor.source.source_checks import function_of, kernels_of, kind_of

KERNEL = """
import triton
from torch._inductor.runtime import triton_heuristics

@triton_heuristics.{kind}(
    size_hints={{'x': 4}},
)
@triton.jit
def {function}(in_ptr0, XBLOCK):
    pass
"""


def kernel(kind: str, function: str) -> str:
    return KERNEL.format(kind=kind, function=function)


def module(**kernels: str) -> str:
    calls = (
        f"{name} = async_compile.triton('triton_', {source!r}, device_str='cuda')" for name, source in kernels.items()
    )
    return "\n".join(["async_compile = AsyncCompile()", *calls, "async_compile.wait(globals())"])


def test_kernels_are_named_as_the_module_names_them() -> None:
    template, pointwise = kernel("template", "triton_"), kernel("pointwise", "triton_")
    assert kernels_of(module(first=template, second=pointwise)) == {"first": template, "second": pointwise}
    assert kernels_of("x = 1") == {}


@pytest.mark.parametrize("kind", ["template", "pointwise", "persistent_reduction"])
def test_the_kind_is_the_decorator(kind: str) -> None:
    source = kernel(kind, "triton_poi_0") + "\n\ndef helper():\n    pass\n"
    assert (kind_of(source), function_of(source)) == (kind, "triton_poi_0")


@pytest.mark.parametrize(
    "source",
    ["def plain(x):\n    pass\n", kernel("template", "one") + kernel("template", "two")],
    ids=["undecorated", "two"],
)
def test_a_source_without_one_kernel_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="a kernel's source has one"):
        kind_of(source)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("async_compile.triton('triton_', 'x')", "0 of them assigned"),
        ("k = async_compile.triton('triton_', SOURCE)", "the source of k is not a literal text"),
        ("k = async_compile.triton('triton_')", "the source of k is not a literal text"),
        ("k = async_compile.triton('a', 'x')\nk = async_compile.triton('b', 'y')", "2 calls .* 1 of them assigned"),
    ],
)
def test_a_call_of_another_form_is_refused(source: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kernels_of(source)
