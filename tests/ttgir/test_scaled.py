"""Block-scaled operands in the places where a release of Triton leaves them."""

from types import SimpleNamespace

import numpy as np
import pytest

from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.regions import prepared
from conformance.ttgir.scaled import MAKERS, in_lines
from conformance.ttgir.text import Operation, Region


def test_scales_as_the_instruction_reads_them_become_lines():
    """Row r and column c lie at (r // 128, c // 4, r % 32, r % 128 // 32, c % 4)."""
    lines = np.arange(256 * 8).reshape(256, 8)
    block = np.empty((2, 2, 32, 4, 4), int)
    for row, column in np.ndindex(lines.shape):
        block[row // 128, column // 4, row % 32, row % 128 // 32, column % 4] = lines[row, column]
    for shape in (block.shape, (2, 2, 2, 256)):
        assert np.array_equal(in_lines(block.reshape(shape), 256), lines)


def loaded(name: str, types: str) -> np.ndarray:
    """Returns the result of the operation ``name`` for 2 x 2 bytes, which hold the codes 1 to 8, two neighbours of a
    line each."""
    memory = SimpleNamespace(read=lambda: np.array([[0x21, 0x43], [0x65, 0x87]], np.uint8))
    operation = Operation(name, ["%loaded"], f"%codes : {types}", "here")
    names = {"%codes": memory}
    for step in prepared(Region(operations=[operation])):
        step(SimpleNamespace(touch=lambda *_, **__: None), names)
    return names["%loaded"]


@pytest.mark.parametrize("name", ["tranposed", "transposed"])
def test_codes_packed_along_rows_are_loaded_packed_along_k(name):
    """Releases spell it in two ways."""
    values = loaded(f"amdg.local_load_packed_{name}", "!ttg.memdesc<2x2xi8, #s, #smem> -> tensor<1x4xi8, #l>")
    assert values.astype(np.uint8).tolist() == [[0x51, 0x62, 0x73, 0x84]]


def test_a_packed_load_of_other_sizes_is_not_known():
    with pytest.raises(UnknownOperation, match="local_load_packed_transposed"):
        loaded("amdg.local_load_packed_transposed", "!ttg.memdesc<2x2xi8, #s, #smem> -> tensor<2x2xi8, #l>")


def test_a_batch_of_products():
    """Each matrix has scales of its own, for blocks of two depths."""
    text = "%a scale %s, %b scale %t, %c lhs = e2m1 rhs = e4m3 : tensor<2x1x2xi8> -> tensor<2x1x1xf32>"
    _, compute = MAKERS["tt.dot_scaled"](Operation("tt.dot_scaled", ["%d"], text, "here"))
    codes = np.array([[[0x22, 0x44]], [[0x21, 0x43]]], np.int8)  # 1 1 2 2, and 0.5 1 1.5 2
    b = np.array([[[1], [2], [3], [4]], [[5], [6], [7], [8]]], np.float32)
    of_codes = np.array([[[127, 128]], [[128, 127]]], np.uint8).view(np.int8)
    of_b = np.array([[[127, 127]], [[127, 126]]], np.uint8).view(np.int8)
    result = compute(codes, b, np.ones((2, 1, 1), np.float32), of_codes, of_b)
    assert result.tolist() == [[[1 + 3 + 2 * 14]], [[1 + 2 * 8.5 + (10.5 + 16) / 2]]]
