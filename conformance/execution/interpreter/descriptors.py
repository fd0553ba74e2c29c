"""The rules of tensor maps, which the interpreter does not have: what a device gets wrong without an error is noted.

A tensor map counts in units of 16 bytes. On an H200 it was measured that it gives wrong numbers over rows whose pitch
is no such multiple. There a store over the end of a row overwrites the columns after it, up to the next multiple.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from conformance.execution.interpreter.accesses import Accesses
from conformance.execution.interpreter.corrections import NotFaithful
from conformance.execution.interpreter.savings import Replacements

#: Bytes of which the base, every pitch and, for stores, the rows of a described tensor are multiples.
UNIT = 16


def descriptor_rules(interpreter: Any, accesses: Accesses | None, reduce: Any) -> Replacements:
    """Replacements for one launch, which note in ``accesses`` what breaks a rule; without accesses an AssertionError
    is raised, as by the interpreter. ``reduce`` is the method that adds a tile to memory. Nothing for releases without
    descriptors."""
    descriptor = getattr(interpreter, "TensorDescHandle", None)
    if descriptor is None:
        return []
    materialize = descriptor.materialize_pointers
    pads = "padding" in inspect.signature(descriptor).parameters  # up to Triton 3.4 a load names no padding
    store: Any = getattr(interpreter.InterpreterBuilder, "create_descriptor_store", None)

    def validate(self: Any) -> None:
        base, size = int(self.base.data.item()), _element_size(self)
        assert len(self.strides) == len(self.block_shape) == self.ndim >= 1, "a descriptor has one stride a dimension"
        assert self.strides[-1].data.item() == 1, "last dim must be contiguous"
        pitches = [int(stride.data.item()) * size for stride in self.strides[:-1]]
        faults = [f"a pitch of {pitch} bytes" for pitch in pitches if pitch % UNIT]
        if base % UNIT:
            faults.insert(0, f"a base {base % UNIT} bytes behind a multiple of {UNIT}")
        if not faults:
            return
        text = f"{' and '.join(faults)}: of a tensor map they must be multiples of {UNIT} bytes, or numbers are wrong"
        assert accesses is not None, text
        accesses.broke_a_rule("describes", base, text)

    def materialize_pointers(self: Any, offsets: Any) -> Any:
        if (np.asarray(offsets[-1].data) * _element_size(self) % UNIT).any():
            why = f"where a block begins that is no multiple of {UNIT} bytes into its rows was not measured"
            raise NotFaithful("a tensor map", why)
        return materialize(self, offsets)

    def over_the_end(desc: Any, indices: Any) -> None:
        row, first = int(desc.shape[-1].data.item()), int(np.asarray(indices[-1].data).item())
        size = _element_size(desc)
        if accesses is not None and row * size % UNIT and first < row < first + desc.block_shape[-1]:
            _, mask = desc.materialize_pointers(indices)
            if np.asarray(getattr(mask, "data", mask)).any():
                text = f"a block over the end of rows of {row * size} bytes, which is no multiple of {UNIT}"
                text += ": a device overwrites the bytes up to the next one"
                accesses.broke_a_rule("stores to", int(desc.base.data.item()), text)

    def create_descriptor_load(self: Any, desc: Any, indices: Any, *cache: Any) -> Any:
        pointers, mask = desc.materialize_pointers(indices)
        element = pointers.get_element_ty()
        zeros = np.zeros(pointers.data.shape, interpreter._get_np_dtype(element))
        padded = interpreter.TensorHandle(zeros, element)
        return self.create_masked_load(pointers, mask, padded, *cache, is_volatile=False)

    def create_descriptor_store(self: Any, desc: Any, value: Any, indices: Any) -> Any:
        over_the_end(desc, indices)
        return store(self, desc, value, indices)

    def create_descriptor_reduce(self: Any, kind: Any, desc: Any, value: Any, indices: Any) -> Any:
        over_the_end(desc, indices)
        return reduce(self, kind, desc, value, indices)

    rules: Replacements = [(descriptor, {"validate": validate, "materialize_pointers": materialize_pointers})]
    if store is not None:
        methods: dict[str, Any] = {"create_descriptor_store": create_descriptor_store}
        methods |= {"create_descriptor_reduce": create_descriptor_reduce} if reduce else {}
        methods |= {} if pads else {"create_descriptor_load": create_descriptor_load}
        rules.append((interpreter.InterpreterBuilder, methods))
    return rules


def refuse_rounding_descriptors(interpreter: Any, arguments: dict[str, Any]) -> None:
    """Refuses a host descriptor that rounds fp32 to tf32 if the interpreter's descriptors do not: up to Triton 3.8."""
    descriptor = getattr(interpreter, "TensorDescHandle", None)
    rounds = [name for name, value in arguments.items() if getattr(value, "round_f32_to_tf32", False) is True]
    if rounds and descriptor is not None and not hasattr(interpreter, "_round_f32_to_tf32"):
        raise NotFaithful(f"the descriptor {rounds[0]}", "it rounds to tf32, and this release's interpreter does not")


def _element_size(desc: Any) -> int:
    return int(desc.base.dtype.element_ty.primitive_bitwidth) // 8
