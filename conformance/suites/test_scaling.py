"""Scales of scaled mm, alpha and beta of addmm: exact where they must be; a zero alpha or beta ignores its operand."""

import pytest
import torch

from conformance.cases.scenarios import ragged, scenario, where
from conformance.families.gemm.problem import Bias
from conformance.kernels.catalogue import meta_tensor
from conformance.kernels.kernel import NotApplicable
from conformance.records import ReasonCode


@scenario(
    where(operation="scaled_mm", block_scaled=False),
    scaling=["tensor", "row"],
    bias=[None, "n"],
    fast_accum=[False, True],
    rotate={"out_dtype": ["bf16", "fp32", "fp16", "e4m3", "e5m2"]},
    configs=2,
)
def test_scales(conform, kernel, target, dtype, config, scaling, bias, fast_accum, out_dtype):
    """Non-periodic scales that differ between A and B, none of them 1, with every output dtype."""
    fields = {"scaling": scaling, "fast_accum": fast_accum, "out_dtype": out_dtype}
    if bias is not None:
        fields["bias"] = Bias(bias, dtype="bf16")
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True), **fields)
    conform(kernel, problem, config=config, target=target, sms=3 if kernel.persistent else None)


@scenario(
    where(operation="scaled_mm", block_scaled=False),
    pair=[("e4m3", "e5m2"), ("e5m2", "e4m3")],
    dtypes=("e4m3",),
    configs=2,
)
def test_mixed_fp8_formats(conform, kernel, target, dtype, config, pair):
    """A and B of different fp8 formats."""
    first, second = pair
    problem = kernel.problem(first, *ragged(kernel, config, first, aligned=True), b_dtype=second)
    conform(kernel, problem, config=config, target=target, sms=3 if kernel.persistent else None)


def descriptors_of(kernel):
    """Returns the makers of the kernel's descriptors (host or device); a kernel that has none ignores it."""
    return ["device", "host"] if kernel.descriptors else ["device"]


@scenario(
    where(operation="scaled_mm", block_scaled=False),
    one={"quick": ["M"], "default": ["M", "N"], "full": ["M", "N"], "exhaustive": ["M", "N"]},
    descriptors=descriptors_of,
    configs=1,
)
def test_one_row_or_column(conform, kernel, target, dtype, config, one, descriptors):
    """The scale of one row or column is a single number, of which no stride counts, and the other operand has many."""
    sizes = dict(zip("MNK", ragged(kernel, config, dtype, aligned=True), strict=True)) | {one: 1}
    variant = {"sms": 3 if kernel.persistent else None, "descriptors": descriptors}
    problem = kernel.problem(dtype, *sizes.values(), scaling="row", out_dtype="fp32")
    conform(kernel, problem, config=config, target=target, fills=("transparent",), **variant)


#: What is wrong -> (operand, how it is made from a right one)
WRONG_SCALES = {
    "row-scale-too-short": ("scale_a", lambda scale: scale[:-1]),
    "row-scale-of-the-other-operand": ("scale_a", lambda scale: torch.empty(1, scale.shape[0] + 1, device="meta")),
    "column-scale-transposed": ("scale_b", lambda scale: scale.t()),
    "one-dimensional": ("scale_a", lambda scale: scale.flatten()),
    "one-per-tensor": ("scale_b", lambda scale: scale[:1, :1]),
    "fp16": ("scale_a", lambda scale: scale.half()),
    "every-other-in-memory": ("scale_a", lambda scale: torch.empty(2 * len(scale), 1, device="meta")[::2]),
    "missing": ("scale_b", lambda scale: None),
}


@scenario(where(operation="scaled_mm", block_scaled=False), wrong=list(WRONG_SCALES), configs=1, dtypes=("e4m3",))
@pytest.mark.proves_at_most("nothing", "refusals are judged, and no kernel is run")
def test_wrong_scales_are_refused(recorder, kernel, target, dtype, config, wrong):
    """Shape, length, stride and dtype of the scales are checked: a [1, 1] scale is not read as M of them."""
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True))
    recorder.set(kernel=kernel, problem=problem, config=config, target=target)
    plan = kernel.plan(problem, config, target)
    tensors = {operand.name: meta_tensor(operand) for operand in (*problem.operands, problem.output)}
    kernel.launch(plan, tensors)  # the right ones are taken
    name, damage = WRONG_SCALES[wrong]
    tensors[name] = damage(tensors[name])
    reason = None
    try:
        kernel.launch(plan, tensors)
    except NotApplicable as refusal:
        reason = refusal.reason
    right = reason is not None and reason.code is ReasonCode.SCALE and reason.subject == name
    recorder.verdict("refused", right, str(reason))


@scenario(where(operation="scaled_mm", block_scaled=False), shape=[(), (1,), (1, 1)], configs=1, dtypes=("e4m3",))
@pytest.mark.proves_at_most("nothing", "how scales are read is judged, and no kernel is run")
def test_single_scale_of_any_rank(recorder, kernel, target, dtype, config, shape):
    """One scale per tensor may have no dimension, or several of size 1, whatever their strides are: the launch is that
    of the usual one."""
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True), scaling="tensor")
    recorder.set(kernel=kernel, problem=problem, config=config, target=target)
    tensors = {operand.name: meta_tensor(operand) for operand in (*problem.operands, problem.output)}
    plan = kernel.plan(problem, config, target)
    usual = _numbers(kernel.launch(plan, tensors))
    tensors["scale_a"] = torch.empty(1, device="meta").as_strided(shape, (7,) * len(shape))
    differing = {name: value for name, value in _numbers(kernel.launch(plan, tensors)).items() if usual[name] != value}
    recorder.verdict("read once", not differing, f"differs in {differing}" if differing else "as the usual scale")


def _numbers(launch):
    """The arguments of a launch that are no tensors, by name."""
    return {name: value for name, value in launch.arguments.items() if not isinstance(value, torch.Tensor)}


FACTORS = {
    "both": (2.0, 0.5),
    "negative": (-0.5, 4.0),
    "not-a-power-of-two": (1.25, 0.3),
    "no-product": (0.0, 2.0),
    "no-bias": (2.0, 0.0),
    "neither": (0.0, 0.0),
    "ones": (1.0, 1.0),
}


@scenario(
    where(operation="addmm"),
    factors=list(FACTORS),
    rotate={"kind": ["n", "mn", "m1"]},
    configs=1,
    every_row=where(weight=2),
)
def test_alpha_and_beta(conform, kernel, target, dtype, config, factors, kind):
    """alpha 0 ignores a product and beta 0 a bias that hold NaN; other factors scale exactly or within the bound."""
    alpha, beta = FACTORS[factors]
    sizes = ragged(kernel, config, dtype, aligned=True)
    problem = kernel.problem(dtype, *sizes, alpha=alpha, beta=beta, bias=Bias(kind))
    conform(kernel, problem, config=config, target=target, sms=3 if kernel.persistent else None)
