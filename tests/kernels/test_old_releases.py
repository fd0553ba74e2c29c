"""No kernel by pointers needs what older releases of Triton lack; kernels that need it are refused by its name."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
from triton.runtime.jit import JITFunction

from conformance import targets
from conformance.kernels import catalogue
from conformance.kernels.catalogue import meta_launch
from conformance.kernels.kernel import Kernel, NotApplicable
from conformance.records import ReasonCode

#: Names of ``triton.language`` that Triton 3.2 and 3.3 lack.
LATER = {"make_tensor_descriptor", "gather_descriptor"}
HOPPER = targets.find("sm_90")


def names_of_language(function: FunctionType, seen: set[Any]) -> Iterator[str]:
    """The names of ``tl`` that a device function looks up, and those that it calls. Triton up to 3.3 looks for all of
    them, also in code that a constant leaves out."""
    if function in seen:
        return
    seen.add(function)
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tl":
            yield node.attr
        called = function.__globals__.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(called, JITFunction):
            yield from names_of_language(called.fn, seen)


def looked_up(kernel: Kernel) -> set[str]:
    """The names of ``tl`` in all device functions of the kernel's first example on sm_90."""
    for dtype, config in itertools.product(kernel.dtype_names(), kernel.configs):
        with contextlib.suppress(NotApplicable):
            plan = kernel.plan(kernel.example(dtype, config), config, HOPPER, kernel.example_variant())
            steps = meta_launch(plan, HOPPER).steps
            return {name for step in steps for name in names_of_language(step.function.fn, set())}
    raise AssertionError(f"{kernel.name} takes no example on {HOPPER.id}")


def by_pointers(kernel: Kernel) -> bool:
    described = kernel.descriptors or getattr(kernel, "described", "")
    return not described and kernel.offered and kernel.family not in ("loads", "microscaled", "microscaled-grouped")


@pytest.mark.parametrize("name", [name for name, kernel in catalogue.own_kernels().items() if by_pointers(kernel)])
def test_a_kernel_by_pointers_names_nothing_that_older_releases_lack(name):
    assert not LATER & looked_up(catalogue.get(name))


def test_a_name_that_they_lack_is_seen():
    assert LATER & looked_up(catalogue.get("mm_persistent_tma"))


@pytest.mark.parametrize("name", ["microscaled_mm", "microscaled_mm_grouped", "microscaled_mm_batch_tiles"])
def test_packed_codes_are_refused_where_the_product_cannot_be_told_of_them(name, monkeypatch):
    def reason() -> Any:
        targets._capability.cache_clear()
        kernel = catalogue.get(name)
        return kernel.example_refusal(kernel.dtype_names()[0], kernel.configs[0], targets.find("sm_100"))

    assert reason() is None
    monkeypatch.setattr(targets, "_parameters", lambda function: ["lhs", "rhs"])
    refused = reason()
    targets._capability.cache_clear()
    assert (refused.code, refused.subject) == (ReasonCode.CAPABILITY, "scaled-packing")
    assert "tl.dot_scaled has no lhs_k_pack" in refused.detail


def test_persistent_programs_by_pointers_are_refused_where_no_loop_can_be_flat(monkeypatch):
    def reason() -> Any:
        targets._capability.cache_clear()
        kernel = catalogue.get("mm_persistent")
        return kernel.example_refusal("bf16", kernel.configs[0], targets.find("sm_80"))

    assert reason() is None
    monkeypatch.setattr(targets, "_parameters", lambda function: ["arg1", "num_stages"])
    refused = reason()
    targets._capability.cache_clear()
    assert (refused.code, refused.subject) == (ReasonCode.CAPABILITY, "flat-loop")
    assert "tl.range has no flatten" in refused.detail
