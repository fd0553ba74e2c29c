"""Chunked gated linear attention: attention without a softmax, whose state decays from chunk to chunk.

Its grid, and the tiles that its code multiplies, are here too.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any

from conformance.families.attention.problem import ORDERS, STEP
from conformance.families.family import CodeTile, Tiles, whole
from conformance.problems import Operand, Problem, check_choice

#: The dtypes of q, k, v and out.
OPERANDS = ("bf16", "fp16")


@dataclass(frozen=True)
class LinearAttention(Problem):
    """``out[t] = q[t] @ state[t]`` per batch and head, where ``state[t] = decay * state[t - 1] + k[t]^T v[t]``.

    The decay acts at the first position of each chunk of ``chunk`` positions; at the others it is 1. The state before
    the first position is the operand ``initial``. Operands: q and k (batch, heads, length, head_dim), v
    (batch, heads, length, value_dim), decay (batch, heads, chunks) and initial (batch, heads, head_dim, value_dim),
    both fp32. Outputs: out (batch, heads, length, value_dim), and state (batch, heads, head_dim, value_dim), fp32,
    that of the last position. decay, initial and state are contiguous.

    ``order`` is a key of :data:`~conformance.families.attention.problem.ORDERS`. Of q, k, v and out, those whose first
    letter is in ``padded`` have ``pad`` more elements in their second smallest stride. Each has a few more than the one
    before, and ``batch_pad`` more in the stride of the batch.
    """

    batch: int
    heads: int
    length: int
    head_dim: int
    value_dim: int
    chunk: int
    dtype: str = "bf16"
    order: str = "bhsd"
    pad: int = 0
    batch_pad: int = 0
    padded: str = "qkvo"
    op: str = field(default="linear_attention", init=False)

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, OPERANDS)
        check_choice("order", self.order, ORDERS)
        for name in ("batch", "heads", "head_dim", "value_dim", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: linear attention needs sizes >= 1")
        if self.length < 0:
            raise ValueError(f"length is {self.length}: it must be >= 0")

    @property
    def chunks(self) -> int:
        """Chunks of positions, the last one perhaps not whole."""
        return -(-self.length // self.chunk)

    @property
    def has_product(self) -> bool:
        """True if there is anything to multiply."""
        return self.length > 0

    @property
    def dense(self) -> LinearAttention:
        return dataclasses.replace(self, order="bhsd", pad=0, batch_pad=0, padded="qkvo")

    def _sequence(self, name: str, dim: int) -> Operand:
        shape = (self.batch, self.heads, self.length, dim)
        strides = [1, 1, 1, 1]
        order, place = ORDERS[self.order], self.padded.find(name[0])
        size = max(shape[order[-1]], 1)
        for axis in reversed(order[:-1]):
            strides[axis] = size
            if place >= 0:
                more = self.pad + place * min(self.pad, STEP)
                strides[axis] += more if axis == order[2] else self.batch_pad if axis == 0 else 0
            size = strides[axis] * max(shape[axis], 1)
        return Operand(name, shape, tuple(strides), self.dtype)

    def _fp32(self, name: str, *shape: int) -> Operand:
        matrix = max(shape[0], 1) * (max(shape[1], 1) if len(shape) > 1 else 1)
        inner = (shape[1], 1) if len(shape) > 1 else (1,)
        return Operand(name, (self.batch, self.heads, *shape), (self.heads * matrix, matrix, *inner), "fp32")

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """q, k, v, decay and initial."""
        return (
            self._sequence("q", self.head_dim),
            self._sequence("k", self.head_dim),
            self._sequence("v", self.value_dim),
            self._fp32("decay", self.chunks),
            self._fp32("initial", self.head_dim, self.value_dim),
        )

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """out and state."""
        return (self._sequence("out", self.value_dim), self._fp32("state", self.head_dim, self.value_dim))

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``linear_attention-2x4x160-d64.80-c32-bf16``."""
        parts = [self.op, f"{self.batch}x{self.heads}x{self.length}", f"d{self.head_dim}.{self.value_dim}"]
        parts += [f"c{self.chunk}", self.dtype]
        parts += [self.order] if self.order != "bhsd" else []
        parts += [f"pad{self.pad}"] if self.pad else []
        parts += [f"far{self.batch_pad}"] if self.batch_pad else []
        parts += [f"of.{self.padded}"] if self.padded != "qkvo" else []
        return "-".join(parts)


def tiles(problem: LinearAttention, config: Any) -> Tiles:
    """Returns one row of tiles, which walks through the positions, and tiles of the columns of v, for each head."""
    return (1, -(-problem.value_dim // config.block_v), problem.heads * problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns (tiles of the columns of v, heads, batch)."""
    return (tiles[1], plan.problem.heads, plan.problem.batch)


def code_tiles(kernel: Any, plan: Any, launch: str) -> set[CodeTile]:
    """Returns the tiles of q times the state, q times k, and scores times v. The last is that of k times v, or v times
    k, which is added to the state."""
    config, dim = plan.config, whole(plan.problem.head_dim)
    t, v = config.block_t, config.block_v
    return {(t, v, dim), (t, t, dim), (t, v, t), (v, dim, t) if kernel.transposed else (dim, v, t)}
