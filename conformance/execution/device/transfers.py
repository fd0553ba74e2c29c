"""Transfers between the CPU and a device that wait for it as rarely as can be.

Where several processes share a device, each of them has it for some milliseconds in turn: every wait costs a turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Bytes of the largest tensor of which a pinned copy is made: torch keeps the memory of these.
PINNED = 8 << 20
#: Tensors that are read together begin at multiples of this many bytes.
ALIGNMENT = 8


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """``tensor`` on ``device``. Nothing waits for the transfer of a small one, whose copy cannot be paged out."""
    pinned = device.type == "cuda" and tensor.nbytes <= PINNED
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)


def read_together(tensors: Sequence[Tensor]) -> list[Tensor]:
    """``tensors``, all on one device, dense on the CPU after one transfer. Waits for what the device still does."""
    if tensors[0].device.type == "cpu":
        return [tensor.contiguous() for tensor in tensors]
    parts = []
    for tensor in tensors:
        # a copy, because a tensor of one element may have any strides, and views refuse some
        flat = tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
        parts += [flat, flat.new_empty(-flat.numel() % ALIGNMENT)]
    read = torch.cat(parts).cpu()
    copies, start = [], 0
    for tensor, flat in zip(tensors, parts[::2], strict=True):
        copies.append(read[start : start + flat.numel()].view(tensor.dtype).view(tensor.shape))
        start += flat.numel() + -flat.numel() % ALIGNMENT
    return copies
