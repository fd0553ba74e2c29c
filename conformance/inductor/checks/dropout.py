"""Which elements a dropout keeps for a seed, by ATen's random numbers or by Inductor's, and verdicts on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from conformance.records import Check, CheckKind, Verdict


def eager_mask(shape: Sequence[int], p: float, device: torch.device) -> torch.Tensor:
    """The elements that ATen's dropout keeps."""
    survivors: torch.Tensor = torch.ops.aten.native_dropout(torch.ones(shape, device=device), p, True)[1]
    return survivors.cpu()


def drawn_mask(shape: Sequence[int], p: float, device: torch.device) -> torch.Tensor:
    """The elements that Inductor's dropout keeps: those whose random number, drawn at their place in the result with a
    seed from torch's generator, is larger than ``p``."""
    limits = torch.iinfo(torch.int64)
    seed = int(torch.randint(limits.min, limits.max, [1], device=device))
    places = torch.arange(shape[0] * shape[1])
    return (uniform(seed, places) > p).reshape(tuple(shape))


def uniform(seed: int, places: torch.Tensor) -> torch.Tensor:
    """Philox 4x32 with 10 rounds at the counters (place, 0, 0, 0), as fp32 numbers from 0 to 1."""
    low = 0xFFFFFFFF
    keys = seed & low, (seed >> 32) & low
    counters = [places.clone(), *(torch.zeros_like(places) for _ in range(3))]
    for _ in range(10):
        first, second = counters[0], counters[2]
        counters = [
            _high(0xCD9E8D57, second) ^ counters[1] ^ keys[0],
            _low(0xCD9E8D57, second),
            _high(0xD2511F53, first) ^ counters[3] ^ keys[1],
            _low(0xD2511F53, first),
        ]
        keys = (keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low
    signed = torch.where(counters[0] >= 2**31, counters[0] - 2**32, counters[0])
    folded = torch.where(signed < 0, -signed - 1, signed)
    return folded.to(torch.float32) * 4.6566127342e-10


def _high(factor: int, values: torch.Tensor) -> torch.Tensor:
    """Upper 32 bits of a product of two 32-bit numbers, in halves, because int64 has no room for the whole."""
    upper, lower = values >> 16, values & 0xFFFF
    return (factor * upper + ((factor * lower) >> 16)) >> 16


def _low(factor: int, values: torch.Tensor) -> torch.Tensor:
    upper, lower = values >> 16, values & 0xFFFF
    return (((factor * upper & 0xFFFF) << 16) + factor * lower) & 0xFFFFFFFF


SEEDS = (17, 17, 18)


def dropout_verdicts(
    run: Callable[[list[torch.Tensor]], torch.Tensor],
    values: Sequence[torch.Tensor],
    p: float,
    mask: Callable[[Sequence[int], float, torch.device], torch.Tensor],
    device: torch.device,
) -> list[Verdict]:
    """Runs ``run`` with two seeds, with one of them twice. Each element is the product times 1 / (1 - p) in fp32 where
    ``mask`` of the same seed is true, otherwise 0."""
    product = (values[0].double() @ values[1].double()).to(torch.float32)
    scaled = product * torch.tensor(1 / (1 - p), dtype=torch.float32)
    verdicts, seen = [], []
    for seed in SEEDS:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            survivors = mask(product.shape, p, device)
            torch.manual_seed(seed)
            result = run([value.to(device) for value in values]).cpu()
        wrong = result != torch.where(survivors, scaled, 0.0)
        text = f"{int(wrong.sum())} of {wrong.numel()} wrong, {int(survivors.sum())} are kept"
        verdicts.append(Verdict(str(Check(CheckKind.NUMERICS, f"seed{seed}")), not bool(wrong.any()), text))
        seen.append(result)
    verdicts.append(Verdict(str(Check(CheckKind.REPEAT)), torch.equal(seen[0], seen[1]), "two runs with one seed"))
    verdicts.append(Verdict("seeded", not torch.equal(seen[0], seen[2]), "two runs with different seeds"))
    return verdicts
