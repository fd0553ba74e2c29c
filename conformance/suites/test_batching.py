"""Batches of products: every way in which matrices may follow each other, and more of them than a grid axis holds."""

import math

import pytest

from conformance.cases.scenarios import ragged, scenario, where
from conformance.families.gemm.problem import Bias
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from conformance.records import ReasonCode

BATCHED = ("bmm", "baddbmm")

STRIDES = {
    "packed": {},
    # gaps between matrices, other ones for A and B
    "padded": {"layout_a": Layout(batch_pad=13), "layout_b": Layout("col", pad=3, batch_pad=7)},
    # stride 0: all products share an operand
    "one-A": {"layout_a": Layout(batch="zero")},
    "one-B": {"layout_b": Layout("col", batch="zero")},
    "one-of-each": {"layout_a": Layout(batch="zero"), "layout_b": Layout(batch="zero")},
    # the batch is the innermost dimension
    "interleaved": {"layout_a": Layout(batch="inner"), "layout_b": Layout("col", batch="inner")},
    "interleaved-out": {"layout_out": Layout(batch="inner"), "layout_a": Layout("col")},
    # what lies between the results is watched
    "padded-out": {"layout_out": Layout(pad=5, batch_pad=3)},
}


def strides_of(kernel):
    """The names of the strides that the kernel says it takes."""
    if kernel.any_order:
        return list(STRIDES)
    orders = {"layout_a": "row", "layout_b": "col"}
    return [
        name
        for name, fields in STRIDES.items()
        if all(layout.order == orders.get(operand, layout.order) for operand, layout in fields.items())
    ]


@scenario(where(operation=BATCHED), strides=strides_of, rotate={"static": [False, True]}, configs=3)
def test_batch_strides(conform, kernel, target, dtype, config, strides, static):
    """Batch strides of 0, of 1 and with a gap, in either order of a matrix."""
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=False), batch=2, **STRIDES[strides])
    conform(kernel, problem, config=config, target=target, static=static)


#: Batches that descriptors can have. One matrix for all is described by the device alone.
DESCRIBED = {
    "packed": {},
    "padded": {"layout_a": Layout(pad=16, batch_pad=48), "layout_b": Layout("col", pad=32, batch_pad=16)},
    "one-A": {"layout_a": Layout(batch="zero"), "layout_b": Layout("col")},
    "one-B": {"layout_b": Layout("col", batch="zero")},
    "other-order": {"layout_a": Layout("col", pad=16), "layout_b": Layout(pad=16)},
}


def described_strides(kernel):
    """The names of the strides that a kernel with descriptors takes."""
    return [name for name in DESCRIBED if kernel.any_order or name != "other-order"]


@scenario(
    where(family="loads", operation=BATCHED),
    strides=described_strides,
    rotate={"descriptors": ["host", "device"], "tma_store": [False, True]},
    configs=2,
    every_row=where(family="loads"),
)
def test_described_batches(conform, kernel, target, dtype, config, strides, descriptors, tma_store):
    """One descriptor of all matrices by the host, or one for each by the device. Their rows end within blocks, and the
    result's rows and matrices have gaps, which are watched."""
    sizes = ragged(kernel, config, dtype, aligned=True)
    layouts = {"layout_out": Layout(pad=16, batch_pad=32), **DESCRIBED[strides]}
    if strides.startswith("one"):
        descriptors = "device"
    problem = kernel.problem(dtype, *sizes, batch=3, **layouts)
    variant = {"descriptors": descriptors, "tma_store": tma_store, "sms": 4}
    conform(kernel, problem, config=config, target=target, **variant)


@scenario(where(family="loads", operation=BATCHED), one=["A", "B"], configs=1)
@pytest.mark.proves_at_most("nothing", "a host's refusal is judged, and no kernel is run")
def test_the_host_describes_no_stride_of_zero(recorder, kernel, target, dtype, config, one):
    """A tensor map has no stride of 0: one matrix for all is refused, and not read as if it were many."""
    fields = {f"layout_{one.lower()}": Layout("row" if one == "A" else "col", batch="zero")}
    problem = kernel.problem(dtype, 48, 64, 64, **fields)
    recorder.set(kernel=kernel, problem=problem, config=config, target=target)
    reason = kernel.refusal(kernel.draft(problem, config, target, Variant("host")))
    refused = reason is not None and (reason.code, reason.subject) == (ReasonCode.LAYOUT, one.lower())
    recorder.verdict("refusal", refused, str(reason))


@scenario(where(family="loads", operation=BATCHED), empty=["batch", "K", "N"], dtypes=("bf16", "e4m3"), configs=1)
def test_described_batches_of_nothing(conform, kernel, target, dtype, config, empty):
    """Products of no k are zeros, and an empty result is not launched."""
    sizes = {"M": 40, "N": 48, "K": 64, "batch": 2} | {empty: 0}
    conform(kernel, kernel.problem(dtype, **sizes, layout_out=Layout(pad=16)), config=config, target=target)


@scenario(where(family="loads", operation=BATCHED), dtypes=("bf16", "e4m3"), configs=1)
def test_described_far_batches(conform, kernel, target, dtype, config):
    """The last matrix of each operand and of the result begins past 2**31 elements. The memory between is not used."""
    far = Layout(batch_pad=2**30)
    layouts = {"layout_a": far, "layout_b": Layout("col", batch_pad=2**30), "layout_out": far}
    problem = kernel.problem(dtype, 40, 48, 64, batch=3, **layouts)
    conform(kernel, problem, config=config, target=target, fills=("transparent",), sms=2)


#: The quick tier has the second one, of which every stride counts.
@scenario(where(operation="baddbmm"), bias=["n", "bmn", "1n", "m1", "mn", "b1n"], configs=2)
def test_batch_bias(conform, kernel, target, dtype, config, bias):
    """A bias for all matrices or one for each, whole or broadcast along rows or columns, with gaps between its
    elements."""
    gaps = Layout(step=2, pad=3, batch_pad=5)
    sizes = ragged(kernel, config, dtype, aligned=False)
    problem = kernel.problem(dtype, *sizes, batch=2, bias=Bias(bias, layout=gaps))
    conform(kernel, problem, config=config, target=target)


@scenario(where(operation="baddbmm"), dtypes=("bf16", "fp16"), configs=1)
def test_batch_without_bias(conform, kernel, target, dtype, config):
    """beta 0 ignores a bias that holds NaN; alpha still scales the product."""
    problem = kernel.problem(dtype, 40, 24, 56, batch=2, alpha=-0.5, beta=0.0)
    conform(kernel, problem, config=config, target=target, fills=("transparent",))


@scenario(where(operation=BATCHED), batch=[0, 1], configs=1)
def test_least_batches(conform, recorder, kernel, target, dtype, config, batch):
    """A batch of no matrix launches nothing. A batch of one is a plain product."""
    run = conform(kernel, kernel.problem(dtype, 40, 24, 56, batch=batch), config=config, target=target)
    recorder.verdict("launch", (0 not in run.plan.grid) == bool(batch), f"grid {run.plan.grid}")


@scenario(where(operation=BATCHED), dtypes=("bf16", "fp16"), batch=[65_537], configs=1)
def test_more_than_a_grid_axis(conform, harness, recorder, kernel, target, dtype, config, batch):
    """CUDA's second and third grid axes end at 65,535: more matrices than that are all computed. Without a device the
    grid alone is checked, since interpreting it would take an hour."""
    problem = kernel.problem(dtype, 8, 8, 16, batch=batch)
    plan = kernel.plan(problem, config, target)
    recorder.set(kernel=kernel, problem=problem, config=config, target=target)
    fits = all(extent <= 65_535 for extent in plan.grid[1:])
    enough = math.prod(plan.grid) >= batch
    recorder.verdict("grid", fits and enough, f"{plan.grid} for {batch} matrices of one tile")
    recorder.proves_at_most("nothing", "interpreting the grid would take an hour", without_device=True)
    if harness.settings.has_gpu:
        conform(kernel, problem, config=config, target=target, fills=("transparent",))
