"""A matrix unit made of exact integers in place of hardware, for tests of the probes."""

import itertools
import math


def simulated_unit(alignment_bits, result_bits, chunk, *, truncates=True, promote=None):
    """A unit with the figures of :class:`conformance.numerics.contract.Accumulator`; ``promote`` may be a list of the
    k at which sums are promoted to fp32, or one distance between them."""

    def cut(value, unit):
        scaled = value / unit
        return (math.trunc(scaled) if truncates else round(scaled)) * unit

    def narrow(terms):
        total = 0.0
        for start in range(0, len(terms), chunk):
            step = [*terms[start : start + chunk], total]
            largest = max(abs(term) for term in step)
            if largest == 0:
                continue
            unit = 2.0 ** (math.frexp(largest)[1] - 1 - alignment_bits)
            total = sum(math.trunc(term / unit) * unit for term in step)
            if total:
                total = cut(total, 2.0 ** (math.frexp(abs(total))[1] - 1 - result_bits))
        return total

    def run(a, b):
        terms = [x * y for x, y in zip(a, b, strict=True)]
        inner = promote if isinstance(promote, list) else list(range(promote or len(terms), len(terms), promote or 1))
        ends = [0, *inner, len(terms)]
        total = 0.0
        for start, end in itertools.pairwise(ends):
            total += narrow(terms[start:end])
            if total:  # the sum of the partial sums is kept in fp32
                unit = 2.0 ** (math.frexp(abs(total))[1] - 24)
                total = round(total / unit) * unit
        return total

    return run
