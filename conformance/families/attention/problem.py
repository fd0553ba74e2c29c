"""Scaled dot-product attention with a mask and a score modification, forward and backward.

Its grid, and the tiles that its code multiplies, are here too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

from conformance.families.family import CodeTile, Tiles, blocks, whole
from conformance.heuristics.configs import AnyConfig, FlexBackwardConfig, FlexConfig
from conformance.problems import DTYPES, EVERY_FP8, RESULTS, Operand, Problem, check_choice

MASKS = ("full", "causal", "sliding-window", "document", "packed", "packed-causal")
#: Those of sequences that lie one behind the other in one batch.
PACKED = ("packed", "packed-causal")
SCORES = ("none", "soft-cap", "alibi")
#: Operands that are factors of q, k and v.
SCALES = ("q_scale", "k_scale", "v_scale")

#: How the tensors with a head dim lie in memory: order of the strides, largest first, of batch, heads, sequence, head
#: dim.
ORDERS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "bhds": (0, 1, 3, 2)}

#: Letters of the tensors that may be padded. "o" stands for all outputs, "f" for the operand out (the output of the
#: forward pass) and "g" for grad_out.
LETTERS = "qkvofg"
#: By how many elements the pads of padded tensors differ, at most: tensors that lie far apart need much memory each.
STEP = 16


@dataclass(frozen=True)
class Mask:
    """The keys that a query sees. Query i stands at key position ``i + keys - queries``: the last query sees the last
    key.

    * "full": all keys;
    * "causal": no later keys;
    * "sliding-window": the ``size`` nearest of the causal keys;
    * "document": the keys with the query's document number. The operands ``query_document`` and ``key_document`` hold
      the numbers.
    * "packed": the keys of the query's sequence. There are ``size`` sequences, one after the other. Number s has the
      queries from ``query_starts[s]`` and the keys from ``key_starts[s]`` on, up to those of the next. A sequence may
      have no queries or no keys. These operands have size + 1 numbers, from 0 to all queries or keys;
    * "packed-causal": of those no later keys. The last query of a sequence stands at its last key.
    """

    kind: str = "full"
    size: int = 0

    def __post_init__(self) -> None:
        check_choice("mask", self.kind, MASKS)
        if (self.kind in ("sliding-window", *PACKED)) != (self.size > 0):
            detail = "a sliding window needs a size and packed sequences a number, others none"
            raise ValueError(f"mask {self.kind!r} with size {self.size}: {detail}")

    @property
    def packed(self) -> bool:
        """True if it is of packed sequences."""
        return self.kind in PACKED

    @property
    def is_data(self) -> bool:
        """True if operands say which keys a query sees."""
        return self.packed or self.kind == "document"

    @property
    def id(self) -> str:
        return f"{self.kind}{self.size or ''}"


@dataclass(frozen=True)
class Score:
    """The change to a scaled score s before the softmax. "none"; "soft-cap": ``cap * tanh(s / cap)``; "alibi": ``s +
    slope[head] * (key - position of the query)`` with the operand ``slopes`` (heads,), fp32."""

    kind: str = "none"
    cap: float = 0.0

    def __post_init__(self) -> None:
        check_choice("score", self.kind, SCORES)
        if (self.kind == "soft-cap") != (self.cap > 0):
            raise ValueError(f"score {self.kind!r} with cap {self.cap}: a soft cap needs a cap, others none")

    @property
    def id(self) -> str:
        return f"{self.kind}{self.cap:g}" if self.cap else self.kind


@dataclass(frozen=True)
class Attention(Problem):
    """``out = softmax(score(q k^T * scale) where mask) v`` per batch and head.

    ``op`` "attention": operands q (batch, heads, queries, head_dim), k (batch, kv_heads, keys, head_dim) and v (batch,
    kv_heads, keys, value_dim). Outputs are out (batch, heads, queries, value_dim) and lse (batch, heads, queries),
    fp32, the natural logarithm of the softmax's denominator. A row that sees no key has out 0 and lse -inf. ``op``
    "attention_backward": also the operands out, lse and grad_out, outputs grad_q, grad_k and grad_v.

    Query head h uses key head ``h // (heads // kv_heads)``. With ``kv_batch`` 1 the whole batch shares k and v. With
    ``page`` k and v of packed sequences lie in pages of as many keys. They are (pages, kv_heads, page, their dim), in
    any order, and pages that no sequence uses are among them. ``key_lengths`` (sequences,), int32, stands for
    ``key_starts``. ``page_table`` (sequences, pages of one), int32, has in row s the pages of sequence s in order; what
    is behind its last page is not used.

    ``scale`` is 1 / sqrt(head_dim) unless given. A block-sparse kernel skips blocks with the edge ``block``; with None
    it visits every block. ``order`` is a key of :data:`ORDERS`. ``padded`` has letters of :data:`LETTERS`. The second
    smallest stride of its n-th tensor has ``pad`` more elements, and ``n - 1`` times ``pad`` or, if that is less, STEP.
    That of the batch has ``batch_pad`` more. The second and the third output have one and two elements more than the
    first. So no two tensors have the same strides. ``out`` has the dtype ``out_dtype``: unless given that of q, k and
    v, or bf16 where they are fp8. ``scaled``: q, k and v stand for their products with the operands ``q_scale``,
    ``k_scale`` and ``v_scale``, each one fp32 number above 0.
    """

    op: str
    batch: int
    heads: int
    queries: int
    keys: int
    head_dim: int
    dtype: str = "fp16"
    kv_heads: int | None = None
    kv_batch: int | None = None
    value_dim: int | None = None
    mask: Mask = Mask()
    score: Score = Score()
    scale: float | None = None
    block: int | None = None
    order: str = "bhsd"
    pad: int = 0
    precision: str = "ieee"
    batch_pad: int = 0
    padded: str = "qkv"
    out_dtype: str | None = None
    scaled: bool = False
    page: int | None = None

    def __post_init__(self) -> None:
        check_choice("operation", self.op, ("attention", "attention_backward"))
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("out_dtype", self.out_dtype or "bf16", RESULTS)
        check_choice("order", self.order, ORDERS)
        for name in ("batch", "heads", "queries", "keys", "head_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: attention needs sizes >= 1")
        if self.heads % self.key_heads:
            raise ValueError(f"{self.heads} heads share {self.key_heads} of k and v: kv_heads must divide heads")
        if self.mask.packed and (self.batch > 1 or self.block or self.backward or self.score.kind == "alibi"):
            raise ValueError(f"{self.id}: packed sequences have batch 1, no block lists, no gradients and no slopes")
        if self.backward and (self.out_dtype or self.scaled or self.dtype in EVERY_FP8):
            raise ValueError(f"{self.id}: gradients have the dtype of q, k and v, which is not fp8, and no scales")
        if self.page is not None and not (self.page > 0 and self.mask.packed):
            raise ValueError(f"page is {self.page}: packed sequences have pages, of one key at least")
        if self.key_batch not in (1, self.batch):
            raise ValueError(f"kv_batch is {self.kv_batch}: it must be 1 or {self.batch}")

    @property
    def key_heads(self) -> int:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def key_batch(self) -> int:
        return self.batch if self.kv_batch is None else self.kv_batch

    @property
    def values_dim(self) -> int:
        """Head dim of v."""
        return self.value_dim or self.head_dim

    @property
    def softmax_scale(self) -> float:
        return 1.0 / math.sqrt(self.head_dim) if self.scale is None else self.scale

    @property
    def backward(self) -> bool:
        return self.op == "attention_backward"

    @property
    def contiguous(self) -> Attention:
        """The same problem whose keys lie one behind the other, not in pages."""
        return dataclasses.replace(self, page=None)

    @property
    def dense(self) -> Attention:
        return dataclasses.replace(self, order="bhsd", pad=0, batch_pad=0, padded="qkv", block=None)

    def _tensor(self, name: str, batch: int, heads: int, length: int, dim: int, letter: str, more: int) -> Operand:
        shape = (batch, heads, length, dim)
        strides = [1, 1, 1, 1]
        order, place = ORDERS[self.order], self.padded.find(letter) + 1
        size = shape[order[-1]]
        for axis in reversed(order[:-1]):
            strides[axis] = size
            if place:
                pad = self.pad + (place - 1) * min(self.pad, STEP) + more
                strides[axis] += pad if axis == order[2] else self.batch_pad if axis == 0 else 0
            size = strides[axis] * shape[axis]
        return Operand(name, shape, tuple(strides), self.dtype)

    def _query_like(self, name: str, dim: int, letter: str) -> Operand:
        return self._tensor(name, self.batch, self.heads, self.queries, dim, letter, 0)

    def _out(self, letter: str) -> Operand:
        dtype = self.out_dtype or ("bf16" if self.dtype in EVERY_FP8 else self.dtype)
        return dataclasses.replace(self._query_like("out", self.values_dim, letter), dtype=dtype)

    def _key_like(self, name: str, dim: int, letter: str, more: int = 0) -> Operand:
        if self.page:  # sequences fill as many pages at most; one more is of no sequence
            pages = self.keys // self.page + self.mask.size + 1
            return self._tensor(name, pages, self.key_heads, self.page, dim, letter, more)
        return self._tensor(name, self.key_batch, self.key_heads, self.keys, dim, letter, more)

    def _lse(self) -> Operand:
        shape = (self.batch, self.heads, self.queries)
        return Operand("lse", shape, (self.heads * self.queries, self.queries, 1), "fp32")

    def _pages(self) -> list[Operand]:
        assert self.page
        sequences, width = self.mask.size, -(-self.keys // self.page) + 1
        table = Operand("page_table", (sequences, width), (width, 1), "int32")
        return [Operand("key_lengths", (sequences,), (1,), "int32"), table]

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Returns q, k, v, then what the mask needs: slopes (alibi), query_document and key_document, or query_starts
        and key_starts. With pages these are query_starts, key_lengths and page_table (int32). Scales follow, then out,
        lse, grad_out (backward)."""
        operands = [
            self._query_like("q", self.head_dim, "q"),
            self._key_like("k", self.head_dim, "k"),
            self._key_like("v", self.values_dim, "v"),
        ]
        if self.score.kind == "alibi":
            operands.append(Operand("slopes", (self.heads,), (1,), "fp32"))
        if self.mask.kind == "document":
            operands.append(Operand("query_document", (self.batch, self.queries), (self.queries, 1), "int32"))
            operands.append(Operand("key_document", (self.batch, self.keys), (self.keys, 1), "int32"))
        if self.mask.packed:
            count = self.mask.size + 1
            operands.append(Operand("query_starts", (count,), (1,), "int32"))
            operands += self._pages() if self.page else [Operand("key_starts", (count,), (1,), "int32")]
        if self.scaled:
            operands += [Operand(name, (1,), (1,), "fp32") for name in SCALES]
        if self.backward:
            operands += [self._out("f"), self._lse()]
            operands.append(self._query_like("grad_out", self.values_dim, "g"))
        return tuple(operands)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """out and lse; of the backward pass grad_q, grad_k and grad_v."""
        if not self.backward:
            return (self._out("o"), self._lse())
        return (
            self._query_like("grad_q", self.head_dim, "o"),
            self._key_like("grad_k", self.head_dim, "o", 1),
            self._key_like("grad_v", self.values_dim, "o", 2),
        )

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``attention-2x4x96x160-d64-fp16-causal``."""
        parts = [self.op, f"{self.batch}x{self.heads}x{self.queries}x{self.keys}", f"d{self.head_dim}"]
        parts[-1] += f".{self.value_dim}" if self.value_dim else ""
        parts.append(self.precision if self.dtype == "fp32" and self.precision == "tf32" else self.dtype)
        parts += [f"to.{self.out_dtype}"] if self.out_dtype else []
        parts += ["scaled"] if self.scaled else []
        if (self.key_heads, self.key_batch) != (self.heads, self.batch):
            parts.append(f"kv{self.key_batch}x{self.key_heads}")
        parts.append(self.mask.id)
        parts += [self.score.id] if self.score.kind != "none" else []
        parts += [f"page{self.page}"] if self.page else []
        parts += [f"scale{self.scale:g}"] if self.scale is not None else []
        parts += [f"block{self.block}"] if self.block else []
        parts += [self.order] if self.order != "bhsd" else []
        parts += [f"pad{self.pad}"] if self.pad else []
        parts += [f"far{self.batch_pad}"] if self.batch_pad else []
        parts += [f"of.{self.padded}"] if self.padded != "qkv" else []
        return "-".join(parts)


def tiles(problem: Attention, config: Any) -> Tiles:
    """Returns one tile for each element of the batch: :func:`grid` counts in queries or keys."""
    return (1, 1, problem.batch)


def judged_tiles(problem: Attention, config: Any) -> tuple[int, int]:
    """Returns the tiles of the scores: blocks of queries times batch and heads, blocks of keys."""
    queries = blocks(problem.queries, config, "block_m")
    return problem.batch * problem.heads * queries, blocks(problem.keys, config, "block_n")


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns the programs of a forward kernel by queries, of a backward kernel by keys. A kernel for few queries that
    is not told into how many parts it splits the keys takes about two programs for each free multiprocessor."""
    problem, config = plan.problem, plan.config
    if kernel.few_queries:
        pairs = problem.batch * problem.key_heads
        return (pairs, plan.variant.splits or max(1, free // pairs * 2), 1)
    if problem.backward:
        return (-(-problem.keys // config.block_n), problem.key_batch, problem.key_heads)
    sequences = problem.mask.size if problem.mask.packed else problem.batch
    return (-(-problem.queries // config.block_m), sequences, problem.heads)


def code_tiles(kernel: Any, plan: Any, launch: str) -> set[CodeTile] | None:
    """Returns the tiles of all products in the code of one launch: the main one, "", or the backward one for q."""
    if launch not in ("", "attention_backward_queries"):
        return None
    problem, config = plan.problem, plan.config
    return _gradients(problem, config, launch) if problem.backward else _outputs(problem, config)


def _outputs(problem: Attention, config: AnyConfig) -> set[CodeTile]:
    """Scores, which sum over the head dim, and outputs, which sum over keys. With few queries one tile holds those of
    all heads that share a head of k."""
    shared = problem.heads // problem.key_heads
    rows: int = getattr(config, "block_m", None) or whole(problem.queries * shared)
    keys: int = config.block_n  # type: ignore[attr-defined]
    return {(rows, keys, whole(problem.head_dim)), (rows, whole(problem.values_dim), keys)}


def _gradients(problem: Attention, config: AnyConfig, launch: str) -> set[CodeTile]:
    """Returns the tiles of scores and gradients of weights, and of the sums of what these are multiplied with. The
    launch for k and v sums over queries, that for q over keys."""
    assert isinstance(config, FlexConfig)
    dim, value_dim = whole(problem.head_dim), whole(problem.values_dim)
    if not launch:
        keys, queries = config.block_n, config.block_m
        scores = {(keys, queries, dim), (keys, queries, value_dim)}
        return scores | {(keys, dim, queries), (keys, value_dim, queries)}
    queries, keys = config.block_n, config.block_m
    if isinstance(config, FlexBackwardConfig):
        queries, keys = config.block_m2, config.block_n2
    return {(queries, keys, dim), (queries, keys, value_dim), (queries, dim, keys)}
