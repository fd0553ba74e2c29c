"""Layouts are the maps that the hardware's documents name, and those that Triton's own C++ computes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conformance.ttgir.layouts import UnknownLayout, layout_of, map_of
from conformance.ttgir.register_maps import register_map, shared_map, tensor_memory_map

MMA2 = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
MMA3 = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>"
DMMA = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [8, 8]}>"


def mfma(version, shape, *, transposed=True, more=""):
    words = f"version = {version}, warpsPerCTA = [2, 2], instrShape = {shape}, isTransposed = {str(transposed).lower()}"
    return f"#ttg.amd_mfma<{{{words}{more}}}>"


def wmma(version, depth, *, transposed=True):
    words = f"isTranspose = {str(transposed).lower()}, ctaLayout = {{warp = [[0, 1], [1, 0]]}}"
    return f"#ttg.amd_wmma<{{version = {version}, {words}, instrShape = [16, 16, {depth}]}}>"


def operand(index, parent, width):
    return f"#ttg.dot_op<{{opIdx = {index}, parent = {parent}, kWidth = {width}}}>"


def registers(text, shape):
    return register_map(layout_of(text, {}), shape)


# Against the documents


def test_the_fragments_of_mma_m16n8k16():
    one_warp = MMA2.replace("[2, 2]", "[1, 1]")
    a = registers(operand(0, one_warp, 2), (16, 16)).elements("lane", "register")
    b = registers(operand(1, one_warp, 2), (16, 8)).elements("lane", "register")
    c = registers(one_warp, (16, 8)).elements("lane", "register")
    for lane in range(32):
        group, thread = divmod(lane, 4)
        for i in range(8):
            row = group + 8 * (i in (2, 3, 6, 7))
            assert a[lane, i] == row * 16 + thread * 2 + i % 2 + 8 * (i >= 4)
        for i in range(4):
            assert b[lane, i] == (thread * 2 + i % 2 + 8 * (i >= 2)) * 8 + group
            assert c[lane, i] == (group + 8 * (i >= 2)) * 8 + thread * 2 + i % 2


@pytest.mark.parametrize("transposed", [False, True])
def test_the_result_of_mfma_32x32(transposed):
    text = mfma(3, [32, 32, 8], transposed=transposed).replace("[2, 2]", "[1, 1]")
    held = registers(text, (32, 32)).elements("lane", "register")
    for lane, i in itertools.product(range(64), range(16)):
        row, column = 8 * (i // 4) + 4 * (lane // 32) + i % 4, lane % 32
        assert held[lane, i] == (column * 32 + row if transposed else row * 32 + column)


def test_the_operand_of_mfma_16x16x16():
    text = operand(0, mfma(3, [16, 16, 16]).replace("[2, 2]", "[1, 1]"), 4)
    held = registers(text, (16, 16)).elements("lane", "register")
    for lane, i in itertools.product(range(64), range(4)):
        assert held[lane, i] == lane % 16 * 16 + 4 * (lane // 16) + i


@pytest.mark.parametrize("version", [1, 2])
def test_the_result_of_wmma(version):
    text = wmma(version, 16, transposed=False).replace("[[0, 1], [1, 0]]", "[]")
    held = registers(text, (16, 16)).elements("lane", "register")
    for lane, i in itertools.product(range(32), range(8)):
        row = 2 * i + lane // 16 if version == 1 else 8 * (lane // 16) + i
        assert held[lane, i] == row * 16 + lane % 16


@pytest.mark.parametrize(("width", "bits"), [(128, 16), (128, 8), (64, 16), (32, 16), (128, 32), (0, 16)])
def test_tma_swizzles_bits_of_the_address(width, bits):
    columns = (width or 64) * 8 // bits
    text = f"#ttg.nvmma_shared<{{swizzlingByteWidth = {width}, transposed = false, elementBitWidth = {bits}}}>"
    held = shared_map(layout_of(text, {}), (16, columns)).elements("offset")
    for element in range(16 * columns):
        address = element * bits // 8
        swizzled = address ^ (((address >> 7) & (width // 16 - 1)) << 4) if width else address
        assert held[swizzled * 8 // bits] == element


def test_tensor_memory_of_64_rows_uses_half_of_the_lanes():
    text = "#ttng.tensor_memory_encoding<blockM = 64, blockN = 32, colStride = 1>"
    held = tensor_memory_map(layout_of(text, {}), (64, 32))
    assert held.of("row") == ((1, 0), (2, 0), (4, 0), (8, 0), (0, 0), (16, 0), (32, 0))


# Against Triton

DISTRIBUTED = [
    "#ttg.linear<{register = [[0, 1], [0, 2], [0, 4], [0, 8]], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 16]], "
    "warp = [[16, 0], [32, 0]], block = []}>",
    "#ttg.linear<{register = [[1, 0], [0, 8]], lane = [[0, 1], [0, 2], [0, 4], [2, 0], [4, 0]], "
    "warp = [[0, 0], [8, 0]], block = []}>",
    "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>",
    "#ttg.blocked<{sizePerThread = [4, 2], threadsPerWarp = [2, 16], warpsPerCTA = [2, 2], order = [0, 1]}>",
    "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [2, 2], order = [1, 0], "
    "CGALayout = [[1, 0]]}>",
    MMA2, MMA3, DMMA, operand(0, MMA2, 2), operand(1, MMA2, 2), operand(0, MMA2, 8), operand(1, MMA2, 8),
    operand(0, MMA2, 1), operand(1, MMA2, 4), operand(0, MMA3, 2), operand(0, MMA3, 4), operand(1, DMMA, 1),
    *(mfma(version, shape, transposed=t) for version in (1, 2, 3) for shape in ([32, 32, 8], [16, 16, 16])
      for t in (False, True)),
    *(mfma(4, shape, transposed=t) for shape in ([32, 32, 16], [16, 16, 32], [4, 64, 4])
      for t in (False, True)),
    mfma(4, [64, 4, 4]),
    mfma(3, [16, 16, 4], more=", elementBitWidth = 64"),
    mfma(4, [16, 16, 32], more=", tilesPerWarp = [2, 2]"),
    operand(0, mfma(3, [32, 32, 8]), 4), operand(1, mfma(3, [16, 16, 16]), 8), operand(0, mfma(4, [32, 32, 16]), 8),
    operand(1, mfma(4, [32, 32, 64]), 16), operand(0, mfma(4, [16, 16, 32], more=", tilesPerWarp = [2, 2]"), 8),
    *(wmma(version, depth, transposed=t) for version, depth in ((1, 16), (2, 16), (3, 32)) for t in (False, True)),
    operand(0, wmma(1, 16), 16), operand(1, wmma(2, 16), 8), operand(0, wmma(3, 32), 8), operand(1, wmma(3, 64), 16),
    operand(0, "#ttg.blocked<{sizePerThread = [2, 2], threadsPerWarp = [4, 8], warpsPerCTA = [2, 2], "
            "order = [1, 0]}>", 0),
]  # fmt: skip
SHARED = [
    *(f"#ttg.swizzled_shared<{{vec = {vec}, perPhase = {per}, maxPhase = {most}, order = {order}}}>"
      for vec, per, most in ((1, 1, 1), (8, 1, 8), (4, 2, 4)) for order in ([1, 0], [0, 1])),
    *(f"#ttg.nvmma_shared<{{swizzlingByteWidth = {width}, transposed = {t}, elementBitWidth = {bits}}}>"
      for width in (0, 32, 64, 128) for t in ("true", "false") for bits in (8, 16, 32)),
    "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 8, fp4Padded = true}>",
]  # fmt: skip
TENSOR_MEMORY = [
    *(f"#ttng.tensor_memory_encoding<blockM = {rows}, blockN = {columns}, colStride = {stride}>"
      for rows in (64, 128) for columns in (32, 64) for stride in (1, 2)),
    "#ttng.tensor_memory_scales_encoding<>",
]  # fmt: skip
SHAPES = [(16, 16), (32, 64), (64, 32), (128, 128)]
SLICES = ["#ttg.slice<{dim = 0, parent = " + MMA2 + "}>", "#ttg.slice<{dim = 1, parent = " + operand(0, MMA2, 2) + "}>"]


MEMORY_SHAPES = [(128, 64), (128, 128)]


def too_narrow(text, shape):
    """Returns True if the rows of ``shape`` are shorter than what ``text`` swizzles together."""
    layout = layout_of(text, {})
    row = shape[0 if layout.get("transposed") else 1] * layout.get("elementBitWidth", 16) // 8
    return layout.get("swizzlingByteWidth", 0) > row * (2 if layout.get("fp4Padded") else 1)


PAIRS = [
    *itertools.product(SLICES, [(size,) for size in (16, 32, 128)]),
    *itertools.product(DISTRIBUTED, SHAPES),
    *itertools.product(TENSOR_MEMORY, MEMORY_SHAPES),
    *((text, shape) for text, shape in itertools.product(SHARED, SHAPES) if not too_narrow(text, shape)),
]


@pytest.fixture(scope="module")
def triton_says():
    """Returns Triton's own map of each of PAIRS: the bases of its holders, or why there are none. Triton stops its
    process at some pairs. So a child asks it, and another one goes on after the pair at which it stopped."""
    answers, stops = [], 0
    while len(answers) < len(PAIRS):
        if stops == 10:
            answers += [{"none": f"Triton stopped at {stops} others"}] * (len(PAIRS) - len(answers))
            break
        asked = json.dumps(PAIRS[len(answers) :])
        child = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("triton_layouts.py"))],
            input=asked, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        answers += [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        if len(answers) < len(PAIRS):
            stops += 1
            answers.append({"none": "Triton stopped: " + " ".join(child.stderr.split())[-300:]})
    return dict(zip(PAIRS, answers, strict=True))


def compare(triton_says, mine, text, shape, *, zeros=True):
    answer = triton_says[text, shape]
    if "none" in answer:
        pytest.skip(answer["none"])
    theirs = map_of(shape, answer)
    if not zeros:
        mine, theirs = mine.without_zero_registers, theirs.without_zero_registers
    for holder, _ in mine.bases:
        assert mine.of(holder) == theirs.of(holder)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("text", DISTRIBUTED)
def test_registers_are_those_of_triton(triton_says, text, shape):
    # releases differ in whether registers that repeat another one are there
    compare(triton_says, registers(text, shape), text, shape, zeros=False)


@pytest.mark.parametrize("size", [16, 32, 128])
@pytest.mark.parametrize("text", SLICES)
def test_slices_are_those_of_triton(triton_says, text, size):
    compare(triton_says, registers(text, (size,)), text, (size,))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("text", SHARED)
def test_shared_memory_is_that_of_triton(triton_says, text, shape):
    layout = layout_of(text, {})
    if too_narrow(text, shape) or "Width = 0, transposed = true" in text:
        with pytest.raises(UnknownLayout, match=r"swizzled by|without a swizzle"):
            shared_map(layout, shape)
    else:
        compare(triton_says, shared_map(layout, shape), text, shape)


@pytest.mark.parametrize("shape", MEMORY_SHAPES, ids=str)
@pytest.mark.parametrize("text", TENSOR_MEMORY)
def test_tensor_memory_is_that_of_triton(triton_says, text, shape):
    compare(triton_says, tensor_memory_map(layout_of(text, {}), shape), text, shape)


# What is not known


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("#ttg.layout_of_the_future<{width = 3}>", "layout_of_the_future"),
        ("#ttg.nvidia_mma<{versionMajor = 9, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 8]}>", "9"),
        ("#ttg.dot_op<{opIdx = 1, parent = " + MMA3 + ", kWidth = 2}>", "operand 1"),
    ],
)
def test_an_unknown_layout_is_named(text, named):
    with pytest.raises(UnknownLayout, match=named):
        registers(text, (16, 16))


def test_a_map_that_lacks_elements_or_repeats_them():
    whole = map_of((2, 2), {"register": [(0, 1)], "lane": [(1, 0)]})
    assert whole.covers
    assert whole.repeats_by_zeros_alone
    assert not map_of((2, 2), {"register": [(0, 1)], "lane": [(0, 1)]}).covers
    twice = map_of((2, 2), {"register": [(0, 1), (1, 1)], "lane": [(1, 0)]})
    assert twice.covers
    assert not twice.repeats_by_zeros_alone
    assert np.array_equal(twice.elements("register"), [0, 1, 3, 2])
