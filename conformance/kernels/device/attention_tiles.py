"""Tile helpers shared by the attention kernels: visible range, mask, score modification, the online softmax step.

A kernel works on a block of rows (queries) and walks over blocks of columns (keys), or the other way round in the
backward pass. ``positions`` are the key positions at which the queries stand; they and ``columns`` come shaped for
broadcasting, so that a tile may lie either way.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def head(pointer, batch, index, stride_batch, stride_head):
    """The address at which the matrix of one batch and head begins; 64-bit, as a whole tensor may span more than 2**31
    elements. Also where one row and column of it lies."""
    return pointer + batch.to(tl.int64) * stride_batch + index.to(tl.int64) * stride_head


@triton.jit
def load_rows(
    base, rows, limit, stride_row, stride_column,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, INSIDE: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """(len(rows), BLOCK) elements; 0 from row ``limit`` and column COLUMNS on. INSIDE: no row reaches the limit."""
    columns = tl.arange(0, BLOCK)
    inside = (rows < limit)[:, None]
    if WIDE_INDEX:
        rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    tile = base + rows[:, None] * stride_row + columns[None, :] * stride_column
    if COLUMNS < BLOCK:
        exists = (columns < COLUMNS)[None, :]
        values = tl.load(tile, mask=exists if INSIDE else inside & exists, other=0.0)
    elif INSIDE:
        values = tl.load(tile)
    else:
        values = tl.load(tile, mask=inside, other=0.0)
    return values


@triton.jit
def store_rows(
    values, base, rows, limit, stride_row, stride_column,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Writes the rows below ``limit`` and the columns below COLUMNS of ``values`` (len(rows), BLOCK)."""
    columns = tl.arange(0, BLOCK)
    inside = (rows < limit)[:, None] & (columns < COLUMNS)[None, :]
    if WIDE_INDEX:
        rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    tile = base + rows[:, None] * stride_row + columns[None, :] * stride_column
    tl.store(tile, values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def _as_blocks(any_from, all_from, all_to, any_to, extent, BLOCK: tl.constexpr):
    """Returns numbers of blocks (first, first_full, end_full, end) for ranges of elements. Blocks in [first, end) hold
    a visible element of [any_from, any_to). In blocks in [first_full, end_full) every row sees every element. The
    numbers are in increasing order, unless nothing is visible: then all three ranges between them are empty.
    """
    first = tl.maximum(any_from, 0) // BLOCK
    end = tl.cdiv(tl.minimum(any_to, extent), BLOCK)
    first_full = tl.minimum(tl.maximum(tl.cdiv(all_from, BLOCK), first), end)
    end_full = tl.maximum(tl.minimum(all_to, extent) // BLOCK, first_full)
    return first, first_full, end_full, end


@triton.jit
def key_blocks(first, last, keys, window, BLOCK: tl.constexpr, MASK: tl.constexpr):
    """Blocks of keys that queries at the positions ``first`` to ``last`` see; see :func:`_as_blocks`."""
    any_from = 0
    all_from = 0
    any_to = keys
    all_to = keys
    if MASK == "causal" or MASK == "sliding-window":
        any_to = last + 1
        all_to = first + 1
    if MASK == "sliding-window":
        any_from = first - window + 1
        all_from = last - window + 1
    if MASK == "document":
        all_to = 0
    return _as_blocks(any_from, all_from, all_to, any_to, keys, BLOCK)


@triton.jit
def query_blocks(first, last, queries, offset, window, BLOCK: tl.constexpr, MASK: tl.constexpr):
    """Blocks of queries that see the keys ``first`` to ``last``; query i stands at position i + ``offset``."""
    any_from = 0
    all_from = 0
    any_to = queries
    all_to = queries
    if MASK == "causal" or MASK == "sliding-window":
        any_from = first - offset
        all_from = last - offset
    if MASK == "sliding-window":
        any_to = last + window - offset
        all_to = first + window - offset
    if MASK == "document":
        all_to = 0
    return _as_blocks(any_from, all_from, all_to, any_to, queries, BLOCK)


@triton.jit
def visible(positions, columns, keys, query_document, key_document, window, MASK: tl.constexpr):
    """A mask, broadcast over both: true if the query at a position sees a key."""
    seen = columns < keys
    if MASK == "causal" or MASK == "sliding-window":
        seen = seen & (columns <= positions)
    if MASK == "sliding-window":
        seen = seen & (columns > positions - window)
    if MASK == "document":
        seen = seen & (query_document == key_document)
    return seen


@triton.jit
def tanh(x):
    """Absolute error below 2**-20: that of exp2 and of one division."""
    return 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)


@triton.jit
def modified(products, positions, columns, slope, scale, cap, SCORE: tl.constexpr):
    """Scores in natural units from products q . k, all fp32."""
    scores = products * scale
    if SCORE == "soft-cap":
        scores = cap * tanh(scores / cap)
    if SCORE == "alibi":
        scores = scores + slope * (columns - positions).to(tl.float32)
    return scores


@triton.jit
def step_start(step, index_ptr, LIST_BLOCK: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the first row of step number ``step`` of a walk over all blocks, or over the listed ones (LIST_BLOCK >
    0). Each listed block takes LIST_BLOCK // BLOCK steps."""
    if LIST_BLOCK > 0:
        steps: tl.constexpr = LIST_BLOCK // BLOCK
        start = tl.load(index_ptr + step // steps) * LIST_BLOCK + step % steps * BLOCK
    else:
        start = step * BLOCK
    return start


@triton.jit
def _keys_or_values(
    base, columns, start, limit, stride_row, stride_column,
    page_base, stride_page,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, INSIDE: tl.constexpr, WIDE_INDEX: tl.constexpr, DESCRIBED: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Rows ``columns``, which begin with ``start``, of k or v: see :func:`load_rows`. DESCRIBED: ``base`` is their
    descriptor, which returns 0 outside. PAGE > 0: number ``page_base[i]`` of the pages at ``base`` holds the rows from
    i * PAGE on."""
    if DESCRIBED:
        rows = base.load([start, 0])
    else:
        if PAGE > 0:  # from there the number of a row leads into its page
            page = tl.load(page_base + columns // PAGE, mask=columns < limit, other=0)
            earlier = (columns // PAGE * PAGE).to(tl.int64)
            base += (page.to(tl.int64) * stride_page - earlier * stride_row)[:, None]
        rows = load_rows(base, columns, limit, stride_row, stride_column, COLUMNS, BLOCK, INSIDE, WIDE_INDEX)
    return rows


@triton.jit
def _attend_step(
    acc, total, largest, q, start, k_base, v_base, key_document_base,
    positions, query_document, slope, keys, window, scale, cap, rate,
    stride_kn, stride_kd, stride_vn, stride_vd, page_base, stride_kp, stride_vp,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_N: tl.constexpr, MASK: tl.constexpr, SCORE: tl.constexpr, RAW: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr, DESCRIBED: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """One step of :func:`attend`: the BLOCK_N keys from ``start`` on."""
    columns = start + tl.arange(0, BLOCK_N)
    k = _keys_or_values(
        k_base, columns, start, keys, stride_kn, stride_kd, page_base, stride_kp,
        HEAD_DIM, BLOCK_D, not MASKED, WIDE_INDEX, DESCRIBED, PAGE,
    )  # fmt: skip
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION, out_dtype=tl.float32)
    if not RAW:
        scores = modified(scores, positions, columns[None, :], slope, scale, cap, SCORE)
    if MASKED:
        if MASK == "document":
            key_document = tl.load(key_document_base + columns, mask=columns < keys)[None, :]
        else:
            key_document = 0
        seen = visible(positions, columns[None, :], keys, query_document, key_document, window, MASK)
        scores = tl.where(seen, scores, float("-inf"))
    larger = tl.maximum(largest, tl.max(scores, 1))
    # A row that has seen nothing yet: -inf - -inf would be NaN.
    reference = tl.where(larger == float("-inf"), 0.0, larger) if MASKED else larger
    p = tl.exp2((scores - reference[:, None]) * rate)
    shrink = tl.exp2((largest - reference) * rate)
    total = total * shrink + tl.sum(p, 1)
    acc = acc * shrink[:, None]
    v = _keys_or_values(
        v_base, columns, start, keys, stride_vn, stride_vd, page_base, stride_vp,
        VALUE_DIM, BLOCK_V, not MASKED, WIDE_INDEX, DESCRIBED, PAGE,
    )  # fmt: skip
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION, out_dtype=tl.float32)
    return acc, total, larger


@triton.jit
def attend(
    acc, total, largest, q, first, end, index_ptr, k_base, v_base, key_document_base,
    positions, query_document, slope, keys, window, scale, cap, rate,
    stride_kn, stride_kd, stride_vn, stride_vd, page_base, stride_kp, stride_vp,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_N: tl.constexpr, LIST_BLOCK: tl.constexpr, MASK: tl.constexpr, SCORE: tl.constexpr, RAW: tl.constexpr,
    MASKED: tl.constexpr, PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
    DESCRIBED: tl.constexpr, SPECIALISED: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """The online softmax over the steps [first, end): ``acc`` (rows, BLOCK_V), ``total`` and ``largest`` (rows,), all
    fp32, go in and come out updated.

    Without a modification the scores stay raw products (RAW). ``rate`` = scale * log2(e) then turns *differences* of
    scores into exponents of two, so that tied scores have exactly the same probability. MASKED: some pairs of the steps
    are not visible, or keys end within them. DESCRIBED: ``k_base`` and ``v_base`` are descriptors. SPECIALISED: the
    loop is warp-specialised. PAGE > 0: keys and values lie in pages of as many.
    """
    if SPECIALISED:  # Triton 3.2 knows no such loop
        for step in tl.range(first, end, warp_specialize=True):
            start = step_start(step, index_ptr, LIST_BLOCK, BLOCK_N)
            acc, total, largest = _attend_step(
                acc, total, largest, q, start, k_base, v_base, key_document_base,
                positions, query_document, slope, keys, window, scale, cap, rate,
                stride_kn, stride_kd, stride_vn, stride_vd, page_base, stride_kp, stride_vp,
                HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V,
                BLOCK_N, MASK, SCORE, RAW, MASKED, PRECISION, WIDE_INDEX, DESCRIBED, PAGE,
            )  # fmt: skip
    else:
        for step in range(first, end):
            start = step_start(step, index_ptr, LIST_BLOCK, BLOCK_N)
            acc, total, largest = _attend_step(
                acc, total, largest, q, start, k_base, v_base, key_document_base,
                positions, query_document, slope, keys, window, scale, cap, rate,
                stride_kn, stride_kd, stride_vn, stride_vd, page_base, stride_kp, stride_vp,
                HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V,
                BLOCK_N, MASK, SCORE, RAW, MASKED, PRECISION, WIDE_INDEX, DESCRIBED, PAGE,
            )  # fmt: skip
    return acc, total, largest


@triton.jit
def _share(first, end, part, PARTS: tl.constexpr):
    """Part number ``part`` of the steps [first, end): equal lengths, those at the end shorter or empty."""
    length = tl.cdiv(end - first, PARTS)
    begin = tl.minimum(first + part * length, end)
    return begin, tl.minimum(begin + length, end)


@triton.jit
def attend_part(
    q, first_position, last_position, entry, part, k_base, v_base, key_document_base,
    partial_count_ptr, partial_index_ptr, full_count_ptr, full_index_ptr,
    positions, query_document, slope, keys, window, scale, cap, rate,
    stride_kn, stride_kd, stride_vn, stride_vd,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, LIST_BLOCK: tl.constexpr,
    MASK: tl.constexpr, SCORE: tl.constexpr, RAW: tl.constexpr, PRECISION: tl.constexpr, WIDE_INDEX: tl.constexpr,
    DESCRIBED: tl.constexpr = False, SPECIALISED: tl.constexpr = False, MERGED: tl.constexpr = False,
    page_base=None, stride_kp=0, stride_vp=0, PAGE: tl.constexpr = 0,
):  # fmt: skip
    """Part ``part`` of PARTS of the keys that the queries at ``first_position`` to ``last_position`` see.

    LIST_BLOCK 0: keys are walked through in the range that the mask leaves, blocks that all the queries see without
    a mask. Otherwise entry number ``entry`` of the lists says which blocks of LIST_BLOCK keys to visit: counts
    (entries,) and indices (entries, key blocks). MERGED, which is for LIST_BLOCK 0: one loop with a mask walks through
    all. PAGE > 0: keys and values lie in pages, see :func:`attend`; ``page_base`` has the numbers of these pages,
    which begin ``stride_kp`` and ``stride_vp`` apart. Returns acc (BLOCK_M, BLOCK_V), total and largest (BLOCK_M,):
    fp32.
    """
    acc = tl.zeros((BLOCK_M, BLOCK_V), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    if LIST_BLOCK > 0:
        steps: tl.constexpr = LIST_BLOCK // BLOCK_N
        partial_index_ptr += entry.to(tl.int64) * tl.cdiv(keys, LIST_BLOCK)
        full_index_ptr += entry.to(tl.int64) * tl.cdiv(keys, LIST_BLOCK)
        full, end_full = _share(0, tl.load(full_count_ptr + entry) * steps, part, PARTS)
        masked, end = _share(0, tl.load(partial_count_ptr + entry) * steps, part, PARTS)
    else:
        first, full, end_full, end = key_blocks(first_position, last_position, keys, window, BLOCK_N, MASK)
        first, end = _share(first, end, part, PARTS)
        full = first if MERGED else tl.minimum(tl.maximum(full, first), end)
        masked = first if MERGED else tl.minimum(tl.maximum(end_full, full), end)
        end_full = masked
        if MASK == "sliding-window" and not MERGED:
            acc, total, largest = attend(
                acc, total, largest, q, first, full, partial_index_ptr, k_base, v_base, key_document_base,
                positions, query_document, slope, keys, window, scale, cap, rate,
                stride_kn, stride_kd, stride_vn, stride_vd, page_base, stride_kp, stride_vp,
                HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_N,
                LIST_BLOCK, MASK, SCORE, RAW, True, PRECISION, WIDE_INDEX, DESCRIBED, SPECIALISED, PAGE,
            )  # fmt: skip
    if LIST_BLOCK > 0 or (MASK != "document" and not MERGED):  # else no block is known to be seen by all
        acc, total, largest = attend(
            acc, total, largest, q, full, end_full, full_index_ptr, k_base, v_base, key_document_base,
            positions, query_document, slope, keys, window, scale, cap, rate,
            stride_kn, stride_kd, stride_vn, stride_vd, page_base, stride_kp, stride_vp,
            HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_N,
            LIST_BLOCK, MASK, SCORE, RAW, False, PRECISION, WIDE_INDEX, DESCRIBED, SPECIALISED, PAGE,
        )  # fmt: skip
    return attend(
        acc, total, largest, q, masked, end, partial_index_ptr, k_base, v_base, key_document_base,
        positions, query_document, slope, keys, window, scale, cap, rate,
        stride_kn, stride_kd, stride_vn, stride_vd, page_base, stride_kp, stride_vp,
        HEAD_DIM, BLOCK_D, VALUE_DIM, BLOCK_V, BLOCK_N,
        LIST_BLOCK, MASK, SCORE, RAW, True, PRECISION, WIDE_INDEX, DESCRIBED, SPECIALISED, PAGE,
    )  # fmt: skip
