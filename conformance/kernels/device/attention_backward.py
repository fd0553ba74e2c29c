"""Attention backward without atomics: row sums of out * grad_out, then the gradients of q, and those of k and v.

Probabilities are recomputed from q, k and lse. Each gradient has one program per block, which sums in a fixed order.
"""

import triton
import triton.language as tl

from conformance.kernels.device.attention_tiles import (
    LOG2E,
    head,
    key_blocks,
    load_rows,
    modified,
    query_blocks,
    step_start,
    store_rows,
    visible,
)


@triton.jit
def attention_delta(
    out_ptr, grad_out_ptr, delta_ptr, stride_ob, stride_oh, stride_om, stride_od,
    stride_gb, stride_gh, stride_gm, stride_gd, queries,
    VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Grid (cdiv(queries, BLOCK_M), batch, heads): delta (batch, heads, queries), fp32 = sum of out * grad_out."""
    batch, query_head = tl.program_id(1), tl.program_id(2)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    out_base = head(out_ptr, batch, query_head, stride_ob, stride_oh)
    grad_base = head(grad_out_ptr, batch, query_head, stride_gb, stride_gh)
    out = load_rows(out_base, rows, queries, stride_om, stride_od, VALUE_DIM, BLOCK_V, False, WIDE_INDEX)
    grad_out = load_rows(grad_base, rows, queries, stride_gm, stride_gd, VALUE_DIM, BLOCK_V, False, WIDE_INDEX)
    delta = tl.sum(out.to(tl.float32) * grad_out, 1)
    delta_base = delta_ptr + (batch * tl.num_programs(2) + query_head).to(tl.int64) * queries
    tl.store(delta_base + rows, delta, mask=rows < queries)


@triton.jit
def _softmax_gradient(
    products, grad_p, lse, delta, positions, columns, keys, query_document, key_document, slope, window, scale, cap,
    MASK: tl.constexpr, SCORE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Probabilities, and gradients of the scaled scores before their modification; either way round.

    An lse of -inf belongs to a row that sees nothing: whatever comes of it here, the mask drops it.
    """
    scores = modified(products, positions, columns, slope, scale, cap, SCORE)
    p = tl.exp2((scores - lse) * LOG2E)
    grad = p * (grad_p - delta)
    if SCORE == "soft-cap":
        capped = scores / cap
        grad = grad * (1.0 - capped * capped)
    if MASKED:
        seen = visible(positions, columns, keys, query_document, key_document, window, MASK)
        p = tl.where(seen, p, 0.0)
        grad = tl.where(seen, grad, 0.0)
    return p, grad


@triton.jit
def _add_key_gradients(
    grad_k, grad_v, k, v, first, end, index_ptr, q_base, grad_out_base, lse_base, delta_base, query_document_base,
    columns, key_document, slope, queries, keys, window, scale, cap, stride_qm, stride_qd, stride_gm, stride_gd,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, LIST_BLOCK: tl.constexpr, MASK: tl.constexpr, SCORE: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Adds what the queries of the steps [first, end) contribute; tiles lie keys x queries."""
    for step in range(first, end):
        rows = step_start(step, index_ptr, LIST_BLOCK, BLOCK_M) + tl.arange(0, BLOCK_M)
        q = load_rows(q_base, rows, queries, stride_qm, stride_qd, HEAD_DIM, BLOCK_D, not MASKED, WIDE_INDEX)
        grad_out = load_rows(
            grad_out_base, rows, queries, stride_gm, stride_gd, VALUE_DIM, BLOCK_V, not MASKED, WIDE_INDEX
        )
        lse = tl.load(lse_base + rows, mask=rows < queries, other=0.0)
        delta = tl.load(delta_base + rows, mask=rows < queries, other=0.0)
        if MASK == "document" and MASKED:
            query_document = tl.load(query_document_base + rows, mask=rows < queries)[None, :]
        else:
            query_document = 0
        products = tl.dot(k, tl.trans(q), input_precision=PRECISION, out_dtype=tl.float32)
        grad_p = tl.dot(v, tl.trans(grad_out), input_precision=PRECISION, out_dtype=tl.float32)
        p, grad = _softmax_gradient(
            products, grad_p, lse[None, :], delta[None, :], rows[None, :] + (keys - queries), columns[:, None], keys,
            query_document, key_document, slope, window, scale, cap, MASK, SCORE, MASKED,
        )  # fmt: skip
        grad_v = tl.dot(p.to(v.dtype), grad_out, grad_v, input_precision=PRECISION, out_dtype=tl.float32)
        grad_k = tl.dot(grad.to(k.dtype), q, grad_k, input_precision=PRECISION, out_dtype=tl.float32)
    return grad_k, grad_v


@triton.jit
def attention_backward_keys(
    q_ptr, k_ptr, v_ptr, grad_out_ptr, lse_ptr, delta_ptr, grad_k_ptr, grad_v_ptr,
    slopes_ptr, query_document_ptr, key_document_ptr,
    partial_count_ptr, partial_index_ptr, full_count_ptr, full_index_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gm, stride_gd,
    stride_gkb, stride_gkh, stride_gkn, stride_gkd, stride_gvb, stride_gvh, stride_gvn, stride_gvd,
    stride_list, batches, heads, queries, keys, window, scale, cap,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, LIST_BLOCK: tl.constexpr, MASK: tl.constexpr, SCORE: tl.constexpr,
    PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Grid (cdiv(keys, BLOCK_N), kv_batch, kv_heads): gradients of BLOCK_N keys and values.

    Sums over the GROUP query heads that share them and over the ``batches`` that do (1, or all if kv_batch is 1), in
    that order. The block lists are those of key blocks: they name blocks of LIST_BLOCK queries.
    """
    block, key_batch, key_head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    offset = keys - queries
    columns = block * BLOCK_N + tl.arange(0, BLOCK_N)
    k_base = head(k_ptr, key_batch, key_head, stride_kb, stride_kh)
    v_base = head(v_ptr, key_batch, key_head, stride_vb, stride_vh)
    k = load_rows(k_base, columns, keys, stride_kn, stride_kd, HEAD_DIM, BLOCK_D, False, WIDE_INDEX)
    v = load_rows(v_base, columns, keys, stride_vn, stride_vd, VALUE_DIM, BLOCK_V, False, WIDE_INDEX)
    grad_k = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    grad_v = tl.zeros((BLOCK_N, BLOCK_V), dtype=tl.float32)
    for sharer in range(batches * GROUP):
        batch = key_batch + sharer // GROUP
        query_head = key_head * GROUP + sharer % GROUP
        q_base = head(q_ptr, batch, query_head, stride_qb, stride_qh)
        grad_out_base = head(grad_out_ptr, batch, query_head, stride_gb, stride_gh)
        statistics = (batch * heads + query_head).to(tl.int64) * queries
        slope = 0.0
        if SCORE == "alibi":
            slope = tl.load(slopes_ptr + query_head)
        key_document = 0
        query_document_base = query_document_ptr
        if MASK == "document":
            key_document = tl.load(key_document_ptr + batch * keys + columns, mask=columns < keys)[:, None]
            query_document_base += batch * queries
        if LIST_BLOCK > 0:
            steps: tl.constexpr = LIST_BLOCK // BLOCK_M
            entry = batch * stride_list + block * BLOCK_N // LIST_BLOCK
            index = entry.to(tl.int64) * tl.cdiv(queries, LIST_BLOCK)
            partial, full = partial_index_ptr + index, full_index_ptr + index
            first_full, end_full = 0, tl.load(full_count_ptr + entry) * steps
            masked, end = 0, tl.load(partial_count_ptr + entry) * steps
        else:
            partial = partial_index_ptr  # None, which Triton 3.3 does not assign as one of several
            full = full_index_ptr
            first_key = block * BLOCK_N
            first, first_full, end_full, end = query_blocks(
                first_key, first_key + BLOCK_N - 1, queries, offset, window, BLOCK_M, MASK
            )
            masked = end_full
            if MASK == "causal" or MASK == "sliding-window":
                grad_k, grad_v = _add_key_gradients(
                    grad_k, grad_v, k, v, first, first_full, partial, q_base, grad_out_base,
                    lse_ptr + statistics, delta_ptr + statistics, query_document_base, columns, key_document, slope,
                    queries, keys, window, scale, cap, stride_qm, stride_qd, stride_gm, stride_gd,
                    HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_M, LIST_BLOCK, MASK, SCORE, True, PRECISION,
                    WIDE_INDEX,
                )  # fmt: skip
        if LIST_BLOCK > 0 or MASK != "document":  # else no block is known to be seen by all
            grad_k, grad_v = _add_key_gradients(
                grad_k, grad_v, k, v, first_full, end_full, full, q_base, grad_out_base,
                lse_ptr + statistics, delta_ptr + statistics, query_document_base, columns, key_document, slope,
                queries, keys, window, scale, cap, stride_qm, stride_qd, stride_gm, stride_gd,
                HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_M, LIST_BLOCK, MASK, SCORE, False, PRECISION,
                WIDE_INDEX,
            )  # fmt: skip
        grad_k, grad_v = _add_key_gradients(
            grad_k, grad_v, k, v, masked, end, partial, q_base, grad_out_base,
            lse_ptr + statistics, delta_ptr + statistics, query_document_base, columns, key_document, slope,
            queries, keys, window, scale, cap, stride_qm, stride_qd, stride_gm, stride_gd,
            HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_M, LIST_BLOCK, MASK, SCORE, True, PRECISION, WIDE_INDEX,
        )  # fmt: skip

    # Scores are scale * q . k: the factor that q lacks in the sums above is applied once, in fp32.
    grad_k_base = head(grad_k_ptr, key_batch, key_head, stride_gkb, stride_gkh)
    grad_v_base = head(grad_v_ptr, key_batch, key_head, stride_gvb, stride_gvh)
    store_rows(grad_k * scale, grad_k_base, columns, keys, stride_gkn, stride_gkd, HEAD_DIM, BLOCK_D, WIDE_INDEX)
    store_rows(grad_v, grad_v_base, columns, keys, stride_gvn, stride_gvd, VALUE_DIM, BLOCK_V, WIDE_INDEX)


@triton.jit
def _add_query_gradients(
    grad_q, q, grad_out, lse, delta, first, end, index_ptr, k_base, v_base, key_document_base,
    positions, query_document, slope, keys, window, scale, cap, stride_kn, stride_kd, stride_vn, stride_vd,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_N: tl.constexpr, LIST_BLOCK: tl.constexpr, MASK: tl.constexpr, SCORE: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Adds what the keys of the steps [first, end) contribute; tiles lie queries x keys."""
    for step in range(first, end):
        columns = step_start(step, index_ptr, LIST_BLOCK, BLOCK_N) + tl.arange(0, BLOCK_N)
        k = load_rows(k_base, columns, keys, stride_kn, stride_kd, HEAD_DIM, BLOCK_D, not MASKED, WIDE_INDEX)
        v = load_rows(v_base, columns, keys, stride_vn, stride_vd, VALUE_DIM, BLOCK_V, not MASKED, WIDE_INDEX)
        if MASK == "document" and MASKED:
            key_document = tl.load(key_document_base + columns, mask=columns < keys)[None, :]
        else:
            key_document = 0
        products = tl.dot(q, tl.trans(k), input_precision=PRECISION, out_dtype=tl.float32)
        grad_p = tl.dot(grad_out, tl.trans(v), input_precision=PRECISION, out_dtype=tl.float32)
        _, grad = _softmax_gradient(
            products, grad_p, lse[:, None], delta[:, None], positions, columns[None, :], keys,
            query_document, key_document, slope, window, scale, cap, MASK, SCORE, MASKED,
        )  # fmt: skip
        grad_q = tl.dot(grad.to(k.dtype), k, grad_q, input_precision=PRECISION, out_dtype=tl.float32)
    return grad_q


@triton.jit
def attention_backward_queries(
    q_ptr, k_ptr, v_ptr, grad_out_ptr, lse_ptr, delta_ptr, grad_q_ptr,
    slopes_ptr, query_document_ptr, key_document_ptr,
    partial_count_ptr, partial_index_ptr, full_count_ptr, full_index_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gm, stride_gd,
    stride_gqb, stride_gqh, stride_gqm, stride_gqd, stride_list, queries, keys, window, scale, cap,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, LIST_BLOCK: tl.constexpr, MASK: tl.constexpr, SCORE: tl.constexpr,
    PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Grid (cdiv(queries, BLOCK_M), batch, heads): gradients of BLOCK_M queries, over the blocks of keys they see."""
    block, batch, query_head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    key_head = query_head // GROUP
    offset = keys - queries
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    positions = rows[:, None] + offset
    q_base = head(q_ptr, batch, query_head, stride_qb, stride_qh)
    k_base = head(k_ptr, batch, key_head, stride_kb, stride_kh)
    v_base = head(v_ptr, batch, key_head, stride_vb, stride_vh)
    grad_out_base = head(grad_out_ptr, batch, query_head, stride_gb, stride_gh)
    q = load_rows(q_base, rows, queries, stride_qm, stride_qd, HEAD_DIM, BLOCK_D, False, WIDE_INDEX)
    grad_out = load_rows(grad_out_base, rows, queries, stride_gm, stride_gd, VALUE_DIM, BLOCK_V, False, WIDE_INDEX)
    statistics = (batch * tl.num_programs(2) + query_head).to(tl.int64) * queries
    lse = tl.load(lse_ptr + statistics + rows, mask=rows < queries)
    delta = tl.load(delta_ptr + statistics + rows, mask=rows < queries)
    slope = 0.0
    if SCORE == "alibi":
        slope = tl.load(slopes_ptr + query_head)
    query_document = 0
    key_document_base = key_document_ptr
    if MASK == "document":
        query_document = tl.load(query_document_ptr + batch * queries + rows, mask=rows < queries)[:, None]
        key_document_base += batch * keys

    grad_q = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    if LIST_BLOCK > 0:
        steps: tl.constexpr = LIST_BLOCK // BLOCK_N
        entry = batch * stride_list + block * BLOCK_M // LIST_BLOCK
        partial_index_ptr += entry.to(tl.int64) * tl.cdiv(keys, LIST_BLOCK)
        full_index_ptr += entry.to(tl.int64) * tl.cdiv(keys, LIST_BLOCK)
        first_full, end_full = 0, tl.load(full_count_ptr + entry) * steps
        masked, end = 0, tl.load(partial_count_ptr + entry) * steps
    else:
        position = block * BLOCK_M + offset
        first, first_full, end_full, end = key_blocks(position, position + BLOCK_M - 1, keys, window, BLOCK_N, MASK)
        masked = end_full
        if MASK == "sliding-window":
            grad_q = _add_query_gradients(
                grad_q, q, grad_out, lse, delta, first, first_full, partial_index_ptr, k_base, v_base,
                key_document_base, positions, query_document, slope, keys, window, scale, cap,
                stride_kn, stride_kd, stride_vn, stride_vd, HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_N,
                LIST_BLOCK, MASK, SCORE, True, PRECISION, WIDE_INDEX,
            )  # fmt: skip
    if LIST_BLOCK > 0 or MASK != "document":
        grad_q = _add_query_gradients(
            grad_q, q, grad_out, lse, delta, first_full, end_full, full_index_ptr, k_base, v_base,
            key_document_base, positions, query_document, slope, keys, window, scale, cap,
            stride_kn, stride_kd, stride_vn, stride_vd, HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_N,
            LIST_BLOCK, MASK, SCORE, False, PRECISION, WIDE_INDEX,
        )  # fmt: skip
    grad_q = _add_query_gradients(
        grad_q, q, grad_out, lse, delta, masked, end, partial_index_ptr, k_base, v_base,
        key_document_base, positions, query_document, slope, keys, window, scale, cap,
        stride_kn, stride_kd, stride_vn, stride_vd, HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_N,
        LIST_BLOCK, MASK, SCORE, True, PRECISION, WIDE_INDEX,
    )  # fmt: skip
    grad_q_base = head(grad_q_ptr, batch, query_head, stride_gqb, stride_gqh)
    store_rows(grad_q * scale, grad_q_base, rows, queries, stride_gqm, stride_gqd, HEAD_DIM, BLOCK_D, WIDE_INDEX)
