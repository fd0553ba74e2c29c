"""Descriptors of releases that differ from the installed one, with a stand-in for Triton's interpreter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.execution.interpreter.corrections import descriptor_rules


class Handle:
    def __init__(self, data: Any, element: str = "fp16") -> None:
        self.data, self.element = data, element

    def get_element_ty(self) -> str:
        return self.element


class Unpadded:
    """A descriptor of Triton 3.3 and 3.4."""

    def __init__(self, base: Any, shape: Any, strides: Any, block_shape: Any) -> None:
        self.block_shape = block_shape

    def materialize_pointers(self, offsets: Any) -> Any:
        return Handle(np.zeros(self.block_shape, np.int64)), np.zeros(self.block_shape, np.bool_)


class Padded(Unpadded):
    def __init__(self, base: Any, shape: Any, strides: Any, block_shape: Any, padding: Any) -> None:
        super().__init__(base, shape, strides, block_shape)


class Builder:
    def create_masked_load(self, pointers: Any, mask: Any, other: Any, *cache: Any, is_volatile: bool) -> Any:
        return other

    def create_descriptor_store(self, desc: Any, value: Any, indices: Any) -> None: ...


@pytest.mark.parametrize("descriptor", [Unpadded, Padded])
def test_a_load_by_a_descriptor_that_names_no_padding_gives_zeros_outside(descriptor: Any) -> None:
    """A masked load without other values is undefined; the copy unit gives zeros."""
    interpreter = SimpleNamespace(
        TensorDescHandle=descriptor,
        InterpreterBuilder=Builder,
        TensorHandle=Handle,
        _get_np_dtype=lambda element: {"fp16": np.float16}[element],
    )
    methods = dict(descriptor_rules(interpreter, None, None))[Builder]
    assert ("create_descriptor_load" in methods) == (descriptor is Unpadded)  # one with padding does that itself
    if descriptor is Unpadded:
        tile = Unpadded(None, None, None, (4, 8))
        lanes = methods["create_descriptor_load"](Builder(), tile, [Handle(0), Handle(0)], "", "")
        assert lanes.data.dtype == np.float16
        assert (lanes.data == np.zeros((4, 8))).all()
