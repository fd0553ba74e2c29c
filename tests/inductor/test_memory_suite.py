"""Each check of the suite about memory fails where a fault is planted in the wrapper that Inductor generated."""

from __future__ import annotations

import re

import pytest

from conformance.inductor.checks import memory as checks
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
