"""Products with one scale per block of each operand. The main loop applies them, and could take a neighbour's."""

import pytest

from conformance.cases.scenarios import scenario, where
from conformance.families.gemm.problem import BLOCK_SCALINGS, Bias, scaled_mm
from conformance.kernels import catalogue
from conformance.problems import Layout
from conformance.records import ReasonCode

#: K with a ragged last block that a scale still covers, of one block, and of less than one.
DEPTHS = [400, 128, 96]
#: The quick tier has the first one, with the first of the depths.
SCALINGS = BLOCK_SCALINGS[::-1]


@scenario(where(block_scaled=True), scaling=SCALINGS, depth=DEPTHS, rotate={"out_dtype": ["bf16", "fp32"]})
def test_block_scales(conform, kernel, target, dtype, config, scaling, depth, out_dtype):
    """Each accepted pair of recipes; M and N are ragged in blocks of 128 and in tiles."""
    sizes = (config.block_m + 40, config.block_n + 24, depth)
    problem = kernel.problem(dtype, *sizes, scaling=scaling, out_dtype=out_dtype)
    conform(kernel, problem, config=config, target=target)


@scenario(
    where(family="loads", block_scaled=True),
    scaling=SCALINGS,
    depth=DEPTHS,
    rotate={"descriptors": ["device", "host"], "tma_store": [False, True], "out_dtype": ["bf16", "fp32"]},
    configs=2,
    every_row=where(family="loads"),
)
def test_described_blocks(conform, kernel, target, dtype, config, scaling, depth, descriptors, tma_store, out_dtype):
    """The same by descriptors, with gaps behind rows of A, columns of B and rows of the result. Three programs share
    the tiles."""
    sizes = (config.block_m + 40, config.block_n + 24, depth)
    layouts = {"layout_a": Layout(pad=16), "layout_b": Layout("col", pad=32), "layout_out": Layout(pad=16)}
    problem = kernel.problem(dtype, *sizes, scaling=scaling, out_dtype=out_dtype, **layouts)
    variant = {"descriptors": descriptors, "tma_store": tma_store, "sms": 3}
    conform(kernel, problem, config=config, target=target, **variant)


@scenario(where(family="loads", block_scaled=True), empty=["K", "N", "M"], dtypes=("e4m3",), configs=1)
def test_described_blocks_of_nothing(conform, kernel, target, dtype, config, empty):
    """A sum of nothing is the bias alone, and an empty result is not launched."""
    sizes = {"M": 40, "N": 48, "K": 144} | {empty: 0}
    problem = kernel.problem(dtype, **sizes, bias=Bias(dtype="bf16"))
    conform(kernel, problem, config=config, target=target)


def _scaled(kernels):
    return [kernel for kernel in kernels.values() if where(operation="scaled_mm")(kernel)]


#: Our kernels together, as no third-party kernel changes what is said of them, and each of those alone.
SCALED = [("", _scaled(catalogue.own_kernels()))]
SCALED += [(f"{kernel.name}-", [kernel]) for kernel in _scaled(catalogue.outside_kernels())]


@pytest.mark.parametrize(
    ("kernels", "scaling"),
    [
        pytest.param(kernels, scaling, id=f"{start}{scaling}")
        for start, kernels in SCALED
        for scaling in ("tensor", "row", *BLOCK_SCALINGS)
    ],
)
@pytest.mark.proves_at_most("nothing", "refusals are judged, and no kernel is run")
def test_each_kernel_takes_its_own_scales(recorder, harness, kernels, scaling):
    """Scales per tensor and row belong to other kernels than scales per block, and each says so."""
    problem = scaled_mm(256, 256, 256, scaling=scaling)
    recorder.set(problem=problem)
    target = next((t for t in harness.targets if t.capability("e4m3").available), harness.targets[0])
    recorder.set(target=target)
    for kernel in kernels:
        reason = kernel.refusal(kernel.draft(problem, kernel.configs[0], target))
        right = kernel.block_scaled == (scaling in BLOCK_SCALINGS)
        refused = reason is not None and reason.code is ReasonCode.SCALE
        recorder.verdict(f"{kernel.name} {'takes' if right else 'refuses'}", refused != right, str(reason))


@scenario(where(block_scaled=True), dtypes=("e4m3",), configs=1)
def test_bias_after_block_scales(conform, kernel, target, dtype, config):
    """A bias is added to the sum of the scaled blocks."""
    problem = kernel.problem(dtype, config.block_m + 40, config.block_n + 24, 256, bias=Bias(dtype="bf16"))
    conform(kernel, problem, config=config, target=target)
