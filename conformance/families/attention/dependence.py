"""Says on which elements of the operands an element of an output of attention depends."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from conformance.families.attention import reference
from conformance.families.attention.problem import Attention
from conformance.families.index_sets import Indices, Needed, chosen, divided, every

_QUERIES = ("batch", "head", "query", "element")
_PAGES = ("page", "key head", "row", "element")
_KEYS = ("batch", "key head", "key", "element")
_AXES = {
    **dict.fromkeys(("q", "out", "grad_out"), _QUERIES),
    **dict.fromkeys(("k", "v"), _KEYS),
    "lse": _QUERIES[:3],
    "slopes": ("head",),
    "query_document": ("batch", "query"),
    "key_document": ("batch", "key"),
}


def axes(problem: Attention, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``."""
    return _PAGES if problem.page and name in ("k", "v") else _AXES[name]


def needed(problem: Attention, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    group = problem.heads // problem.key_heads
    visible = reference.visible(problem, inputs)[:, 0].cpu()  # (batch or 1, queries, keys)
    by_key = output in ("grad_k", "grad_v")
    if by_key:
        key_batch, key_heads, keys = stored[:3]
        batch = key_batch.expand(problem.batch) if problem.key_batch < problem.batch else key_batch
        heads = key_heads.repeat_interleave(group)
    else:
        batch, heads, queries = stored[:3]
        key_batch = every(1) if problem.key_batch < problem.batch else batch
        key_heads = divided(heads, group, problem.key_heads)
    seen = visible[batch if len(visible) > 1 else slice(None)].any(0)
    if by_key:
        queries = seen[:, keys].any(1)
    else:
        keys = seen[queries].any(0)
    if not bool(keys.any()) or not bool(queries.any()):
        return {}
    d, e = every(problem.head_dim), every(problem.values_dim)
    of_queries, of_keys = (batch, heads, queries), (key_batch, key_heads, keys)
    if problem.page:
        pages, rows = reference.key_places(problem, inputs)
        pool, _, page, _ = problem.operand("k").shape
        of_keys = (chosen(pool, pages[keys].cpu()), key_heads, chosen(page, rows[keys].cpu()))
    result: Needed = {"q": (*of_queries, d), "k": (*of_keys, d)}
    if problem.score.kind == "alibi":
        result["slopes"] = (heads,)
    if output == "lse":
        return result
    if output != "grad_v":
        result["v"] = (*of_keys, stored[3] if output == "out" else e)
    if problem.backward:
        result |= {"grad_out": (*of_queries, stored[3] if output == "grad_v" else e), "lse": of_queries}
        if output != "grad_v":
            result["out"] = (*of_queries, e)
    return result
