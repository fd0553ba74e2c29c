"""Attention of few queries: the keys of one batch and head of k are split among programs, then the parts are merged."""

import triton
import triton.language as tl

from conformance.kernels.device.attention_tiles import LOG2E, attend_part, head


@triton.jit
def attention_decode(
    q_ptr, k_ptr, v_ptr, acc_ptr, total_ptr, largest_ptr, slopes_ptr, query_document_ptr, key_document_ptr,
    partial_count_ptr, partial_index_ptr, full_count_ptr, full_index_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_list, key_heads, queries, keys, window, scale, cap,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr, LIST_BLOCK: tl.constexpr, MASK: tl.constexpr,
    SCORE: tl.constexpr, RAW: tl.constexpr, PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Grid (batch * kv_heads, SPLITS, 1). Row r of a program is query r % queries. Its query head is the r //
    queries-th of the GROUP that share the head of k and v.

    Writes acc (batch * kv_heads, SPLITS, BLOCK_M, BLOCK_V), total and largest (batch * kv_heads, SPLITS, BLOCK_M), all
    fp32: zeros and -inf for a split without visible keys. The block lists have one entry per batch.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    batch, key_head = pair // key_heads, pair % key_heads
    offset = keys - queries
    rows = tl.arange(0, BLOCK_M)
    query = rows % queries
    query_head = key_head * GROUP + rows // queries
    exists = rows < GROUP * queries
    columns = tl.arange(0, BLOCK_D)
    q_base = head(q_ptr, batch, query_head, stride_qb, stride_qh)
    q_tile = head(q_base[:, None], query[:, None], columns[None, :], stride_qm, stride_qd)
    q = tl.load(q_tile, mask=exists[:, None] & (columns < HEAD_DIM)[None, :], other=0.0)
    k_base = head(k_ptr, batch, key_head, stride_kb, stride_kh)
    v_base = head(v_ptr, batch, key_head, stride_vb, stride_vh)
    slope = 0.0
    if SCORE == "alibi":
        slope = tl.load(slopes_ptr + query_head, mask=exists)[:, None]
    query_document = 0
    key_document_base = key_document_ptr
    if MASK == "document":
        query_document = tl.load(query_document_ptr + batch * queries + query)[:, None]
        key_document_base += batch * keys
    unit = scale if RAW else 1.0

    acc, total, largest = attend_part(
        q, offset, keys - 1, batch * stride_list, split, k_base, v_base, key_document_base,
        partial_count_ptr, partial_index_ptr, full_count_ptr, full_index_ptr,
        query[:, None] + offset, query_document, slope, keys, window, scale, cap, unit * LOG2E,
        stride_kn, stride_kd, stride_vn, stride_vd, HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V,
        BLOCK_M, BLOCK_N, SPLITS, LIST_BLOCK, MASK, SCORE, RAW, PRECISION, WIDE_INDEX,
    )  # fmt: skip

    part = (pair.to(tl.int64) * SPLITS + split) * BLOCK_M
    tl.store(total_ptr + part + rows, total)
    tl.store(largest_ptr + part + rows, largest)
    values = tl.arange(0, BLOCK_V)
    tl.store(acc_ptr + part * BLOCK_V + rows[:, None] * BLOCK_V + values[None, :], acc)


@triton.jit
def attention_decode_merge(
    acc_ptr, total_ptr, largest_ptr, out_ptr, lse_ptr, stride_ob, stride_oh, stride_om, stride_od,
    key_heads, queries, scale,
    GROUP: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr, RAW: tl.constexpr,
):  # fmt: skip
    """Grid (batch * kv_heads, GROUP * queries): one row of the output from its SPLITS parts, in a fixed order.

    Each part is rescaled from its own largest score to the largest of all.
    """
    pair, row = tl.program_id(0), tl.program_id(1)
    batch, key_head = pair // key_heads, pair % key_heads
    query_head, query = key_head * GROUP + row // queries, row % queries
    unit = scale if RAW else 1.0
    rate = unit * LOG2E
    first = pair.to(tl.int64) * SPLITS * BLOCK_M + row
    values = tl.arange(0, BLOCK_V)
    acc = tl.zeros((BLOCK_V,), dtype=tl.float32)
    total = 0.0
    largest = float("-inf")
    for begin in range(0, SPLITS, BLOCK_SPLITS):
        splits = begin + tl.arange(0, BLOCK_SPLITS)
        exists = splits < SPLITS
        part = first + splits * BLOCK_M
        part_largest = tl.load(largest_ptr + part, mask=exists, other=float("-inf"))
        part_total = tl.load(total_ptr + part, mask=exists, other=0.0)
        part_acc = tl.load(acc_ptr + part[:, None] * BLOCK_V + values[None, :], mask=exists[:, None], other=0.0)
        larger = tl.maximum(largest, tl.max(part_largest, 0))
        reference = tl.where(larger == float("-inf"), 0.0, larger)
        weight = tl.exp2((part_largest - reference) * rate)
        shrink = tl.exp2((largest - reference) * rate)
        total = total * shrink + tl.sum(part_total * weight, 0)
        acc = acc * shrink + tl.sum(part_acc * weight[:, None], 0)
        largest = larger
    acc = acc / tl.where(total == 0.0, 1.0, total)
    out_base = head(out_ptr, batch, query_head, stride_ob, stride_oh)
    out_row = head(out_base, query, values, stride_om, stride_od)
    tl.store(out_row, acc.to(out_ptr.dtype.element_ty), mask=values < VALUE_DIM)
    lse = tl.where(total == 0.0, float("-inf"), largest * unit + tl.log(total))
    tl.store(lse_ptr + (batch * key_heads * GROUP + query_head).to(tl.int64) * queries + query, lse)
