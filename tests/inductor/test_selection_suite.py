"""Each check of the suite about Inductor's selection fails where a fault is planted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conformance.inductor.compile.program import Choice, Generated, Lowering, dense, program_of
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.topics import selection
from conformance.records import Verdict
from tests.inductor.planted_code import failed

#: A module that chooses between kernels for 64 and 4096 rows.
BY_SIZE = """
multi_kernel_0 = async_compile.size_hint_multi_kernel('multi_kernel_0', {
    ((64, 32), (32, 48), (64, 48)): triton_tem_fused_mm_0,
    ((4096, 32), (32, 48), (4096, 48)): triton_tem_fused_mm_1,
}, arg_index=arg_index)
"""
HINTS = (64, 4096)


def module(text: str, *more: str) -> Generated:
    return Generated(modules=(*more, text))


@pytest.mark.parametrize(
    ("generated", "hints", "expected"),
    [
        (module(BY_SIZE), HINTS, []),
        (module(BY_SIZE), (64, 256, 4096), ["branches"]),
        (module(BY_SIZE.replace("mm_1", "mm_0")), HINTS, ["different kernels"]),
        (module(BY_SIZE.replace("async_compile.size_hint_multi", "another")), HINTS, ["branches", "different kernels"]),
        (module(BY_SIZE, ""), HINTS, ["modules"]),
    ],
)
def test_branches(generated: Generated, hints: tuple[int, ...], expected: list[str]) -> None:
    assert failed(selection.check_branches(generated, hints)) == expected


@pytest.mark.parametrize(
    ("rows", "launched", "expected"),
    [
        (50, ["triton_tem_fused_mm_0"], []),
        (511, ["triton_tem_fused_mm_0"], []),
        (513, ["triton_tem_fused_mm_1"], []),
        (513, ["triton_tem_fused_mm_0"], ["dispatched"]),
        (50, ["triton_tem_fused_mm_0", "triton_tem_fused_mm_1"], ["dispatched"]),
        (50, [], ["dispatched"]),
    ],
)
def test_dispatch(monkeypatch: pytest.MonkeyPatch, rows: int, launched: list[str], expected: list[str]) -> None:
    operands = [dense("a", rows, 32), dense("b", 32, 48)]
    launches = tuple((name, (1, 1, 1)) for name in launched)
    monkeypatch.setattr(CompiledProgram, "call", lambda compiled, tensors, executor: ((), launches))
    compiled = CompiledProgram(program_of("package.module:mm", operands, {}), module(BY_SIZE))
    assert failed(selection.check_dispatch(compiled, SimpleNamespace(device=torch.device("cpu")))) == expected


CONFIG = {"BLOCK_M": 32, "num_warps": 4}
OWN, OTHER = Choice("triton_mm_0", "BLOCK_M=32, num_warps=4", "triton"), Choice("triton_mm_1", "BLOCK_M=64", "triton")
EXTERN = Choice("mm", "", "extern")
TEMPLATE_RUNS, LIBRARY_RUNS = "    triton_tem_fused_mm_0.run(arg0_1)\n", "extern_kernels.mm(arg0_1, out=buf0)\n"


def offering(*choices: Choice, text: str = TEMPLATE_RUNS) -> Generated:
    return Generated(modules=(text,), lowerings=(Lowering("mm", choices, choices, len(choices)),))


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (lambda: selection.check_only(offering(OWN), CONFIG), []),
        (lambda: selection.check_only(offering(OTHER), CONFIG), ["config"]),
        (lambda: selection.check_only(offering(OWN, OTHER), CONFIG), ["offered", "config"]),
        (
            lambda: selection.check_only(offering(EXTERN, text=LIBRARY_RUNS), CONFIG),
            ["offered", "config", "templates", "extern"],
        ),
        (lambda: selection.check_usual(offering(OWN, OTHER)), []),
        (lambda: selection.check_usual(offering(OWN, EXTERN)), ["offered"]),
        (lambda: selection.check_library(offering(OWN, EXTERN, text=LIBRARY_RUNS), ["mm"]), []),
        (lambda: selection.check_library(offering(OWN, EXTERN), ["mm"]), ["templates", "library"]),
        (lambda: selection.check_library(offering(OWN, text=LIBRARY_RUNS), ["mm"]), ["both/0"]),
        (lambda: selection.check_library(offering(OWN, EXTERN, text=LIBRARY_RUNS), ["addmm"]), ["library"]),
        (lambda: selection.check_library(Generated(modules=(LIBRARY_RUNS,)), ["mm"]), ["lowerings"]),
    ],
)
def test_what_is_offered(check: Callable[[], list[Verdict]], expected: list[str]) -> None:
    assert failed(check()) == expected


KEY = "((torch.float16, [48, 64], [64, 1]), (torch.float16, [64, 80], [80, 1]))+mm"
SHAPES = [(48, 64), (64, 80)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([(f"NVIDIA H100+{KEY}", KEY)], []),
        ([], ["looked up", "key", "device"]),
        ([(KEY, KEY)], ["device"]),
        ([(f"NVIDIA H100+{KEY[:-2]}bmm", f"{KEY[:-2]}bmm")], ["key"]),
        ([(f"NVIDIA H100+{KEY}", KEY.replace("48", "56"))], ["key", "device"]),
    ],
)
def test_keys(keys: list[tuple[str, str]], expected: list[str]) -> None:
    assert failed(selection.check_keys(keys, "mm", SHAPES)) == expected


def test_replaying_a_choice_by_size_takes_torchs_own() -> None:
    """The stand-in is torch's class: a kernel that is nearer by the ratio of the sizes is taken."""
    from conformance.inductor.replay.replay import _kernels_by_size

    ran: list[tuple[str, tuple[Any, ...]]] = []

    def kernel(name: str) -> Any:
        return SimpleNamespace(
            inductor_meta={"kernel_name": name}, run=lambda *arguments, **options: ran.append((name, arguments[1:]))
        )

    shapes = {((rows, 4), (rows, 4)): kernel(str(rows)) for rows in HINTS}
    index = {0: [slice(0, 1), slice(1, 2)], 1: [slice(0, 1), slice(2, 3)]}
    call = _kernels_by_size("multi_kernel_0", shapes, arg_index=index)
    for rows in (64, 500, 600, 4096):
        call.run(torch.empty(rows, 4), "grid of the first", "grid of the second")
    assert [name for name, _ in ran] == ["64", "64", "4096", "4096"]
    assert {arguments for _, arguments in ran} == {("grid of the first",), ("grid of the second",)}
