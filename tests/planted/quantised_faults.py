"""Faults of quantised rows and of their way back: rounding, limits, scales and the halves of bytes."""

from __future__ import annotations

from conformance.families.rows import narrow, quantisation
from conformance.families.rows.problem import RowFunction
from tests.planted.cases import Fault, grouped
from tests.planted.row_faults import Texts, faults_of

_ROUNDED = "v = (v + 12582912.0) - 12582912.0"


def _faults(function: RowFunction, source: str, *faults: Texts) -> tuple[Fault, ...]:
    """Returns faults of the function ``source``, a file and a name such as "narrow::power"."""
    file, _, name = source.partition("::")
    return faults_of(function, f"device/{file}.py", {name: faults})


CODES = grouped(
    "quantised",
    *_faults(
        quantisation.STATIC[0],
        "quantisation::nearest",
        ("cut_off", _ROUNDED, "v = v", "quotients are cut off, not rounded"),
        ("half_up", _ROUNDED, "v = tl.floor(v + 0.5)"),
        ("wraps", "tl.where(v > 127.0, 127.0, tl.where(v < -128.0, -128.0, v))", "v"),
    ),
    *_faults(
        quantisation.QUANTISED[0],
        "quantisation::quantize_rows",
        ("eps_left_out", "tl.maximum(amax / LIMIT, eps)", "amax / LIMIT"),
        ("amax_of_last", "amax = tl.maximum(amax, tl.max(tl.abs(x), 1))", "amax = tl.max(tl.abs(x), 1)"),
    ),
    *_faults(
        quantisation.DEQUANTISED[1],
        "quantisation::load_scales",
        ("pitch", "blocks = tl.cdiv(columns, GROUP)", "blocks = columns // GROUP"),
    ),
    *_faults(narrow.MXFP8[0], "narrow::scale_byte", ("rounded_up", "amax.to(", "(amax * 1.9999).to(")),
    *_faults(narrow.MXFP4[0], "narrow::e2m1_code", ("tie_up", "size > 2.5", "size >= 2.5"), ("sign", " + sign", "")),
    *_faults(
        narrow.MXFP4[1],
        "narrow::load_codes",
        ("halves", "byte & 15, byte >> 4", "byte >> 4, byte & 15", "the halves of each byte are exchanged"),
    ),
    *_faults(
        narrow.QUANTIZE_CODEBOOK,
        "narrow::codebook_rows",
        ("padding", "tl.where((second < columns)[None, :], high, 0)", "high"),
    ),
)
