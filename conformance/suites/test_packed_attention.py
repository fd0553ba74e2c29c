"""Attention of sequences that lie one behind the other: of any lengths, none and one among them; their keys and
values also in pages of a cache."""

from typing import Any

from conformance.cases.scenarios import every_kernel, scenario, where
from conformance.families.attention.problem import PACKED, Attention, Mask, Score
from conformance.families.examples import dtype_fields
from conformance.judging.plan_rules import expect_refusal
from conformance.records import ReasonCode

#: By what it shows: sequences, and blocks of queries and of keys with more of each.
LENGTHS = {
    "one-sequence": (1, (1, 5), (2, 3)),
    # queries per sequence: 0, 1, ...; keys: ..., 1, 0
    "empty-ones": (5, (2, 9), (2, 7)),
    # most have no query
    "more-sequences-than-queries": (9, (0, 3), (1, 20)),
    # causal, the first queries of most see nothing
    "few-keys": (3, (2, 9), (0, 13)),
}
#: In the quick tier: fills that show which keys a query sees, and every value.
QUICK = ("selector", "randn")
SCORES = {"none": Score(), "soft-cap": Score("soft-cap", 15.0)}


def packed(dtype: str, config: Any, lengths: str, mask: str, **fields: Any) -> Attention:
    """A problem of these sequences, two query heads for one of keys."""
    count, *sizes = {**LENGTHS, **PAGED_LENGTHS}[lengths]
    queries, keys = (blocks * max(config.tile) + more for blocks, more in sizes)
    plain = {"heads": 2, "head_dim": 16 if dtype == "fp32" else 32, "kv_heads": 1, "mask": Mask(mask, count)}
    return Attention("attention", 1, queries=queries, keys=keys, **{**plain, **dtype_fields(dtype), **fields})


@scenario(
    where(family="packed-attention"),
    lengths=list(LENGTHS),
    mask=list(PACKED),
    rotate={"score": list(SCORES)},
    configs=1,
    every_row=every_kernel,
)
def test_lengths(conform, harness, kernel, target, dtype, config, lengths, mask, score):
    """A program reads the rows of its own sequence only, and the last block of each is ragged."""
    problem = packed(dtype, config, lengths, mask, score=SCORES[score])
    conform(kernel, problem, config=config, target=target, fills=QUICK if harness.settings.tier == "quick" else None)


#: By what it shows: sequences, and blocks of queries and of keys with more of each. In the second each sequence has few
#: queries, as they are decoded.
PAGED_LENGTHS = {"prefill": (5, (2, 9), (2, 7)), "decode": (6, (0, 7), (3, 5)), "one-sequence": (1, (1, 5), (2, 3))}
#: Keys of a page: less than a block of keys, and as many or more.
PAGES = {"16": 16, "64": 64}


@scenario(
    where(family="paged-attention"),
    lengths=list(PAGED_LENGTHS),
    page=list(PAGES),
    rotate={"mask": list(PACKED[::-1]), "score": list(SCORES)},
    configs=1,
    every_row=every_kernel,
)
def test_pages(conform, harness, kernel, target, dtype, config, lengths, page, mask, score):
    """Pages lie in no order, and the last of a sequence is partly filled. Keys of no sequence are NaN."""
    fields = {"score": SCORES[score], "page": PAGES[page]}
    problem = packed(dtype, config, lengths, mask, **fields)
    conform(kernel, problem, config=config, target=target, fills=QUICK if harness.settings.tier == "quick" else None)


#: Sizes and strides that are all unlike, so that none can stand for another.
UNLIKE: dict[str, dict[str, Any]] = {
    "heads-first": {"heads": 4, "kv_heads": 2, "head_dim": 40, "value_dim": 24, "order": "bhsd"},
    "positions-first": {"heads": 3, "kv_heads": 3, "head_dim": 24, "value_dim": 40, "order": "bshd"},
    "dims-first": {"heads": 2, "kv_heads": 1, "head_dim": 16, "value_dim": 32, "order": "bhds"},
}


@scenario(where(family="packed-attention"), unlike=list(UNLIKE), rotate={"mask": list(PACKED)}, configs=1)
def test_unlike_sizes(conform, harness, kernel, target, dtype, config, unlike, mask):
    """Every size, stride and count differs from every other: each index must be the right one."""
    _check_unlike(conform, harness, kernel, target, dtype, config, unlike, mask, None)


@scenario(where(family="paged-attention"), unlike=list(UNLIKE), rotate={"mask": list(PACKED)}, configs=1)
def test_unlike_pages(conform, harness, kernel, target, dtype, config, unlike, mask):
    """Every size, stride and count differs from every other, also those of pages."""
    _check_unlike(conform, harness, kernel, target, dtype, config, unlike, mask, 24)


def _check_unlike(conform, harness, kernel, target, dtype, config, unlike, mask, page):
    fields = {**UNLIKE[unlike], "mask": Mask(mask, 5), "pad": 3, "padded": "qkvo", "page": page}
    sizes = [2 * max(config.tile) + more for more in (9, 7)]
    problem = Attention("attention", 1, fields.pop("heads"), *sizes, **{**fields, **dtype_fields(dtype)})
    conform(kernel, problem, config=config, target=target, fills=QUICK if harness.settings.tier == "quick" else None)


@scenario(where(family="packed-attention"), dtypes=("bf16",), configs=1)
def test_rows_past_2_31_elements(conform, kernel, target, dtype, config):
    """Sequences begin so far behind the first that offsets need over 32 bits."""
    fields = {"heads": 1, "kv_heads": 1, "pad": 2**31 // max(config.tile) // 16 * 16, "padded": "qkvo"}
    problem = packed(dtype, config, "empty-ones", "packed-causal", **fields)
    conform(kernel, problem, config=config, target=target, fills=("randn",))


@scenario(where(family="paged-attention"), dtypes=("bf16",), configs=1)
def test_pages_past_2_31_elements(conform, kernel, target, dtype, config):
    """Pages lie so far apart that the offset of page 4, though not the distance of two, needs over 32 bits. One or two
    pages from there on are in use."""
    fields = {"heads": 1, "kv_heads": 1, "page": 16, "batch_pad": 2**29, "pad": 16}
    problem = packed(dtype, config, "one-sequence", "packed-causal", **fields)
    conform(kernel, problem, config=config, target=target, fills=("randn",))


@scenario(where(family="paged-attention"), dtypes=("bf16",), configs=1)
def test_page_refusals(conform, recorder, kernel, target, dtype, config):
    """Keys that are not in pages are for other kernels."""
    problem = packed(dtype, config, "one-sequence", "packed")
    expect_refusal(conform, recorder, kernel, problem, config=config, target=target, code=ReasonCode.OPERATION)


@scenario(where(family="packed-attention"), dtypes=("bf16",), configs=1)
def test_refusals(conform, recorder, kernel, target, dtype, config):
    """Batches that are not packed are for other kernels."""
    problem = Attention("attention", 1, 2, 40, 40, 32, dtype, mask=Mask("causal"))
    expect_refusal(conform, recorder, kernel, problem, config=config, target=target, code=ReasonCode.OPERATION)
