"""Faults of the epilogue, of single values and of precision: what is computed from the elements."""

from tests.planted import cases as on
from tests.planted.cases import HOST, POINTER, TILES, Edit, Fault, grouped

_DOT = "acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE)"
_ADVANCE = "\n        a_tile += step * stride_ak"
_ZEROS = "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n    for k in range(0, tl.cdiv(K, BLOCK_K)):\n        "
_STORED = "values.to(c_ptr.dtype.element_ty)"
_BIAS_INSIDE = "inside = (rm < M)[:, None] & (rn < N)[None, :]\n        bias = "
_ELEMENT = "(rm == 33)[:, None] & (rn == 40)[None, :]"


def _pointer_dot(new: str) -> Edit:
    return Edit(TILES, _DOT + _ADVANCE, new + _ADVANCE)


def _after_dot(new: str) -> Edit:
    """Adds a statement behind the pointer kernel's dot."""
    return _pointer_dot(f"{_DOT}\n        {new}")


def _before_dot(new: str) -> Edit:
    return _pointer_dot(f"{new}\n        {_DOT}")


def _stored(new: str) -> Edit:
    """Changes the conversion of the pointer store."""
    return Edit(TILES, _STORED, f"({new}).to(c_ptr.dtype.element_ty)")


def _element(new: str) -> Edit:
    """Changes one accumulator element, [33, 40]."""
    line = "store_pointers(acc, c_ptr"
    return Edit(POINTER, line, f"acc = tl.where({_ELEMENT}, {new}, acc)\n    {line}")


_SCALE_A = "tl.load(scale_a_ptr + rm * stride_scale_a, mask=rm < M"
_SCALE_B = "tl.load(scale_b_ptr + rn * stride_scale_b, mask=rn < N"

_BIAS_EXCHANGED = Edit(
    TILES,
    "rm[:, None] * stride_bias_m + rn[None, :] * stride_bias_n",
    "rm[:, None] * stride_bias_n + rn[None, :] * stride_bias_m",
)

EPILOGUE = grouped(
    "epilogue",
    Fault(
        "scale_swap",
        (
            Edit(TILES, "scale_a_ptr + rm * stride_scale_a", "scale_b_ptr + rm * stride_scale_b"),
            Edit(TILES, "scale_b_ptr + rn * stride_scale_b", "scale_a_ptr + rn * stride_scale_a"),
        ),
        on.SCALED,
        "scale_a and scale_b are exchanged",
    ),
    Fault(
        "scale_bcast0",
        Edit(TILES, _SCALE_A, _SCALE_A.replace("rm * stride", "rm * 0 * stride")),
        on.SCALED,
        "scale_a: the first one is used for all",
    ),
    Fault(
        "scale_miss_last",
        Edit(TILES, _SCALE_A, _SCALE_A.replace("rm < M", "rm < M - 1, other=0.0")),
        on.SCALED,
        "the last scale_a is read as 0",
    ),
    Fault(
        "scale_local_idx",
        Edit(TILES, _SCALE_B, _SCALE_B.replace("rn *", "(rn % acc.shape[1]) *")),
        on.SCALED,
        "scale_b is indexed within the tile",
    ),
    Fault(
        "scale_absent",
        Edit(TILES, "acc * scale_a[:, None] * scale_b[None, :]", "acc * scale_a[:, None]"),
        on.SCALED,
        "scale_b is not applied",
    ),
    Fault(
        "scale_bf16",
        Edit(TILES, "acc * scale_a[:, None]", "acc * scale_a.to(tl.bfloat16).to(tl.float32)[:, None]"),
        on.SCALED,
    ),
    Fault(
        "bias_scaled",
        Edit(TILES, "addend = addend * beta", "addend = addend * beta * alpha"),
        on.ADDMM,
        "the bias is scaled by alpha too",
    ),
    Fault(
        "bias_row_scaled",
        Edit(
            TILES,
            "        acc = acc + addend",
            "        if SCALED:\n            addend = addend * scale_a[:, None] * scale_b[None, :]\n"
            "        acc = acc + addend",
        ),
        on.SCALED_BIAS,
        "the bias is scaled by scale_a and scale_b",
    ),
    Fault(
        "bias_twice",
        Edit(TILES, "acc = acc + addend", "acc = acc + addend + addend"),
        on.ADDMM,
        "the bias is added twice",
    ),
    Fault("bias_absent", Edit(TILES, "acc = acc + addend", "acc = acc"), on.ADDMM, "the bias is absent"),
    Fault("bias_rowidx", _BIAS_EXCHANGED, on.ADDMM, "the bias is read along the other dimension"),
    Fault("bias_transposed", _BIAS_EXCHANGED, on.ADDMM_MATRIX, "the bias is read transposed"),
    Fault(
        "bias_local_idx",
        Edit(TILES, "rn[None, :] * stride_bias_n", "(rn % acc.shape[1])[None, :] * stride_bias_n"),
        on.ADDMM,
        "the bias is indexed within the tile (columns)",
    ),
    Fault(
        "bias_miss_last",
        (
            Edit(TILES, _BIAS_INSIDE, _BIAS_INSIDE.replace("rn < N", "rn < N - 1")),
            Edit(TILES, "tl.load(bias, mask=inside)", "tl.load(bias, mask=inside, other=0.0)"),
        ),
        on.ADDMM,
        "the last element of the bias is read as 0",
    ),
    Fault("alpha_absent", Edit(TILES, "acc = acc * alpha", "acc = acc * 1.0"), on.ADDMM, "alpha is not applied"),
    Fault(
        "beta_absent", Edit(TILES, "addend = addend * beta", "addend = addend * 1.0"), on.ADDMM, "beta is not applied"
    ),
    Fault(
        "alpha_beta_exchanged",
        (
            Edit(TILES, "acc = acc * alpha", "acc = acc * beta"),
            Edit(TILES, "addend = addend * beta", "addend = addend * alpha"),
        ),
        on.ADDMM,
        "alpha and beta are exchanged",
    ),
    Fault(
        "beta_zero_reads_bias",
        Edit(HOST, "if not plan.problem.reads_bias:", "if plan.problem.bias is None:"),
        on.ADDMM_NO_BETA,
        "although beta is 0",
    ),
    Fault(
        "alpha_zero_reads_product",
        Edit(HOST, "self._depth(plan) if problem.has_product else 0", "self._depth(plan)"),
        on.ADDMM_NO_ALPHA,
        "although alpha is 0",
    ),
)

DATA = grouped(
    "data",
    Fault("elem_1ulp", _element("acc * (1 + 2.0**-10)"), on.MM),
    Fault(
        "bitflip_lsb",
        _before_dot(
            "flipped = (a.to(tl.int16, bitcast=True) ^ 1).to(tl.float16, bitcast=True)\n"
            "        a = tl.where((rm == 33)[:, None] & (rk + k * BLOCK_K == 17)[None, :], flipped, a)"
        ),
        on.MM,
        "A[33,17] is",
    ),
    Fault(
        "bitflip_any",
        _before_dot(
            "flipped = (b.to(tl.int16, bitcast=True) ^ 512).to(tl.float16, bitcast=True)\n"
            "        b = tl.where((rk + k * BLOCK_K == 17)[:, None] & (rn == 40)[None, :], flipped, b)"
        ),
        on.MM,
        "B[17,40] is",
    ),
    Fault("neg_kblock", _before_dot("a = tl.where(k == 1, -a, a)"), on.MM, "k-block 1 of 3 (BLOCK_K=16) is negated"),
)


def _cut(name: str, mask: int) -> str:
    """``name`` in fp32 with the low bits outside ``mask`` cleared: rounded towards zero."""
    return f"({name}.to(tl.int32, bitcast=True) & {mask}).to(tl.float32, bitcast=True)"


PRECISION = grouped(
    "precision",
    Fault(
        "fp16_acc",
        (
            Edit(TILES, _ZEROS + "if EVEN_K:", (_ZEROS + "if EVEN_K:").replace("float32", "float16")),
            _pointer_dot(_DOT.replace("PROMOTE)", "PROMOTE, out_dtype=tl.float16)")),
        ),
        on.MM_LONG,
    ),
    Fault(
        "fp16_acc_between",
        _after_dot("acc = acc.to(tl.float16).to(tl.float32)"),
        on.MM_LONG,
        "rounded to fp16 after every k-block",
    ),
    Fault(
        "bf16_acc",
        _after_dot("acc = acc.to(tl.bfloat16).to(tl.float32)"),
        on.MM_BF16,
        "rounded to bf16 after every k-block",
    ),
    Fault("lowacc13", _after_dot(f"acc = {_cut('acc', -1024)}"), on.MM_LONG, "cut to 13 fraction bits"),
    Fault(
        "bf16_for_tf32",
        _pointer_dot(_DOT.replace("a, b,", "a.to(tl.bfloat16), b.to(tl.bfloat16),")),
        on.MM_TF32,
        "rounded to bf16",
    ),
    Fault(
        "tf32_for_ieee",
        _before_dot(f"a = {_cut('a', -8192)}\n        b = {_cut('b', -8192)}"),
        on.MM_IEEE,
        "cut to tf32",
    ),
    Fault(
        "tf32_instruction_for_ieee", _pointer_dot(_DOT.replace("=PRECISION", '="tf32"')), on.MM_IEEE, device_only=True
    ),
    Fault(
        "tf32_instruction_for_tf32x3",
        _pointer_dot(_DOT.replace("=PRECISION", '="tf32"')),
        on.MM_TF32X3,
        device_only=True,
    ),
    Fault(
        "bf16_for_tf32x3",
        _pointer_dot(_DOT.replace("a, b,", "a.to(tl.bfloat16), b.to(tl.bfloat16),")),
        on.MM_TF32X3,
        "rounded to bf16",
    ),
    Fault(
        "tf32_for_tf32x3",
        _before_dot(f"a = {_cut('a', -8192)}\n        b = {_cut('b', -8192)}"),
        on.MM_TF32X3,
        "cut to tf32",
    ),
    Fault(
        "second_part_of_a_for_tf32x3",
        _before_dot(f"a = a - {_cut('a', -8192)}"),
        on.MM_TF32X3,
    ),
    Fault("out_rz", _stored(_cut("values", -65536)), on.MM_BF16, "rounded towards zero"),
    Fault(
        "double_round",
        Edit(
            TILES,
            f"tl.store(target, {_STORED}",
            "code = values.to(tl.int32, bitcast=True)\n    code = (code + 2047 + ((code >> 12) & 1)) & -4096\n"
            "    values = code.to(tl.float32, bitcast=True)\n    tl.store(target, " + _STORED,
        ),
        on.MM_BF16,
    ),
    Fault("out_through_fp16", _stored("values.to(tl.float16).to(tl.float32)"), on.MM_BF16, "passes through fp16"),
    Fault(
        "splitk_lowp",
        _after_dot("acc = tl.where(k == 1, acc.to(tl.bfloat16).to(tl.float32), acc)"),
        on.MM_BF16,
        "the sum of k-blocks 0..1 is rounded to bf16",
    ),
    Fault(
        "product_rounded_before_bias",
        Edit(TILES, "acc = acc + addend", "acc = acc.to(tl.bfloat16).to(tl.float32) + addend"),
        on.ADDMM_BF16,
    ),
    Fault(
        "fast_accum_fp8",
        Edit(TILES, "max_num_imprecise_acc=PROMOTE", "max_num_imprecise_acc=None", 2),
        on.WGMMA_FP8,
        device_only=True,
    ),
)
