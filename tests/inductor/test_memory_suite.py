"""Each check of the suite about memory fails where a fault is planted in the wrapper that Inductor generated."""

from __future__ import annotations

import re
from unittest import mock

import pytest

from conformance.inductor.compile.deviceless_worker import generate
from conformance.inductor.compile.program import Decision, Generated, GeneratedKernel, dense, program_of
from conformance.inductor.topics import memory as checks
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.targets import find
from tests.inductor.planted_code import failed

#: A wrapper of two products in a row for two programs.
WRAPPER = """
class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((64, 64), (64, 1), torch.float16)
            workspace_3 = empty_strided_cuda((512, ), (1, ), torch.uint8)
            raw_stream0 = get_raw_stream(0)
            triton_tem_fused_mm_0.run(arg0_1, arg1_1, buf0, workspace_3, 2, 1, 1, stream=raw_stream0)
            del arg0_1
            buf1 = empty_strided_cuda((64, 64), (64, 1), torch.float16)
            workspace_4 = workspace_3; del workspace_3  # reuse
            triton_tem_fused_mm_0.run(buf0, arg1_1, buf1, workspace_4, 2, 1, 1, stream=raw_stream0)
            del workspace_4
            del buf0
        return (buf1, )
"""
SECOND = "workspace_4 = empty_strided_cuda((512, ), (1, ), torch.uint8)"


@pytest.mark.parametrize(
    ("pattern", "replacement", "expected"),
    [
        ("$^", "", []),
        (r"workspace_4 = workspace_3; del workspace_3  # reuse", SECOND, ["reused", "size", "freed"]),
        (r"\(512, \)", "(256, )", ["size"]),
        (r"torch\.uint8", "torch.float16", ["size"]),
        (r"buf1, workspace_4", "buf1, workspace_3", ["alive", "reused", "size"]),
        (r"run\(buf0, arg1_1, buf1, workspace_4", "run(workspace_4, arg1_1, buf1, workspace_4", ["one each", "apart"]),
        (r"(?<=torch\.float16\)\n)(?= *workspace_4)", "            buf2 = workspace_3  # reuse\n", []),
        (r"del workspace_4", "del arg1_1", ["freed"]),
        (r", workspace_4, 2", ", 2", ["one each"]),
        (r"triton_tem_fused_mm_0\.run\(buf0", "triton_poi_0.run(buf0", ["launches"]),
    ],
)
def test_workspaces(pattern: str, replacement: str, expected: list[str]) -> None:
    module = re.sub(pattern, replacement, WRAPPER)
    assert (module == WRAPPER) == (pattern == "$^")
    assert failed(checks.check_workspaces(module, launches=2, programs=2, descriptors=2)) == expected


def test_a_buffer_that_is_the_workspace_is_seen() -> None:
    """A name of the workspace that is another argument, too, as if the planner had taken it for free already."""
    early = "            buf1 = workspace_3  # reuse\n            workspace_4 = workspace_3; del workspace_3  # reuse"
    module = re.sub(r" *buf1 = .*\n *workspace_4 = .*", early, WRAPPER)
    assert module != WRAPPER
    assert failed(checks.check_workspaces(module, launches=2, programs=2, descriptors=2)) == ["apart"]


STREAMS = """
    def call(self, args):
        with torch.cuda._DeviceGuard(0):
            stream1 = get_external_object_by_index(1)
            with stream1:
                buf0 = empty_strided_cuda((64, 64), (64, 1), torch.float16)
                workspace_2 = empty_strided_cuda((512, ), (1, ), torch.uint8)
                triton_tem_fused_mm_0.run(arg0_1, arg1_1, buf0, workspace_2, 2, 1, 1, stream=raw_stream)
                del arg0_1
            with stream2:
                buf1 = empty_strided_cuda((64, 64), (64, 1), torch.float16)
                workspace_3 = empty_strided_cuda((512, ), (1, ), torch.uint8)
                triton_tem_fused_mm_0.run(arg2_1, arg3_1, buf1, workspace_3, 2, 1, 1, stream=raw_stream)
            return (buf0, buf1, )
"""


@pytest.mark.parametrize(
    ("pattern", "replacement", "expected"),
    [
        ("$^", "", []),
        (r"workspace_3 = .*", "workspace_3 = workspace_2; del workspace_2  # reuse", ["not shared"]),
        (r"buf1 = .*", "buf1 = reinterpret_tensor(buf0, (64, 64), (64, 1), 0); del buf0  # reuse", ["not shared"]),
        (r"with stream2:", "if True:", ["streams"]),
    ],
)
def test_streams(pattern: str, replacement: str, expected: list[str]) -> None:
    module = re.sub(pattern, replacement, STREAMS)
    assert (module == STREAMS) == (pattern == "$^")
    assert failed(checks.check_streams(module, ["stream1", "stream2"])) == expected


# --- layouts ----------------------------------------------------------------------------------------------------------

#: A sum, and the product that takes it by rows.
ROWS = """
    def call(self, args):
        buf0 = empty_strided_cuda((40, 64), (64, 1), torch.float16)
        triton_poi_fused_add_0.run(arg0_1, arg2_1, buf0, 2560, stream=raw_stream0)
        buf1 = empty_strided_cuda((40, 48), (48, 1), torch.float16)
        triton_tem_fused_add_mm_relu_1.run(buf0, arg1_1, buf1, 4, 1, 1, stream=raw_stream0)
"""
BY_ROWS, BY_COLUMNS = "(40, 64), (64, 1)", "(40, 64), (1, 40)"
LIBRARY = (
    re.sub(r" *triton_tem.*", "        extern_kernels.mm(buf0, arg1_1, out=buf1)", ROWS).replace(BY_ROWS, BY_COLUMNS)
    + "        triton_poi_fused_relu_2.run(buf1, 1920, stream=raw_stream0)\n"
)
KERNEL = "        xindex = idx_n + 64*idx_m\n        a = tl.load(A + (xindex))\n"


def note(strides: tuple[int, int], *, flexible: bool = True) -> dict[str, object]:
    return {"buffer": "buf0", "flexible": flexible, "strides": strides}


def laid_out(module: str, *notes: dict[str, object], source: str | None = KERNEL) -> Generated:
    kernels = (GeneratedKernel("k", "template", source),) if source is not None else ()
    return Generated(modules=(module,), kernels=kernels, notes=notes)


ONCE, AGAIN = note((64, 1)), note((64, 1), flexible=False)


@pytest.mark.parametrize(
    ("generated", "library", "expected"),
    [
        (laid_out(ROWS, ONCE), False, []),
        (laid_out(ROWS, ONCE, AGAIN), False, []),
        (laid_out(LIBRARY, note((1, 40)), source=None), True, []),
        (laid_out(ROWS), False, ["fixed once"]),
        (laid_out(ROWS, ONCE, ONCE), False, ["fixed once"]),
        (laid_out(ROWS, note((1, 40))), False, ["fixed once", "not changed"]),
        (laid_out(ROWS, ONCE, note((1, 40), flexible=False)), False, ["not changed"]),
        (laid_out(ROWS.replace(BY_ROWS, BY_COLUMNS), ONCE), False, ["allocated"]),
        (laid_out(ROWS, ONCE, source=KERNEL.replace("idx_n + 64*idx_m", "idx_m + 40*idx_n")), False, ["read"]),
        (laid_out(ROWS.replace("triton_tem_fused_add_mm_relu_1", "triton_poi_1"), ONCE), False, ["steps"]),
        (laid_out(LIBRARY, note((1, 40))), True, ["read"]),
        (laid_out(LIBRARY.replace(".mm(", ".bmm("), note((1, 40)), source=None), True, ["library"]),
        (laid_out(LIBRARY.replace("triton_poi_fused_relu", "relu"), note((1, 40)), source=None), True, ["steps"]),
    ],
)
def test_layout(generated: Generated, library: bool, expected: list[str]) -> None:
    strides = (1, 40) if library else (64, 1)
    assert failed(checks.check_layout(generated, strides=strides, library=library, epilogue=True)) == expected


@pytest.mark.parametrize(("blind", "expected"), [(False, []), (True, ["read", "library"])])
def test_a_scheduler_that_sees_no_conflict_is_caught(blind: bool, expected: list[str]) -> None:
    """The template, which was written for an operand by rows, is taken although the operand lies by columns."""
    from torch._inductor.scheduler import Scheduler

    operands = [dense(name, *shape, dtype="fp16", last=0) for name, shape in (("a", (40, 64)), ("c", (40, 64)))]
    operands.insert(1, dense("b", 64, 48, dtype="fp16"))
    settings = {**PINNED_SETTINGS, "max_autotune_gemm_backends": "ATEN,TRITON", "prologue_fusion": False}
    graph = "conformance.inductor.topics.memory:sum_mm"
    program = program_of(graph, operands, settings, decision=Decision.LAYOUTS_ARE_WATCHED)
    name = "_has_layout_conflict_for_template"
    sees = (lambda scheduler, node: False) if blind else getattr(Scheduler, name)
    with mock.patch.object(Scheduler, name, sees):
        generated = generate(program, find("sm_90"))
    assert failed(checks.check_layout(generated, strides=(1, 40), library=True, epilogue=False)) == expected
