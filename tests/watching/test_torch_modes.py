"""Tensors of the CPU and of the device mix as torch lets them mix on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from conformance.watching.device_memory import DeviceMemory
from conformance.watching.torch_modes import DeviceFunctions, DeviceOperations, also_in_backward


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    memory = DeviceMemory()
    functions = DeviceFunctions(memory)
    with also_in_backward(functions), DeviceOperations(memory, functions=functions), functions:
        yield


REFUSED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "sum": lambda here, there: here + there,
    "sum with a number of the device": lambda here, there: here + there[0, 0],
    "in place": lambda here, there: there.add_(here),
    "in place of a number": lambda here, there: here[0, 0].add_(there[0, 0]),
    "product": lambda here, there: here @ there,
    "linear": lambda here, there: torch.nn.functional.linear(there, here),
    "where": lambda here, there: torch.where(here > 0, there, there),
    "cat": lambda here, there: torch.cat([here, there]),
    "values of an index": lambda here, there: there.index_put_((torch.tensor([0]),), here[0]),
    "equal": torch.equal,
    "embedding": lambda here, there: torch.nn.functional.embedding(here.long(), there),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mixed_operation_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device, .* cuda:0 and cpu!"):
        REFUSED[name](torch.ones(4, 4), torch.ones(4, 4, device="cuda"))


def test_a_tensor_of_the_cpu_takes_no_index_of_the_device() -> None:
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device as the indexed"):
        torch.ones(4)[torch.zeros(2, dtype=torch.int64, device="cuda")]


TAKEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "number of the CPU": lambda here, there: there + torch.tensor(2.0),
    "copy": lambda here, there: there.copy_(here),
    "to": lambda here, there: there + here.to(there),
    "index of the CPU": lambda here, there: there[torch.tensor([0, 1])],
    "mask of the CPU": lambda here, there: there[here > 0],
    "number at an index of the CPU": lambda here, there: there.index_put_((torch.tensor([0]),), torch.tensor(2.0)),
    "sizes of another": lambda here, there: there.view_as(here),
    "memory that torch takes for a result": lambda here, there: torch.nn.functional.one_hot(there.long()) + there[0, 0],
    "clipped norm": lambda here, there: there * torch.nn.utils.get_total_norm([there]),
    "attention": lambda here, there: torch.nn.functional.scaled_dot_product_attention(
        there[None], there[None], there[None], is_causal=True
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_gpu_takes_it(name: str) -> None:
    assert TAKEN[name](torch.ones(4, 4), torch.ones(4, 4, device="cuda")).is_cuda


def test_a_step_of_an_optimiser_is_taken() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Dropout()).cuda()
    for each in (torch.optim.AdamW, torch.optim.SGD):
        optimiser = each(model.parameters(), lr=0.1)
        torch.nn.functional.cross_entropy(
            model(torch.ones(4, 4, device="cuda")), torch.tensor([0, 1, 2, 3], device="cuda")
        ).backward()
        optimiser.step()
    assert all(parameter.is_cuda for parameter in model.parameters())


def test_memory_of_the_cpu_may_be_pinned() -> None:
    here, pinned = torch.ones(2), torch.ones(2).pin_memory()
    assert [tensor.is_pinned() for tensor in (here, pinned, torch.empty(2, pin_memory=True))] == [False, True, True]
    assert not pinned.is_cuda
    assert pinned.to("cuda", non_blocking=True).is_cuda


def test_a_result_of_the_cpu_stays_there() -> None:
    there = torch.ones(2, device="cuda")
    assert not torch.tensor([there.sum(), 1.0]).is_cuda
    assert not torch.zeros_like(there, device="cpu").is_cuda
    assert not torch.arange(int(there[0])).is_cuda
