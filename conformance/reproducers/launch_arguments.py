"""Arguments of launches as source text: numbers, descriptors and tensors, whose bits go along."""

from __future__ import annotations

import base64
import math
import textwrap
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.reproducers.definitions import NotReproducible, Sources, plain_function


def packed(values: Tensor) -> str:
    """Returns the bits of ``values`` in order, compressed, as lines of text without quotes and backslashes."""
    dense = values.detach().cpu().clone(memory_format=torch.contiguous_format)
    raw = dense.view(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return "\n".join(textwrap.wrap(base64.b85encode(zlib.compress(raw, 9)).decode(), 118))


def written(value: Any, sources: Sources, tensor: Callable[[Tensor], str]) -> str:
    """``value`` as an expression; ``tensor`` writes the tensors in it. What the expression refers to is added to
    ``sources``. Raises NotReproducible."""
    import triton.language as tl

    if isinstance(value, Tensor):
        return tensor(value)
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if type(value) is tuple:
        parts = [written(part, sources, tensor) for part in value]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, tl.dtype):
        return f"tl.{_dtype_name(value)}"
    if isinstance(value, tl.constexpr):
        return f"tl.constexpr({written(value.value, sources, tensor)})"
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        return _descriptor(value, sources, tensor)
    if plain_function(value):
        return sources.add(str(plain_function(value).__name__), value)
    raise NotReproducible(f"the argument {value!r} ({type(value).__name__}) cannot be written as source")


def _dtype_name(value: Any) -> str:
    import triton.language as tl

    for name, member in vars(tl).items():
        if isinstance(member, tl.dtype) and member == value:
            return str(name)
    raise NotReproducible(f"triton.language has no name for the dtype {value!r}")


def _descriptor(value: Any, sources: Sources, tensor: Callable[[Tensor], str]) -> str:
    sources.import_line("from triton.tools.tensor_descriptor import TensorDescriptor")
    parts = [tensor(value.base), *(repr(list(part)) for part in (value.shape, value.strides, value.block_shape))]
    padding = getattr(value, "padding", "zero")
    return f"TensorDescriptor({', '.join([*parts, *([f'{padding!r}'] if padding != 'zero' else [])])})"


def without_memory(tensor: Tensor) -> str:
    """An expression for a tensor that stands for a pointer: dtype, size of storage, place of the first element."""
    size = tensor.untyped_storage().size() // tensor.element_size()
    offset = f", {tensor.storage_offset()}" if tensor.storage_offset() else ""
    return f"pointer({tensor.dtype}, {size}{offset})"


class TensorWriter:
    """Writes tensors of launches by the operand in whose memory they lie. What lies in none of them is the kernel's
    own: a new one if it is NaN or zero throughout, else its bits go along."""

    def __init__(self, operands: dict[str, Tensor]) -> None:
        self._operands = {view.untyped_storage().data_ptr(): (name, view) for name, view in operands.items()}
        self.constants: dict[str, str] = {}
        self.embedded: dict[str, Tensor] = {}

    def __call__(self, tensor: Tensor) -> str:
        key = tensor.untyped_storage().data_ptr()
        if key not in self._operands:
            self._operands[key] = (self._new(tensor), tensor)
        name, view = self._operands[key]
        # an empty tensor lies nowhere
        if tensor.dtype != view.dtype or (tensor.numel() and tensor.data_ptr() != view.data_ptr()):
            distance = (tensor.data_ptr() - view.data_ptr()) // tensor.element_size()
            whole = name if tensor.dtype == view.dtype else f"{name}.view({tensor.dtype})"
            if tensor.element_size() != view.element_size():
                raise NotReproducible(f"an argument sees the memory of {name} as {tensor.dtype}")
            if distance:
                return f"{whole}.as_strided((1,), (1,), {name}.storage_offset() + {distance})"
            return whole
        return name

    def _new(self, tensor: Tensor) -> str:
        name = f"extra{len(self.constants) + len(self.embedded) + 1}"
        dense, shape = tensor.is_contiguous(), tuple(tensor.shape)
        if dense and tensor.dtype.is_floating_point and bool(tensor.isnan().all()):
            self.constants[name] = f'torch.full({shape}, float("nan"), dtype={tensor.dtype}, device=DEVICE)'
        elif dense and not tensor.count_nonzero():
            self.constants[name] = f"torch.zeros({shape}, dtype={tensor.dtype}, device=DEVICE)"
        else:
            self.embedded[name] = tensor
        return name
