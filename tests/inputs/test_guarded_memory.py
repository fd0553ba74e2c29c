import dataclasses

import pytest
import torch

from conformance.families.gemm.problem import Bias, addmm, mm
from conformance.inputs.guarded_memory import GuardedTensor
from conformance.numerics.rounding import bits
from conformance.problems import BASE_ALIGNMENT, DTYPES, Layout, Operand, itemsize

LAYOUTS = [
    Layout(),
    Layout("col"),
    Layout(pad=8),
    Layout("col", pad=3),
    Layout(step=2),
    Layout("col", pad=5, step=3, offset=1),
    Layout(offset=7),
]


def operand_of(dtype="fp16", layout=LAYOUTS[0], shape=(10, 24)):
    return Operand("a", shape, layout.strides(shape), dtype, layout.offset)


def values_of(operand):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-7, 8, operand.shape, generator=generator).to(DTYPES[operand.dtype])


def place(values, operand, pattern=0):
    return GuardedTensor.place(values, operand, device="cpu", pattern=pattern)


def bytes_at(guarded, element, count=1):
    """Bytes at a signed element offset from the operand's first element."""
    size = itemsize(guarded.operand.dtype)
    memory = torch.empty(0, dtype=torch.uint8).set_(guarded.view.untyped_storage())
    start = guarded.view.storage_offset() * size + element * size
    return memory[start : start + count]


@pytest.mark.parametrize("pattern", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
@pytest.mark.parametrize("dtype", DTYPES)
def test_placed_as_asked(dtype, layout, pattern):
    operand = operand_of(dtype, layout)
    values = values_of(operand)
    placed = place(values, operand, pattern)
    assert tuple(placed.view.shape) == operand.shape
    assert placed.view.stride() == operand.strides
    assert (placed.view.data_ptr() - operand.offset * itemsize(dtype)) % BASE_ALIGNMENT == 0
    assert torch.equal(bits(placed.view.contiguous()), bits(values))
    assert placed.violations() == []


def test_nan_payloads_survive():
    operand = operand_of("fp32", shape=(2, 2))
    values = torch.tensor([[0x7FC01234, 0x7F800001], [-1, 0]], dtype=torch.int32).view(torch.float32)
    assert torch.equal(bits(place(values, operand).view), bits(values))


def test_output_is_filled_with_a_sentinel_of_its_pattern():
    operand = operand_of("bf16", Layout(pad=8))
    first, second = (place(None, operand, pattern) for pattern in (0, 1))
    assert not (bits(first.view) == bits(second.view)).any()
    for placed in (first, second):
        placed.view.fill_(1.0)
        assert placed.violations() == []


PLACES = {
    "before": (-1, "before"),
    "far before": (-2000, "before"),
    "after": (10 * 32 - 8, "after"),
    "far after": (10 * 32 + 1500, "after"),
    "first gap": (24, "gap"),
    "last gap": (8 * 32 + 31, "gap"),
}


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("name", PLACES)
def test_one_byte_outside_is_seen(name, output):
    operand = operand_of("fp16", Layout(pad=8))
    offset, where = PLACES[name]
    for pattern in (0, 1):
        placed = place(None if output else values_of(operand), operand, pattern)
        bytes_at(placed, offset).bitwise_xor_(1)
        (violation,) = placed.violations()
        assert (violation.operand, violation.where, violation.count, violation.offset) == ("a", where, 1, offset)
        if where == "gap":
            assert violation.lines == (offset // 32, offset // 32)
            assert violation.positions == (offset % 32, offset % 32)


def test_a_change_of_an_input_is_seen_and_of_an_output_is_not():
    operand = operand_of("fp32", Layout("col", pad=2))
    placed = place(values_of(operand), operand)
    bytes_at(placed, 12 + 3).bitwise_xor_(1)
    (violation,) = placed.violations()
    assert (violation.where, violation.lines, violation.positions) == ("inside", (1, 1), (3, 3))
    placed = place(None, operand)
    bytes_at(placed, 12 + 3).bitwise_xor_(1)
    assert placed.violations() == []


def test_a_spill_over_every_row_is_one_violation():
    operand = operand_of("fp16", Layout(pad=8))
    placed = place(None, operand)
    torch.as_strided(placed.view, (9, 2), (32, 1), placed.view.storage_offset() + 24).fill_(0.0)
    (violation,) = placed.violations()
    assert (violation.where, violation.lines, violation.positions) == ("gap", (0, 8), (24, 25))
    assert violation.count == 36
    assert str(violation) == (
        "36 bytes changed in the gaps of 'a', first at element offset 24 (lines 0..8, positions 24..25)"
    )


def test_gaps_between_strided_elements_are_guarded():
    operand = operand_of("e4m3", Layout(step=2))
    placed = place(None, operand)
    bytes_at(placed, 5).bitwise_xor_(1)
    assert [v.where for v in placed.violations()] == ["gap"]


@pytest.mark.parametrize("dtype", [*DTYPES])
@pytest.mark.parametrize("position", [-1, 24, 10 * 32])
def test_a_read_outside_shows_in_one_of_the_runs(dtype, position):
    """A kernel that adds one element from outside gives two results, for every dtype."""
    operand = operand_of(dtype, Layout(pad=8))
    values = values_of(operand)
    results = []
    for pattern in (0, 1):
        view = place(values, operand, pattern).view
        stray = torch.as_strided(view, (1,), (1,), view.storage_offset() + position)
        results.append(view.double().sum() + stray.double().sum())
    assert not torch.equal(bits(results[0]), bits(results[1]))
    right = values.double().sum()
    assert not torch.equal(results[0], right)
    assert not torch.equal(results[1], right)


def test_poison_differs_as_integers_too():
    views = [place(values_of(operand_of()), operand_of(), pattern) for pattern in (0, 1)]
    stray = [bytes_at(placed, -1).view(torch.int8).item() for placed in views]
    assert stray[0] != stray[1]
    sentinel = [bytes_at(place(None, operand_of(), pattern), 0).item() for pattern in (0, 1)]
    assert len({*stray, *sentinel}) == 4, "poison copied from an input shows in the output's surroundings"


@pytest.mark.parametrize("shape", [(), (0, 8), (8, 0), (0, 0), (0,), (1, 1), (7,)])
def test_scalars_vectors_and_empty_operands(shape):
    strides = {0: (), 1: (1,), 2: (max(1, shape[-1]) if shape else 1, 1)}[len(shape)]
    operand = Operand("scale_a", shape, strides, "fp32")
    for values in (None, torch.ones(shape)):
        placed = place(values, operand)
        assert tuple(placed.view.shape) == shape
        assert placed.violations() == []
        bytes_at(placed, -1).bitwise_xor_(1)
        assert [v.where for v in placed.violations()] == ["before"]
        bytes_at(placed, -1).bitwise_xor_(1)
        bytes_at(placed, operand.span).bitwise_xor_(1)
        assert [v.where for v in placed.violations()] == ["after"]


def test_broadcast_operands_hold_one_element():
    operand = Operand("bias", (6, 8), (0, 1), "fp16")
    values = torch.arange(8).half().expand(6, 8)
    placed = place(values, operand)
    assert placed.view.stride() == (0, 1)
    assert torch.equal(placed.view, values)
    bytes_at(placed, 8).bitwise_xor_(1)
    assert [v.where for v in placed.violations()] == ["after"]


def test_far_strides_cost_only_their_bands():
    pitch = 1 << 29
    operand = Operand("a", (8, 40), (pitch, 1), "fp16", offset=1)
    assert operand.span > 2**31
    values = values_of(operand)
    placed = place(values, operand, 1)
    assert torch.equal(placed.view, values)
    assert placed.violations() == []
    bytes_at(placed, 3 * pitch + 40).bitwise_xor_(1)
    bytes_at(placed, 5 * pitch - 7).bitwise_xor_(1)
    (violation,) = placed.violations()
    assert (violation.where, violation.count, violation.offset) == ("gap", 2, 3 * pitch + 40)
    assert violation.lines == (3, 4)
    placed = place(None, operand)
    placed.view.zero_()
    assert placed.violations() == []
    bytes_at(placed, 7 * pitch + 40).bitwise_xor_(1)
    bytes_at(placed, -1).bitwise_xor_(1)
    assert [v.where for v in placed.violations()] == ["before", "after"]


def test_far_strides_of_columns():
    operand = Operand("b", (24, 5), (1, 1 << 26), "bf16")
    values = values_of(operand)
    placed = place(values, operand)
    assert torch.equal(placed.view, values)
    bytes_at(placed, 2 * (1 << 26) + 23).bitwise_xor_(1)
    (violation,) = placed.violations()
    assert (violation.where, violation.lines, violation.positions) == ("inside", (2, 2), (23, 23))


def test_every_operand_of_a_problem_can_be_placed():
    problem = addmm(20, 30, 40, bias=Bias("m1", layout=Layout(pad=3)), layout_a=Layout("col", pad=1))
    for operand in (*problem.operands, problem.output):
        assert place(values_of(operand), operand).violations() == []


def test_bad_arguments():
    operand = mm(4, 6, 8).operand("a")
    with pytest.raises(ValueError, match=r"'a' got values of \(8, 4\) torch.float16: it takes \(4, 8\) torch.float16"):
        place(torch.zeros(8, 4).half(), operand)
    with pytest.raises(ValueError, match="float32: it takes"):
        place(torch.zeros(4, 8), operand)
    with pytest.raises(ValueError, match="pattern 2 is unknown"):
        place(None, operand, 2)
    with pytest.raises(ValueError, match="elements overlap"):
        place(None, dataclasses.replace(operand, strides=(4, 1)))


BATCHES = [
    Layout(batch_pad=5),
    Layout("col", pad=3, batch_pad=1, offset=1),
    Layout(batch="inner"),
    Layout("col", pad=2, batch="inner"),
    Layout(batch="zero"),
    Layout("col", pad=1, batch="zero"),
]


@pytest.mark.parametrize("layout", BATCHES, ids=lambda layout: layout.id)
@pytest.mark.parametrize("dtype", ["fp16", "int8", "int32"])
def test_batches_are_placed_as_asked(dtype, layout):
    operand = operand_of(dtype, layout, (3, 6, 10))
    values = values_of(operand)
    if layout.batch == "zero":
        values = values[:1].expand(3, -1, -1)
    for pattern in (0, 1):
        placed = place(values, operand, pattern)
        assert placed.view.stride() == operand.strides
        assert torch.equal(placed.view, values)
        assert placed.violations() == []
        bytes_at(placed, operand.span).bitwise_xor_(1)
        assert [v.where for v in placed.violations()] == ["after"]


@pytest.mark.parametrize("layout", [Layout(batch_pad=5), Layout(pad=2, batch="inner")], ids=lambda layout: layout.id)
def test_a_write_between_the_matrices_of_a_batch_is_seen(layout):
    operand = operand_of("int8", layout, (3, 6, 10))
    placed = place(None, operand)
    bytes_at(placed, 62 if layout.batch_pad else 32).bitwise_xor_(1)  # behind a plane of 60, or in 6 of padding
    assert [v.where for v in placed.violations()] == ["gap"]


def test_values_that_vary_where_memory_holds_one_are_refused():
    operand = operand_of("fp16", Layout(batch="zero"), (3, 6, 10))
    with pytest.raises(ValueError, match="'a': values vary along a dimension of stride 0"):
        place(values_of(operand), operand)


def test_values_with_odd_strides_along_a_single_element_are_placed():
    values = torch.ones(3, 4, 1, dtype=torch.float16).as_strided((3, 4, 1), (4, 1, 256))
    operand = Operand("a", (3, 4, 1), (4, 1, 1), "fp16")
    assert torch.equal(GuardedTensor.place(values, operand, device="cpu", pattern=0).view, values)
