"""Tensors read together are those that were read one by one."""

import pytest
import torch

from conformance.execution.trial import fill_groups
from conformance.execution.trial.fill_groups import moved, read_together
from conformance.numerics.rounding import bits
from conformance.problems import DTYPES


class OnDevice(torch.Tensor):
    """A tensor of the CPU that says it lies elsewhere; ``read`` counts the transfers to the CPU."""

    read = 0

    @property
    def device(self):
        return torch.device("meta")

    def cpu(self):
        type(self).read += 1
        return self.as_subclass(torch.Tensor)


@pytest.mark.parametrize("there", [False, True], ids=["cpu", "device"])
def test_tensors_read_together_are_the_same_dense(there, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randint(-100, 100, (3, 5), generator=generator).to(dtype) for dtype in DTYPES.values()]
    tensors += [torch.tensor(True), torch.zeros(0, 4), torch.ones(6, 8, dtype=torch.bfloat16)[::2, 1::3]]
    tensors += [torch.full((1, 1), float("nan")).as_strided((1, 1), (5, 3))]
    monkeypatch.setattr(OnDevice, "read", 0)
    given = [tensor.as_subclass(OnDevice) for tensor in tensors] if there else tensors
    copies = read_together(given)
    assert OnDevice.read == int(there)
    for copy, tensor in zip(copies, tensors, strict=True):
        assert (copy.shape, copy.dtype, copy.is_contiguous()) == (tensor.shape, tensor.dtype, True)
        assert torch.equal(bits(copy), bits(tensor))


def test_what_is_on_its_device_stays_there():
    tensor = torch.ones(3)
    assert moved(tensor, torch.device("cpu")) is tensor
    assert fill_groups.PINNED > 0
