"""Faults planted in what the templates of no other suite generate: each must be caught by the checks of theirs."""

from __future__ import annotations

import functools

import pytest

from tests.inductor.planted_code import Fault, PlantedFaults, suite_test

case = functools.partial(suite_test, "test_inductor_templates")

CASES = {
    "gradients": case(
        "test_convolution_gradients",
        wanted=("input", "weight", "bias"),
        geometry="groups-strided",
        form="channels-last",
    ),
    "grouped": case("test_grouped_mm", kind="2d-3d", order=("row", "col")),
    "grouped along k": case("test_grouped_mm", kind="2d-2d", order=("row", "col")),
    "scaled groups": case("test_scaled_grouped_mm", kind="2d-3d", fast=True, groups=(37, 0, 27)),
    "persistent": case("test_mm_persistent_without_descriptors", order=("row", "col"), k=88),
    "depthwise": case("test_depthwise_convolution", stride=2, taps=3, dtype="fp16"),
}

TWICE = r"\1\2\n\1\2"

FAULTS = (
    Fault("weight gradient transposed", "gradients", r"tl\.trans\(matrix_x\)", "matrix_x", ("raises",)),
    Fault("x's padding dropped", "gradients", r"STRIDE_H - PADDING_H", "STRIDE_H", ("numerics/1",)),
    Fault(
        "x's mask dropped",
        "gradients",
        r"tl\.load\(x_ptrs, mask=mask_x, other=0\.0\)",
        "tl.load(x_ptrs)",
        ("numerics/1",),
    ),
    Fault("group of the weight's gradient", "gradients", r"group \* GROUP_IN_C +\* stride_xc", "0", ("numerics/1",)),
    Fault("taps exchanged", "gradients", r"i  = \(ij // KERNEL_W\)\.to", "i  = (ij % KERNEL_W).to", ("numerics/1",)),
    Fault("no test of divisibility", "gradients", r"\(yhn % STRIDE_H\) == 0", "yhn >= 0", ("numerics/0",)),
    Fault("dilation dropped", "gradients", r"j_k\[None, :\] \* DILATION_W", "j_k[None, :]", ("numerics/0",)),
    Fault("group of the input's gradient", "gradients", r"oc_k \+ group \* GROUP_OUT_C", "oc_k", ("numerics/0",)),
    Fault("launched twice", "gradients", r"^( *)(triton_tem_\w+\.run\(.*)$", TWICE, ("one launch of each",)),
    Fault("start of a group", "grouped", r"m_start_offset = m_end_offset$", "m_start_offset = 0", ("numerics",)),
    Fault("B of another group", "grouped", r"b_desc\.load\(\[g, ", "b_desc.load([0, ", ("numerics",)),
    Fault(
        "end of a group in the store", "grouped", r"\(offs_am\[:, None\] < m_size\)", "(offs_am[:, None] < M)", ("",)
    ),
    Fault(
        "k's mask of A", "grouped along k", r"a = tl\.where\(k_mask\[None, :\], a, 0\)", "a = a", ("numerics/special",)
    ),
    Fault("k's offset", "grouped along k", r"k_start_offset \+ k_block_offset", "k_block_offset", ("numerics",)),
    Fault("tiles of other programs", "grouped", r"tidx \+= NUM_SMS", "tidx += NUM_SMS + 1", ("numerics",)),
    Fault("scales of the first rows", "scaled groups", r"\+ m_scale_start_offset$", "+ 0", ("numerics",)),
    Fault("scales of the first group", "scaled groups", r"\+ g \* SCALE_B_STRIDE_G$", "+ 0", ("numerics",)),
    Fault("tiles left out", "persistent", r"num_tiles, NUM_SMS\)", "num_tiles, NUM_SMS + 1)", ("numerics",)),
    Fault(
        "k's mask", "persistent", r"a_mask = offs_k\[None, :\] < \(K - ", "a_mask = offs_k[None, :] < (K + 8 - ", ("",)
    ),
    Fault(
        "other NUM_SMS",
        "persistent",
        r"NUM_SMS : tl\.constexpr = 3$",
        "NUM_SMS : tl.constexpr = 4",
        ("source/NUM_SMS",),
    ),
    Fault("taps reversed", "depthwise", r"\+ k \* stride_wk", "+ (KERNEL_SIZE - 1 - k) * stride_wk", ("numerics",)),
    Fault("filter of the first channel", "depthwise", r"W \+ c_offs \* stride_wc", "W + c_offs * 0", ("numerics",)),
    Fault("stride dropped", "depthwise", r"l_offs \* CONV_STRIDE", "l_offs", ("numerics",)),
    Fault("channel's mask dropped", "depthwise", r"(nm3 & l_mask\[None, :, None\]) & cm3", r"\1", ("memory",)),
)


@pytest.mark.long(17)
class TestFaults(PlantedFaults):
    pass
