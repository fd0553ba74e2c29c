"""Ways of rounding an output that are not to nearest even, for tests of fills."""

import torch

from conformance.numerics.rounding import bits, round_to

RULES = ("half away", "half up", "half down", "to odd", "stochastic", "towards zero", "twice")


def rounded(values, dtype, rule, *, bits_between=4, seed=0):
    """fp64 ``values`` in ``dtype``, finite and within its range, by one of RULES. "twice": first to ``bits_between``
    more bits than the format has, each time to nearest even."""
    nearest = round_to(values, dtype)
    if rule == "twice":
        fraction, exponent = torch.frexp(values)
        scale = 2.0 ** (significand(dtype) + bits_between)
        return round_to(torch.ldexp((fraction * scale).round() / scale, exponent), dtype)
    down = nearest.clone()  # towards zero
    bits(down)[nearest.double().abs() > values.abs()] -= 1
    up = down.clone()
    inexact = down.double() != values
    bits(up)[inexact] += 1
    low, high = down.double().abs(), up.double().abs()
    position = torch.where(inexact, (values.abs() - low) / (high - low), 0.0)
    if rule == "towards zero":
        return down
    if rule == "half away":
        return torch.where(position >= 0.5, up, down)
    if rule == "half up":
        return torch.where((position > 0.5) | ((position == 0.5) & (values > 0)), up, down)
    if rule == "half down":
        return torch.where((position > 0.5) | ((position == 0.5) & (values < 0)), up, down)
    if rule == "to odd":
        return torch.where(inexact & (bits(down) % 2 == 0), up, down)
    assert rule == "stochastic"
    chance = torch.rand(values.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.where(chance < position, up, down)


def significand(dtype):
    return {"fp16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3}[dtype]
