"""The rule of a tensor core in fractions, one product at a time: slow, and written without a look at the model."""

from fractions import Fraction


def two_to(power):
    return Fraction(2) ** power


def exponent_of(value):
    """Of the largest power of two that is not above ``value``, a positive fraction."""
    power = value.numerator.bit_length() - value.denominator.bit_length()
    return power if two_to(power) <= value else power - 1


def cut(value, unit):
    """``value`` cut towards zero to a multiple of ``unit``."""
    return (abs(value) // unit) * unit * (1 if value >= 0 else -1)


def nearest_even(value, unit):
    return round(value / unit) * unit


def scalar_sum(a, b, unit, emin, total=Fraction(0)):
    """``total`` plus the dot product of lists of fractions whose format has the smallest exponent ``emin``."""
    for start in range(0, len(a), unit.products):
        terms = []
        for x, y in zip(a[start : start + unit.products], b[start : start + unit.products], strict=True):
            if x and y:
                power = max(exponent_of(abs(x)), emin) + max(exponent_of(abs(y)), emin)
                terms.append((x * y, power))
        if total:
            terms.append((total, max(exponent_of(abs(total)), -126)))
        if not terms:
            continue
        largest = max(power for _, power in terms)
        total = sum(cut(value, two_to(largest - unit.alignment_bits)) for value, _ in terms)
        if total:
            power = max(exponent_of(abs(total)) - unit.result_bits, -149)
            total = (cut if unit.truncates else nearest_even)(total, two_to(power))
    return total
