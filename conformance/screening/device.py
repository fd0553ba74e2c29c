"""The kernels of a screen: exact products that record where each tile ran, and the comparison of their bits.

The proof of the screen corrupts values in the same source. In a screen ``INJECT`` is 0, and none of it is compiled.
"""

import triton
import triton.language as tl


@triton.jit
def multiprocessor(HOW: tl.constexpr, PLACES: tl.constexpr):
    """The number of the multiprocessor that runs this program, read as ``HOW`` says: "smid" on NVIDIA's GPUs. "hw_id"
    packs XCC, shader engine, array and compute unit of AMD's CDNA. Elsewhere the program's number takes turns."""
    if HOW == "smid":
        return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    elif HOW == "hw_id":  # noqa: RET505  # the compiler leaves out the branches that are not taken
        wave = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_HW_ID)", "=s", [], dtype=tl.int32, is_pure=False, pack=1
        )
        xcc = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID)", "=s", [], dtype=tl.int32, is_pure=False, pack=1
        )
        return (xcc & 15) * 256 + ((wave >> 8) & 255)
    else:
        return tl.program_id(0) % PLACES


@triton.jit
def corrupted(values, chosen, keep, flip, BITS: tl.constexpr):
    """``values`` with the bits of the ``chosen`` ones replaced: those of ``keep`` stay, then those of ``flip`` flip."""
    bits = values.to(BITS, bitcast=True)
    changed = (bits & keep.to(BITS)) ^ flip.to(BITS)
    return tl.where(chosen, changed, bits).to(values.dtype, bitcast=True)


@triton.jit
def exact_product(
    a_ptr, b_ptr, start_ptr, out_ptr, places_ptr, shift, spot_ptr, hit_ptr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SUM: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr, HOW: tl.constexpr, PLACES: tl.constexpr,
    INJECT: tl.constexpr, OPERAND_BITS: tl.constexpr, SUM_BITS: tl.constexpr,
):  # fmt: skip
    """Stores tile ``(program + shift) % tiles`` of start + A @ B at ``out[program]``, and where it ran in ``places``.

    A is (ROWS, K) and B (COLUMNS, K), both with k contiguous. INJECT 1 corrupts the accumulator after a block of k,
    INJECT 2 a fragment of A, and INJECT 3 one of B. ``spot`` says where: multiprocessor, block, row, column, bits kept,
    bits flipped. The first program on that multiprocessor does, and leaves its number plus one in ``hit[1]``.
    """
    place = multiprocessor(HOW, PLACES)
    program = tl.program_id(0)
    tile = (program + shift) % ((ROWS // BLOCK_M) * (COLUMNS // BLOCK_N))
    in_m = tl.arange(0, BLOCK_M)
    in_n = tl.arange(0, BLOCK_N)
    rm = tile // (COLUMNS // BLOCK_N) * BLOCK_M + in_m
    rn = tile % (COLUMNS // BLOCK_N) * BLOCK_N + in_n
    rk = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rm[:, None] * K + rk[None, :]
    b_tile = b_ptr + rk[:, None] + rn[None, :] * K
    acc = tl.load(start_ptr + rm[:, None] * COLUMNS + rn[None, :])
    if INJECT > 0:
        here = place == tl.load(spot_ptr).to(tl.int32)
        earlier = tl.atomic_add(hit_ptr, 1, mask=here)
        here = here & (earlier == 0)
        tl.store(hit_ptr + 1, program + 1, mask=here)
        at_block = tl.load(spot_ptr + 1)
        at_row = tl.load(spot_ptr + 2)
        at_column = tl.load(spot_ptr + 3)
        keep = tl.load(spot_ptr + 4)
        flip = tl.load(spot_ptr + 5)
    for block in range(0, K // BLOCK_K):
        a = tl.load(a_tile)
        b = tl.load(b_tile)
        if INJECT == 2:
            chosen = (in_m[:, None] == at_row) & (rk[None, :] == at_column) & here & (block == at_block)
            a = corrupted(a, chosen, keep, flip, OPERAND_BITS)
        if INJECT == 3:
            chosen = (rk[:, None] == at_row) & (in_n[None, :] == at_column) & here & (block == at_block)
            b = corrupted(b, chosen, keep, flip, OPERAND_BITS)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE, out_dtype=SUM)
        if INJECT == 1:
            chosen = (in_m[:, None] == at_row) & (in_n[None, :] == at_column) & here & (block == at_block)
            acc = corrupted(acc, chosen, keep, flip, SUM_BITS)
        a_tile += BLOCK_K
        b_tile += BLOCK_K
    tl.store(out_ptr + program * (BLOCK_M * BLOCK_N) + in_m[:, None] * BLOCK_N + in_n[None, :], acc)
    tl.store(places_ptr + program, place)


@triton.jit
def wrong_elements(
    out_ptr, expected_ptr, counts_ptr, places_ptr, shift,
    TILES: tl.constexpr, SIZE: tl.constexpr, STEP: tl.constexpr, HOW: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Counts the elements of ``out[program]``, integers of SIZE elements, that differ from the expected tile."""
    program = tl.program_id(0)
    tile = (program + shift) % TILES
    count = tl.zeros((STEP,), dtype=tl.int32)
    for first in range(0, SIZE, STEP):
        at = first + tl.arange(0, STEP)
        stored = tl.load(out_ptr + program * SIZE + at)
        count += (stored != tl.load(expected_ptr + tile * SIZE + at)).to(tl.int32)
    tl.store(counts_ptr + program, tl.sum(count))
    tl.store(places_ptr + program, multiprocessor(HOW, PLACES))
