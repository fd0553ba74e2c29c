"""Gated linear attention: a state that each turn of the loop decays, multiplies with, and adds a product to."""

import triton
import triton.language as tl

from conformance.kernels.device.attention_tiles import head, load_rows


@triton.jit
def linear_attention(
    q_ptr, k_ptr, v_ptr, decay_ptr, initial_ptr, out_ptr, state_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_km, stride_kd,
    stride_vb, stride_vh, stride_vm, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    length, chunks, CHUNK: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_V: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Grid (cdiv(VALUE_DIM, BLOCK_V), heads, batch). BLOCK_T divides CHUNK, and with EVEN_K ``length``.

    decay (batch, heads, chunks), initial and state (batch, heads, HEAD_DIM, VALUE_DIM) are contiguous, in fp32. Each
    program holds BLOCK_V columns of the state. As an operand of q @ state it is rounded to the dtype of v, and so are
    the scores.
    """
    first_v, query_head, batch = tl.program_id(0) * BLOCK_V, tl.program_id(1), tl.program_id(2)
    matrix = (batch * tl.num_programs(1) + query_head).to(tl.int64)
    q_base = head(q_ptr, batch, query_head, stride_qb, stride_qh)
    k_base = head(k_ptr, batch, query_head, stride_kb, stride_kh)
    v_base = head(v_ptr, batch, query_head, stride_vb, stride_vh) + first_v.to(tl.int64) * stride_vd
    out_base = head(out_ptr, batch, query_head, stride_ob, stride_oh) + first_v.to(tl.int64) * stride_od
    columns = VALUE_DIM - first_v
    dims = tl.arange(0, BLOCK_D)
    values = tl.arange(0, BLOCK_V)
    place = matrix * HEAD_DIM * VALUE_DIM + dims[:, None] * VALUE_DIM + first_v + values[None, :]
    inside = (dims < HEAD_DIM)[:, None] & (values < columns)[None, :]
    state = tl.load(initial_ptr + place, mask=inside, other=0.0)
    rows = tl.arange(0, BLOCK_T)
    earlier = rows[:, None] >= rows[None, :]
    for start in range(0, length, BLOCK_T):
        q = load_rows(q_base, start + rows, length, stride_qm, stride_qd, HEAD_DIM, BLOCK_D, EVEN_K, WIDE_INDEX)
        k = load_rows(k_base, start + rows, length, stride_km, stride_kd, HEAD_DIM, BLOCK_D, EVEN_K, WIDE_INDEX)
        v = load_values(v_base, start + rows, length, stride_vm, stride_vd, columns, BLOCK_V, EVEN_K, WIDE_INDEX)
        decay = tl.load(decay_ptr + matrix * chunks + start // CHUNK)
        state *= tl.where(start % CHUNK == 0, decay, 1.0)
        out = tl.dot(q, state.to(v.dtype))
        scores = tl.where(earlier, tl.dot(q, tl.trans(k)), 0.0)
        out = tl.dot(scores.to(v.dtype), v, out)
        state = tl.dot(tl.trans(k), v, state)
        store_values(out, out_base, start + rows, length, stride_om, stride_od, columns, BLOCK_V, EVEN_K, WIDE_INDEX)
    tl.store(state_ptr + place, state, mask=inside)


@triton.jit
def _tile(base, rows, stride_row, stride_column, BLOCK: tl.constexpr, WIDE_INDEX: tl.constexpr):
    """Addresses of ``rows`` and the first BLOCK columns from ``base``."""
    columns = tl.arange(0, BLOCK)
    if WIDE_INDEX:
        rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    return base + rows[:, None] * stride_row + columns[None, :] * stride_column


@triton.jit
def load_values(
    base, rows, limit, stride_row, stride_column, columns,
    BLOCK: tl.constexpr, INSIDE: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """(len(rows), BLOCK) elements; 0 from row ``limit`` and column ``columns`` on. INSIDE: no row reaches the limit."""
    inside = (tl.arange(0, BLOCK) < columns)[None, :]
    if not INSIDE:
        inside = (rows < limit)[:, None] & inside
    return tl.load(_tile(base, rows, stride_row, stride_column, BLOCK, WIDE_INDEX), mask=inside, other=0.0)


@triton.jit
def store_values(
    values, base, rows, limit, stride_row, stride_column, columns,
    BLOCK: tl.constexpr, INSIDE: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Writes the rows below ``limit``, all if INSIDE, and the first ``columns`` columns of ``values`` (len(rows),
    BLOCK)."""
    inside = (tl.arange(0, BLOCK) < columns)[None, :]
    if not INSIDE:
        inside = (rows < limit)[:, None] & inside
    tile = _tile(base, rows, stride_row, stride_column, BLOCK, WIDE_INDEX)
    tl.store(tile, values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def linear_attention_transposed(
    q_ptr, k_ptr, v_ptr, decay_ptr, initial_ptr, out_ptr, state_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_km, stride_kd,
    stride_vb, stride_vh, stride_vm, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    length, chunks, CHUNK: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_V: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Grid (cdiv(VALUE_DIM, BLOCK_V), heads, batch). Arguments are those of :func:`.linear_attention`.

    The state is summed as (BLOCK_V, BLOCK_D) and the scores as (keys, queries). Both are transposed to become operands.
    """
    first_v, query_head, batch = tl.program_id(0) * BLOCK_V, tl.program_id(1), tl.program_id(2)
    matrix = (batch * tl.num_programs(1) + query_head).to(tl.int64)
    q_base = head(q_ptr, batch, query_head, stride_qb, stride_qh)
    k_base = head(k_ptr, batch, query_head, stride_kb, stride_kh)
    v_base = head(v_ptr, batch, query_head, stride_vb, stride_vh) + first_v.to(tl.int64) * stride_vd
    out_base = head(out_ptr, batch, query_head, stride_ob, stride_oh) + first_v.to(tl.int64) * stride_od
    columns = VALUE_DIM - first_v
    dims = tl.arange(0, BLOCK_D)
    values = tl.arange(0, BLOCK_V)
    place = matrix * HEAD_DIM * VALUE_DIM + dims[None, :] * VALUE_DIM + first_v + values[:, None]
    inside = (dims < HEAD_DIM)[None, :] & (values < columns)[:, None]
    state = tl.load(initial_ptr + place, mask=inside, other=0.0)
    rows = tl.arange(0, BLOCK_T)
    earlier = rows[:, None] <= rows[None, :]
    for start in range(0, length, BLOCK_T):
        q = load_rows(q_base, start + rows, length, stride_qm, stride_qd, HEAD_DIM, BLOCK_D, EVEN_K, WIDE_INDEX)
        k = load_rows(k_base, start + rows, length, stride_km, stride_kd, HEAD_DIM, BLOCK_D, EVEN_K, WIDE_INDEX)
        v = load_values(v_base, start + rows, length, stride_vm, stride_vd, columns, BLOCK_V, EVEN_K, WIDE_INDEX)
        decay = tl.load(decay_ptr + matrix * chunks + start // CHUNK)
        state *= tl.where(start % CHUNK == 0, decay, 1.0)
        out = tl.dot(q, tl.trans(state.to(v.dtype)))
        scores = tl.where(earlier, tl.dot(k, tl.trans(q)), 0.0)
        out = tl.dot(tl.trans(scores.to(v.dtype)), v, out)
        state = tl.dot(tl.trans(v), k, state)
        store_values(out, out_base, start + rows, length, stride_om, stride_od, columns, BLOCK_V, EVEN_K, WIDE_INDEX)
    tl.store(state_ptr + place, state, mask=inside)
