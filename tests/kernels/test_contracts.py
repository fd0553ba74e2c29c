"""Promises that every kernel of the catalogue keeps, each tested with an example of the kernel."""

import contextlib
import itertools

import pytest
import torch

from conformance.kernels import catalogue
from conformance.kernels.catalogue import meta_tensor
from conformance.kernels.kernel import NotApplicable
from conformance.records import ReasonCode
from conformance.targets import compile_targets

KERNELS = catalogue.own_kernels()
#: The codes of operands that have one for whatever is wrong with them.
OWN_CODES = {"scale_a": ReasonCode.SCALE, "scale_b": ReasonCode.SCALE, "bias": ReasonCode.BIAS}


def example_plan(kernel):
    """Returns a plan of the kernel's first example that a target takes."""
    choices = itertools.product(compile_targets(), kernel.dtype_names(), kernel.configs)
    for target, dtype, config in choices:
        with contextlib.suppress(NotApplicable):
            return kernel.plan(kernel.example(dtype, config), config, target, kernel.example_variant())
    return pytest.skip(f"no target of the installed Triton takes an example of {kernel.name}")


def spoilt(tensor):
    """Yields tensors that differ from ``tensor``, each with the code and the words of its refusal."""
    yield tensor.to(torch.complex64), ReasonCode.DTYPE, "is torch.complex64"
    yield tensor[:-1], ReasonCode.LAYOUT, "has shape"
    if tensor.numel() > 1:  # no stride of a single element is used
        other = tensor.new_empty_strided(tensor.shape, [stride + 1 for stride in tensor.stride()])
        yield other, ReasonCode.LAYOUT, "has strides"
    yield None, ReasonCode.OPERATION, "is missing"


@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.offered])
def test_tensors_must_be_those_of_the_plan(name):
    kernel = KERNELS[name]
    plan = example_plan(kernel)
    right = {operand.name: meta_tensor(operand) for operand in plan.problem.tensors}
    kernel.launch(plan, right)
    for operand, tensor in right.items():
        for wrong, code, words in spoilt(tensor):
            with pytest.raises(NotApplicable, match=f"{operand} {words}") as caught:
                kernel.launch(plan, {**right, operand: wrong})
            reason = caught.value.reason
            assert (reason.code, reason.subject) == (OWN_CODES.get(operand, code), operand)
