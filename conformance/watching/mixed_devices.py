"""Says which operations a GPU refuses because their tensors lie on the CPU and on the device.

The rules are torch's. Single numbers of the CPU may be mixed in, unless the operation changes them. Copies go from one
to the other, and a tensor of the device may be indexed by one of the CPU. Operations of libraries have rules of their
own, and so do those that take lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.watching.device_memory import DeviceMemory

#: Operations that look at no element of one of their tensors, or whose subject is the copy.
_TAKE_BOTH = {"copy_", "copy", "_copy_from", "resize_as_", "set_", "is_same_size", "is_set_to", "_to_copy"}
#: Operations whose second argument, a list of indices, may lie on the CPU.
_INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
_OF_LISTS = ("_foreach_", "_fused_", "_amp_")
#: Classes of tensors that lie where their storage does; those that wrap others have their own rules.
_OWN = (Tensor, torch.nn.Parameter)


def mixed(operation: Any, args: Sequence[Any], tensors: Sequence[Tensor], memory: DeviceMemory) -> str:
    """Returns torch's message about ``tensors``, those of ``args`` and of the keywords of ``operation``; "" if a GPU
    takes them. At least one of them lies in ``memory``."""
    space, _, name = operation._schema.name.partition("::")
    if space != "aten" or name in _TAKE_BOTH or name.startswith(_OF_LISTS):
        return ""
    strange = [tensor for tensor in tensors if _on_cpu(tensor, memory)]
    if not strange:
        return ""
    if name in _INDEXING:
        if _on_cpu(args[0], memory):
            return "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
        strange = [tensor for tensor in args[2:3] if isinstance(tensor, Tensor) and _on_cpu(tensor, memory)]
    changed = [
        value
        for argument, value in zip(operation._schema.arguments, args, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if any(tensor.dim() > 0 or any(tensor is each for each in changed) for tensor in strange):
        return "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    return ""


def _on_cpu(tensor: Any, memory: DeviceMemory) -> bool:
    plain = type(tensor) in _OWN and tensor.layout is torch.strided and not tensor.is_meta
    return plain and not memory.has(tensor)
