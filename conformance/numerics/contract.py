"""The promises of a kernel about its arithmetic for one problem, config, target and executor.

Fills and bounds are derived from the contract and from nothing else: not from the kernel's name, and not from its
output. The constants are those of published measurements of the hardware (MMA-Sim, arXiv 2511.10909; Khattak and
Mikaitis, arXiv 2512.07004) and are confirmed on a device by ``conformance calibrate``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accumulator:
    """The rule by which products are summed.

    ``kind`` is "tensor-core", "fma" or "int". "fma" is a chain of correctly rounded operations in ``dtype``, which has
    the other figures. "int" is the exact sum of int8 products in int32. One step of a tensor core sums ``chunk``
    products and the running sum. Every term is aligned to the largest and cut to ``alignment_bits`` fraction bits, and
    the result keeps ``result_bits`` fraction bits. After ``promote`` consecutive k the sum is added to an fp32 sum and
    begins again at zero (None: never). ``assumed`` marks figures that no measurement has confirmed for this device.
    ``dtype``: the format whose exponents the running sum has, "fp32", "fp16" or "fp64"; past its largest value a sum
    overflows.
    """

    kind: str = "tensor-core"
    alignment_bits: int = 25
    result_bits: int = 23
    chunk: int = 16
    promote: int | None = None
    assumed: bool = False
    dtype: str = "fp32"

    @property
    def exact_bits(self) -> int:
        """b such that integers whose every partial sum stays below 2**b units are summed without any rounding.

        F fraction bits below the largest term reach down to one unit if all terms are smaller than 2**(F + 1). So do
        those of the result: with its leading one, a narrow accumulator of 13 bits holds 14. The leading one of the
        alignment does not count for wide accumulators, and where the figures have not been measured.
        """
        if self.kind == "int":
            return self.result_bits
        if self.kind == "fma":
            return self.result_bits + 1
        if self.result_bits < 23:
            return min(self.result_bits, self.alignment_bits) + (not self.assumed)
        return min(24, self.result_bits + 1, self.alignment_bits)


@dataclass(frozen=True)
class Split:
    """The rule by which a product a * b of fp32 operands becomes products of narrow parts, a1 * b1 + a1 * b2 + a2 * b1
    + ...

    A part is what the parts before it leave, in a format of ``part_bits`` significant bits; what the last one leaves is
    lost. Operands of at most ``bits`` significant bits are split exactly. ``products`` of parts are summed. ``dropped``
    bounds what is lost of a product a * b, by the last parts and the other products, relative to |a * b|. A product is
    exact if one operand is split exactly and the other is one part.
    """

    part_bits: int
    bits: int
    products: int
    dropped: float


#: Ways to split by the precision of a problem. Write u for half a unit of a part relative to the operand, and r for
#: what the last part leaves. A sum of the kept products differs from a * b by r_a * b + a * r_b and the dropped ones.
#:
#: * "tf32x3": a1 is rounded to nearest in 11 bits (cvt.rna), so |a - a1| <= u |a| with u = 2**-11. a - a1 has 12 bits
#:   at most, of which the unit takes 11: |r| <= 2**-23 |a|. Dropped is a2 * b2 <= 2**-22 |a * b|. Altogether 2**-22 + 2
#:   * 2**-23, and less than 2**-28 for products of errors. * "bf16x3": u = 2**-8 twice: |a2| <= (1 + u) u |a|, |r| <=
#:   2**-16 |a|. Dropped is a2 * b2. Altogether (3 + 2u + ...) * 2**-16. * "bf16x6": a third part takes the last 8 of 24
#:   bits, so r = 0. Dropped are a2 * b3, a3 * b2 and a3 * b3, with |a3| <= 2**-16 |a|. Altogether (2 + 2u + ...) *
#:   2**-24.
SPLITS = {
    "tf32x3": Split(11, 22, 3, (2 + 2.0**-6) * 2.0**-22),
    "bf16x3": Split(8, 16, 3, (3 + 2.0**-6) * 2.0**-16),
    "bf16x6": Split(8, 24, 6, (2 + 2.0**-6) * 2.0**-24),
}


#: What a contract may say of the lanes that the mask of a load leaves without a value.
UNDEFINED_LANES = ("error", "warn", "off", "zero")
#: What a contract may say of NaN and infinity that meet a zero which stands for no element.
HIDDEN_NAN = ("open", "skipped", "multiplied", "added")
#: What attention may divide by the sum of a row's weights.
DIVIDES = ("sums", "weights")


@dataclass(frozen=True)
class Contract:
    """The promises of a kernel about its arithmetic.

    ``out_dtype``: dtype of the first output, a key of ``problems.DTYPES``. ``accumulator``: how products are summed.
    ``operand``: what the unit sees of an operand: "exact" (its value), "tf32" (rounded to 11 significant bits; fills
    hold only representable values, to which scales of blocks may add bits) or a key of :data:`SPLITS` (parts; nothing
    is promised of infinities, of the largest values, whose first part may be one, and of subnormals). ``overflow``:
    what a result past the largest finite value becomes: "ieee" (infinity), "saturate" (largest finite) or "nan".
    ``flushes_subnormals``: results below the smallest normal may become zero. ``intermediate``: the dtype to which the
    first operand of a second product is rounded, such as the probabilities of attention; None where there is none.
    ``stores_once``: a launch stores at most once to each element of an output; False for a kernel whose tiles overlap.
    ``deterministic``: equal inputs give equal bits in every run; False for a kernel that rounds sums in an order that
    nothing fixes, such as those of unordered atomics in fp32. Its exact fills, in which no sum is rounded, must still
    agree bit by bit. ``hidden_nan``: what becomes of NaN or infinity that meets nothing but a zero that stands for no
    element. Such zeros are the padding of a convolution or the weight of a masked pair of attention. "skipped":
    nothing; "multiplied": NaN, which no fill demands of masked pairs, whose blocks may be skipped; "open": either.
    "added" is of attention: the mask is added to the scores. NaN or infinity in a masked score may reach its row, too.
    ``zero_sign``: the sign of an output that is exactly zero: "any", or "ieee", IEEE 754's rule for sums that start
    from +0. By it the sum is +0, even where every term is -0, unless a factor of the epilogue is negative.
    ``undefined_lanes`` is about lanes that the mask of a load leaves without a value, and that reach a result. If the
    target's code gives them 0, that is a fault ("error"), is noted ("warn") or is not ("off"). "zero": the kernel
    relies on 0, and the code must give it. ``divides`` says what attention divides by the sum of a row's weights.
    "sums": the finished sums of weighted values. "weights": each weight before it is multiplied, which rounds it once
    more. Raises ValueError for another word.
    """

    out_dtype: str
    accumulator: Accumulator
    operand: str = "exact"
    overflow: str = "ieee"
    flushes_subnormals: bool = False
    intermediate: str | None = None
    stores_once: bool = True
    deterministic: bool = True
    hidden_nan: str = "open"
    zero_sign: str = "any"
    undefined_lanes: str = "warn"
    divides: str = "sums"

    def __post_init__(self) -> None:
        words_of = {"hidden_nan": HIDDEN_NAN, "undefined_lanes": UNDEFINED_LANES, "divides": DIVIDES}
        for name, choices in words_of.items():
            if getattr(self, name) not in choices:
                words = ", ".join(map(repr, choices))
                raise ValueError(f"{name} {getattr(self, name)!r} is unknown: use one of {words}")

    @property
    def split(self) -> Split | None:
        """Returns the split of the operands; None if they are not split."""
        return SPLITS.get(self.operand)


#: fp32 arithmetic, one fused or separate multiply-add per k: the interpreter, and fp32 "ieee" dots on every target.
FMA = Accumulator(kind="fma", alignment_bits=24, result_bits=23, chunk=1)
#: The same in fp16, and in fp64.
FMA16 = Accumulator(kind="fma", alignment_bits=11, result_bits=10, chunk=1, dtype="fp16")
FMA64 = Accumulator(kind="fma", alignment_bits=53, result_bits=52, chunk=1, dtype="fp64")
#: int32 sums of int8 products, exact on every target and in the interpreter.
INT32 = Accumulator(kind="int", alignment_bits=31, result_bits=31, chunk=1)
