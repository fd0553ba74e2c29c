"""Attention forward: one block of queries of one batch and head per program, online softmax over blocks of keys."""

import triton
import triton.language as tl

from conformance.kernels.device.attention_tiles import LOG2E, attend_part, head, load_rows, store_rows


@triton.jit
def attention_forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, slopes_ptr, query_document_ptr, key_document_ptr,
    query_starts_ptr, key_starts_ptr, key_lengths_ptr, page_table_ptr, q_scale_ptr, k_scale_ptr, v_scale_ptr,
    partial_count_ptr, partial_index_ptr, full_count_ptr, full_index_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    stride_kp, stride_vp, stride_table, stride_list, queries, keys, window, scale, cap,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, LIST_BLOCK: tl.constexpr, MASK: tl.constexpr, SCORE: tl.constexpr,
    RAW: tl.constexpr, PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
    DESCRIBED: tl.constexpr, STORED: tl.constexpr, SPECIALISED: tl.constexpr, MERGED: tl.constexpr,
    PACKED: tl.constexpr, PAGE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Grid (cdiv(queries, BLOCK_M), batch, heads). GROUP query heads share a head of k and v.

    DESCRIBED: q, k and v are loaded by descriptors, whose last stride is 1. STORED: one stores ``out``. SPECIALISED:
    the loops over keys are warp-specialised. MERGED: there is one loop, see :func:`attend_part`. PACKED: the second
    number of a program is that of a sequence, whose queries and keys begin where ``query_starts`` and ``key_starts``
    say. The strides of the batch are then those of rows. PAGE > 0: a sequence has as many keys as ``key_lengths`` says,
    in pages of PAGE; its row of ``page_table`` says in which. SCALED: q, k and v have one factor each.

    The block lists, where there are some (LIST_BLOCK > 0), have ``stride_list`` entries per batch, one per LIST_BLOCK
    queries. ``lse`` (batch, heads, queries) is contiguous.
    """
    block, batch, query_head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    key_head = query_head // GROUP
    matrix = query_head if PACKED else batch * tl.num_programs(2) + query_head
    lse_base = lse_ptr + matrix.to(tl.int64) * queries
    of_queries = batch
    of_keys = batch
    if PACKED:
        of_queries = tl.load(query_starts_ptr + batch)
        queries = tl.load(query_starts_ptr + batch + 1) - of_queries
        if PAGE > 0:
            keys = tl.load(key_lengths_ptr + batch)
            page_table_ptr += batch.to(tl.int64) * stride_table
        else:
            of_keys = tl.load(key_starts_ptr + batch)
            keys = tl.load(key_starts_ptr + batch + 1) - of_keys
        lse_base += of_queries
    offset = keys - queries
    if PACKED:  # a block behind the last query has no keys
        keys = tl.where(block * BLOCK_M < queries, keys, 0)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    first = block * BLOCK_M + offset
    entry = 0
    if LIST_BLOCK > 0:
        entry = batch * stride_list + block * BLOCK_M // LIST_BLOCK
    q_base = head(q_ptr, of_queries, query_head, stride_qb, stride_qh)
    k_base = head(k_ptr, of_keys, key_head, stride_kb, stride_kh)
    v_base = head(v_ptr, of_keys, key_head, stride_vb, stride_vh)
    if DESCRIBED:  # by its whole name: Triton 3.3 looks for each name of tl, also in code that it leaves out
        q_desc = triton.language.make_tensor_descriptor(q_base, [queries, HEAD_DIM], [stride_qm, 1], [BLOCK_M, BLOCK_D])
        k_rows = triton.language.make_tensor_descriptor(k_base, [keys, HEAD_DIM], [stride_kn, 1], [BLOCK_N, BLOCK_D])
        v_rows = triton.language.make_tensor_descriptor(v_base, [keys, VALUE_DIM], [stride_vn, 1], [BLOCK_N, BLOCK_V])
        q = q_desc.load([block * BLOCK_M, 0])
    else:
        k_rows = k_base
        v_rows = v_base
        q = load_rows(q_base, rows, queries, stride_qm, stride_qd, HEAD_DIM, BLOCK_D, False, WIDE_INDEX)
    slope = 0.0
    if SCORE == "alibi":
        slope = tl.load(slopes_ptr + query_head)
    query_document = 0
    key_document_base = key_document_ptr
    if MASK == "document":
        query_document = tl.load(query_document_ptr + batch * queries + rows, mask=rows < queries)[:, None]
        key_document_base += batch * keys
    if SCALED:
        scale = scale * (tl.load(q_scale_ptr) * tl.load(k_scale_ptr))
    unit = scale if RAW else 1.0

    acc, total, largest = attend_part(
        q, first, first + BLOCK_M - 1, entry, 0, k_rows, v_rows, key_document_base,
        partial_count_ptr, partial_index_ptr, full_count_ptr, full_index_ptr,
        rows[:, None] + offset, query_document, slope, keys, window, scale, cap, unit * LOG2E,
        stride_kn, stride_kd, stride_vn, stride_vd, HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V,
        BLOCK_M, BLOCK_N, 1, LIST_BLOCK, MASK, SCORE, RAW, PRECISION, WIDE_INDEX,
        DESCRIBED, SPECIALISED, MERGED, page_table_ptr, stride_kp, stride_vp, PAGE,
    )  # fmt: skip

    # A row that sees nothing has a sum of 0: its output is 0, its log -inf.
    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    if SCALED:
        acc = acc * tl.load(v_scale_ptr)
    out_base = head(out_ptr, of_queries, query_head, stride_ob, stride_oh)
    if STORED:
        out_desc = triton.language.make_tensor_descriptor(
            out_base, [queries, VALUE_DIM], [stride_om, 1], [BLOCK_M, BLOCK_V]
        )
        out_desc.store([block * BLOCK_M, 0], acc.to(out_ptr.dtype.element_ty))
    else:
        store_rows(acc, out_base, rows, queries, stride_om, stride_od, VALUE_DIM, BLOCK_V, WIDE_INDEX)
    lse = tl.where(total == 0.0, float("-inf"), largest * unit + tl.log(total))
    tl.store(lse_base + rows, lse, mask=rows < queries)
