"""A matrix unit made of exact integers in place of hardware, for tests of the probes and of the model."""

import itertools
import math

import torch


def exponent(value):
    return math.frexp(value)[1] - 1


def simulated_unit(alignment_bits, result_bits, chunk, *, truncates=True, promote=None):
    """A unit with the figures of :class:`conformance.numerics.contract.Accumulator`: the dot product of each pair.
    ``promote`` may be a list of the k at which sums are promoted to fp32, or one distance between them."""

    def cut(value, unit):
        scaled = value / unit
        return (math.trunc(scaled) if truncates else round(scaled)) * unit

    def narrow(pairs):
        total = 0.0
        for start in range(0, len(pairs), chunk):
            step = [(x * y, exponent(x) + exponent(y)) for x, y in pairs[start : start + chunk] if x * y]
            step += [(total, exponent(total))] if total else []
            if not step:
                continue
            unit = 2.0 ** (max(largest for _, largest in step) - alignment_bits)
            total = sum(math.trunc(term / unit) * unit for term, _ in step)
            if total:
                total = cut(total, 2.0 ** (exponent(total) - result_bits))
        return total

    def dot(a, b):
        pairs = list(zip(a, b, strict=True))
        inner = promote if isinstance(promote, list) else list(range(promote or len(pairs), len(pairs), promote or 1))
        ends = [0, *inner, len(pairs)]
        total = 0.0
        for start, end in itertools.pairwise(ends):
            total += narrow(pairs[start:end])
            if total:  # the sum of the partial sums is kept in fp32
                unit = 2.0 ** (exponent(total) - 23)
                total = round(total / unit) * unit
        return total

    return lambda pairs: [dot(a, b) for a, b in pairs]


def simulated_product(unit):
    """Products of matrices by ``unit``: fp64 (rows, k) and (k, columns) to fp32 (rows, columns)."""

    def product(a, b):
        columns = b.t().tolist()
        return torch.tensor([unit([(row, column) for column in columns]) for row in a.tolist()])

    return product
