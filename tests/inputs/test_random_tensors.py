"""Timed tensors lie where times do not depend on earlier allocations."""

from __future__ import annotations

import pytest
import torch

from conformance.inputs.fills import PAGE, random_tensors
from conformance.kernels import catalogue


@pytest.mark.parametrize(("name", "dtype"), [("addmm", "fp16"), ("grouped_mm", "bf16"), ("int_mm", "int8")])
def test_each_operand_begins_with_a_page(name, dtype):
    kernel = catalogue.get(name)
    problem = kernel.example(dtype, kernel.configs[0])
    tensors = random_tensors(problem, torch.device("cpu"))
    for operand in problem.tensors:
        tensor = tensors[operand.name]
        assert tensor.data_ptr() % PAGE == 0
        assert (tuple(tensor.shape), tensor.stride()) == (operand.shape, operand.strides)
    places = [random_tensors(problem, torch.device("cpu")) for _ in range(2)]
    assert all(places[0][name].data_ptr() != places[1][name].data_ptr() for name in tensors)
