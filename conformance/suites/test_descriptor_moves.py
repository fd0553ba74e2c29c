"""Moves through descriptors other than TMA loads of a block of a matrix: without TMA, row by row, as vectors."""

import dataclasses

from conformance.cases.scenarios import quick_fills, ragged, scenario, where
from conformance.problems import Layout

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]


def has_prologue(kernel):
    """Returns True if ``kernel`` gathers or scatters rows, or loads a vector, by a descriptor."""
    return getattr(kernel, "prologue", None) is not None


@scenario(
    where(family="loads", without_tma=True),
    order=ORDERS,
    rotate={"tma_store": [False, True], "descriptors": ["device", "host"], "flatten": [False, True]},
    dtypes=("bf16", "fp16"),
    configs=1,
    every_row=where(family="loads"),
)
def test_without_tma(conform, harness, kernel, target, dtype, config, order, tma_store, descriptors, flatten):
    """By a data mover of another kind, or by the pointers that the compiler makes of a descriptor. Everything is
    padded, so that a read or a write over the end of a row shows."""
    a, b = (Layout(name, pad=16) for name in order)
    problem = kernel.problem(
        dtype, *ragged(kernel, config, dtype, aligned=True), layout_a=a, layout_b=b, layout_out=Layout(pad=16)
    )
    variant = {"tma_store": tma_store, "descriptors": descriptors, "flatten": flatten, "sms": 3}
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), **variant)


@scenario(
    where(family="loads", prologue="gather"),
    order=["row", "col"],
    static=[False, True],
    rotate={"out": ["row", "col"]},
    configs=1,
    every_row=where(family="loads"),
)
def test_gathered_rows(conform, harness, kernel, target, dtype, config, order, static, out):
    """Rows of A in any order, some of them twice and some never; operands and result are padded."""
    problem = kernel.problem(
        dtype,
        *ragged(kernel, config, dtype, aligned=True),
        layout_a=Layout(pad=16),
        layout_b=Layout(order, pad=16),
        layout_out=Layout(out, pad=3),
    )
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), static=static)


@scenario(
    where(family="loads", prologue="scatter"),
    order=ORDERS,
    rotate={"static": [False, True], "out_dtype": [None, "fp32"]},
    dtypes=("bf16", "fp16"),
    configs=1,
    every_row=where(family="loads"),
)
def test_scattered_rows(conform, harness, kernel, target, dtype, config, order, static, out_dtype):
    """A permutation of the rows of the result, whose last tile of rows is not full; everything is padded."""
    a, b = (Layout(name, pad=16) for name in order)
    sizes, out = ragged(kernel, config, dtype, aligned=True), Layout(pad=16)
    problem = kernel.problem(dtype, *sizes, layout_a=a, layout_b=b, layout_out=out, out_dtype=out_dtype)
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), static=static)


@scenario(
    where(family="loads", prologue="scale-k"),
    order=ORDERS,
    rotate={"static": [False, True], "stages": [1, 3, 2, 4]},
    configs=1,
    every_row=where(family="loads"),
)
def test_vectors_in_the_loop(conform, harness, kernel, target, dtype, config, order, static, stages):
    """Loads a vector by a descriptor of one dimension, with the tiles of A and B, in loops of any number of stages. The
    vector's last block is not full."""
    a, b = (Layout(name, pad=16) for name in order)
    config = dataclasses.replace(config, num_stages=stages)
    sizes = ragged(kernel, config, dtype, aligned=True)
    problem = kernel.problem(dtype, *sizes, layout_a=a, layout_b=b, layout_out=Layout("col", pad=3))
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness.settings.tier), static=static)


@scenario(has_prologue, empty=["K", "N", "M"], dtypes=("bf16",), configs=1)
def test_nothing_gathered(conform, kernel, target, dtype, config, empty):
    """A sum of nothing is zero, and an empty result is not launched."""
    sizes = {name: 0 if name in empty else size for name, size in (("M", 80), ("N", 112), ("K", 96))}
    conform(kernel, kernel.problem(dtype, **sizes, layout_out=Layout(pad=16)), config=config, target=target)


@scenario(has_prologue, dtypes=("bf16", "fp16"), configs=1)
def test_far_rows(conform, harness, kernel, target, dtype, config):
    """Rows that begin past 2**31 elements."""
    M, N, K = ragged(kernel, config, dtype, aligned=True)
    far = Layout(pad=-(-(2**31) // (M // 2)) // 16 * 16 + 16 - K % 16)
    out = Layout(pad=2**31 // (M // 2) // 16 * 16 + 16)
    problem = kernel.problem(dtype, M, N, K, layout_a=far, layout_out=out)
    conform(kernel, problem, config=config, target=target, fills=("transparent",))
