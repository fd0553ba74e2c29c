"""Products whose operands repeat some k in registers are named, and those that hold each k are not."""

import pytest

from conformance.judging.code_faults import repeated_depths

CODE = """#mma = #ttg.nvidia_mma<{{versionMajor = {version}, versionMinor = 0, warpsPerCTA = [1, 4]}}>
tt.func @product() {{
  %acc = tt.dot %a, %b, %sum : tensor<16x{depth}xbf16, #ttg.dot_op<{{opIdx = 0, parent = #mma, kWidth = {width}}}>> * \
tensor<{depth}x64xbf16, #ttg.dot_op<{{opIdx = 1, parent = #mma, kWidth = {width}}}>> -> tensor<16x64xf32, #mma>
}}
"""


@pytest.mark.parametrize(
    ("depth", "width", "wrong"), [(16, 2, False), (16, 4, False), (16, 8, True), (32, 8, False), (32, 16, True)]
)
def test_each_k_may_stand_twice(depth, width, wrong):
    text = CODE.format(version=2, depth=depth, width=width)
    assert repeated_depths(text) == ({(depth, width)} if wrong else set())


def test_other_units_have_other_layouts():
    assert not repeated_depths(CODE.format(version=3, depth=16, width=8))
    amd = CODE.format(version=2, depth=16, width=8).replace("#ttg.nvidia_mma<", "#ttg.amd_mfma<")
    assert not repeated_depths(amd)
