"""Attention as a correct kernel may compute it, block by block in fp32, and with one of its faults planted.

All batches and heads go at once. ``fault`` names what is wrong; the names are the rows of the tables in
``test_attention_bounds.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.attention.problem import SCALES, Attention
from conformance.families.attention.reference import positions, repeated, visible
from conformance.inputs.fills import Draws
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import DTYPES

LOG2E = 1.4426950408889634


@dataclass(frozen=True)
class Style:
    """The way the kernel works. ``block`` is the keys per block, ``splits`` the parts. ``cut``: sums are cut toward
    zero after every 16 products, as tensor cores do. ``order`` of blocks is None for ascending, else a seed.
    ``scaled_first``: scores are scaled before the maximum.

    ``lazy``: the running maximum stays until it is this much too small, in powers of two. ``fused``: a score is scaled
    and shifted in one operation, without rounding between. ``noise``: exp2 is off by 2**-22 in a direction of each
    result's own (None: not). ``device_max``: the maximum ignores NaN, as the hardware's does. ``skips``: masked pairs
    are not multiplied."""

    block: int = 32
    splits: int = 1
    cut: bool = False
    order: int | None = None
    scaled_first: bool = True
    lazy: float = 0.0
    fused: bool = False
    noise: int | None = None
    device_max: bool = False
    skips: bool = False

    def exp2(self, x: Tensor) -> Tensor:
        if self.noise is None:
            return torch.exp2(x)
        off = torch.from_numpy(Draws(self.noise, f"exp2 {tuple(x.shape)}").signs(tuple(x.shape))) * 2.0**-22
        return torch.where(x == 0, 1.0, torch.exp2(x.double()) * (1 + off)).float()  # of 0 it is exact (PTX ISA)

    def shifted(self, scores: Tensor, shift: Tensor, rate: Tensor | float) -> Tensor:
        """(scores - shift) * rate."""
        if not self.fused:
            return (scores - shift) * rate
        rate = torch.as_tensor(rate, dtype=torch.float32).double()
        return (scores.double() * rate - (shift.double() * rate).float().double()).float()

    def highest(self, scores: Tensor) -> Tensor:
        return (torch.where(scores.isnan(), -math.inf, scores) if self.device_max else scores).amax(-1)


def form_bits(form: str) -> int:
    return FORMATS[form].significand


def rounded(x: Tensor, form: str) -> Tensor:
    """fp32 values of the format ``form``."""
    return x.to(DTYPES[form]).float() if form in ("fp32", "fp16", "bf16") else round_to(x.double(), form).float()


def multiply(a: Tensor, b: Tensor, acc: Tensor | float, style: Style) -> Tensor:
    """acc + a b in fp32."""
    if not style.cut:
        return acc + a @ b
    total = torch.as_tensor(acc, dtype=torch.float32)
    for k in range(0, a.shape[-1], 16):
        exact = total.double() + a[..., k : k + 16].double() @ b[..., k : k + 16, :].double()
        near = exact.float()
        total = torch.where(near.double().abs() > exact.abs(), torch.nextafter(near, torch.zeros(())), near)
    return total


class EmulatedAttention:
    """The parts that forward and backward share: operands and scores."""

    def __init__(self, problem: Attention, inputs: Mapping[str, Tensor], style: Style, fault: str, form: str) -> None:
        self.problem, self.style, self.fault, self.form = problem, style, fault, form
        self.inputs = inputs
        self.q, k, v = (inputs[name].float() for name in "qkv")
        scales = {name: inputs[name].float() if problem.scaled else torch.ones(1) for name in SCALES}
        self.scale = torch.tensor(problem.softmax_scale) * (scales["q_scale"] * scales["k_scale"])
        self.v_scale = scales["v_scale"]
        if fault == "kv-head" and problem.key_heads < problem.heads:
            full = torch.arange(problem.heads) % problem.key_heads
            self.k, self.v = (t[:, full].expand(problem.batch, -1, -1, -1) for t in (k, v))
        else:
            self.k, self.v = repeated(problem, k), repeated(problem, v)
        rolls = {
            "batch-of-0": lambda t: t[:1].expand_as(t),
            "batch-swap": lambda t: t.roll(1, 0),
            "head-swap": _next_head,
        }
        if fault in rolls:
            self.k, self.v = rolls[fault](self.k), rolls[fault](self.v)
        if fault == "nan-dropped":
            self.q, self.k = (torch.where(t.isnan(), 0.0, t) for t in (self.q, self.k))
        if fault in ("nan-dropped", "nan-of-v-dropped"):
            self.v = torch.where(self.v.isnan(), 0.0, self.v)
        if fault == "dim-tail":
            self.k = self.k.clone()
            self.k[..., -1] = 0
        self.seen = visible(problem, inputs)
        if fault == "mask-late" and problem.mask.kind != "full":
            self.seen = self.seen | self.seen.roll(1, -1)
        if fault == "mask-early":
            self.seen = self.seen & self.seen.roll(-1, -1)
        if fault == "mask-none":
            self.seen = torch.ones_like(self.seen)

    def products(self, keys: Tensor) -> Tensor:
        raw = multiply(self.q, self.k[..., keys, :].transpose(-1, -2), 0.0, self.style)
        return rounded(raw, self.form) if self.fault == "narrow-scores" else raw

    def modified(self, products: Tensor, keys: Tensor) -> Tensor:
        """Scores in natural units."""
        problem = self.problem
        scale = self.scale * (1.01 if self.fault == "scale" else 1.0)
        if self.fault == "narrow-scale":
            scale = rounded(scale, problem.dtype)
        scores = products * scale
        if self.fault == "narrow-scaled":
            scores = rounded(scores, problem.dtype)
        if problem.score.kind == "soft-cap" and self.fault != "no-cap":
            cap = torch.tensor(problem.score.cap)
            bent = scores / cap
            if self.fault == "narrow-tanh":
                bent = rounded(torch.tanh(rounded(bent, problem.dtype)), problem.dtype)
            elif self.fault == "approximate-tanh":  # as the hardware's: a relative error of 2**-11
                bent = torch.tanh(bent) * (1 + 2.0**-11 * torch.sin(bent * 1e3))
            elif self.fault == "tanh-overflows":
                bent = (torch.exp(2 * bent) - 1) / (torch.exp(2 * bent) + 1)
            else:
                bent = 1 - 2 / (self.style.exp2(bent * (2 * LOG2E)) + 1)
            scores = cap * bent
        if problem.score.kind == "alibi" and self.fault != "no-slope":
            offset = positions(problem)[:, keys] + (1 if self.fault == "slope-late" else 0)
            scores = scores + self.inputs["slopes"][:, None, None] * offset
        return scores

    def blocks(self, length: int) -> list[Tensor]:
        parts = list(torch.arange(length).split(self.style.block))
        if self.style.order is not None:
            parts = [parts[i] for i in Draws(self.style.order, "order").permutation(len(parts))]
        if self.fault == "skip-block":
            parts = parts[:-1] or parts
        return parts


def forward(
    problem: Attention, inputs: Mapping[str, Tensor], form: str, style: Style | None = None, fault: str = ""
) -> dict[str, Tensor]:
    """out and lse; ``form``: the format of the probabilities in the second product."""
    style = style or Style()
    kernel = EmulatedAttention(problem, inputs, style, fault, form)
    blocks = kernel.blocks(problem.keys)
    parts = [_forward_part(kernel, blocks[i :: style.splits]) for i in range(min(style.splits, len(blocks)))]
    raw = problem.score.kind == "none" and not style.scaled_first
    unit = kernel.scale if raw else torch.tensor(1.0)
    if fault == "merge-16":  # what is merged in a second turn replaces what was
        parts = parts[(len(parts) - 1) // 16 * 16 :]
    top = torch.stack([part[2] for part in parts]).amax(0)
    still = torch.where(top.isfinite(), top, 0.0)
    weights = [style.exp2((part[2] - still) * (unit * LOG2E)) for part in parts]
    if fault == "merge":
        weights = [torch.ones_like(weight) for weight in weights]
    acc = sum(part[0] * weight[..., None] for part, weight in zip(parts, weights, strict=True))
    total = sum(part[1] * weight for part, weight in zip(parts, weights, strict=True))
    out = acc / torch.where(total == 0, 0.0 if fault == "empty-row" else 1.0, total)[..., None]
    out = out if fault == "no-v-scale" else out * kernel.v_scale
    lse = still * unit + torch.log(total)
    lse = {"lse-base-2": lse * LOG2E, "lse-max": torch.log(total)}.get(fault, lse)
    if fault == "row-swap":
        out[..., [0, 1], :] = out[..., [1, 0], :]
    out = round_to(out.double(), problem.output_dtype)
    if fault == "last-bit":
        pattern = out.view(torch.int32 if problem.output_dtype == "fp32" else torch.int16)
        pattern[0, 0, problem.queries // 2, 3] ^= 1
    return {"out": out, "lse": lse.float()}


def _forward_part(kernel: EmulatedAttention, blocks: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    problem, fault, style = kernel.problem, kernel.fault, kernel.style
    raw = problem.score.kind == "none" and not style.scaled_first
    rate = kernel.scale * LOG2E if raw else LOG2E
    shape = (problem.batch, problem.heads, problem.queries)
    acc, total, top = torch.zeros(*shape, problem.values_dim), torch.zeros(shape), torch.full(shape, -math.inf)
    if fault in ("max-from-0", "no-max"):
        top = torch.zeros(shape)
    earlier = blocks[0]
    for keys in blocks:
        products = kernel.products(keys)
        scores = products if raw else kernel.modified(products, keys)
        if raw and fault == "scale":
            scores = scores * 1.01
        seen = kernel.seen[..., keys]
        scores = scores + torch.where(seen, 0.0, -math.inf) if fault == "added-mask" else scores
        scores = torch.where(seen | (fault == "added-mask"), scores, -math.inf)
        highest = style.highest(scores)
        higher = torch.where(highest > top, highest, top) if style.device_max else torch.maximum(top, highest)
        if style.lazy:
            higher = torch.where((higher - top) * rate <= style.lazy, top, higher)
        if fault == "no-max":
            higher = top
        still = torch.where(higher == -math.inf, 0.0, higher)
        p = style.exp2(style.shifted(scores, still[..., None], rate))
        shrink = style.exp2((top - still) * rate)
        total = p.sum(-1) if fault == "sum-of-last" else total * (1 if fault == "sum-kept" else shrink) + p.sum(-1)
        cast = {"p-e4m3": "e4m3", "p-bf16": "bf16", "p-e5m2": "e5m2"}.get(fault, kernel.form)
        same = len(earlier) == len(keys)
        v = kernel.v[..., earlier if fault == "stale-v" and same else keys, :]
        acc = acc if fault == "no-rescale" else acc * shrink[..., None]
        if style.skips:  # what no query of these rows sees is not loaded, and each row multiplies what it sees alone
            acc = acc + _seen_only(rounded(p, cast), v, seen.expand(p.shape))
        else:
            p = torch.where(p < 1, p * (1 - 2.0 ** -form_bits(cast)), p) if fault == "p-cut" else p
            acc = multiply(rounded(p, cast), v, acc, style)
        if fault == "narrow-sum":
            acc = rounded(acc, problem.dtype)
        top, earlier = higher, keys
    return acc, total, top


def _next_head(shared: Tensor) -> Tensor:
    return shared.roll(1, 1)


def _seen_only(p: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """p v without the pairs that are masked, whatever v holds there."""
    clean = torch.where(v.isfinite(), v, 0.0)
    weights = torch.where(seen, p, 0.0)
    total = weights @ clean
    for batch, head, key, dim in (~v.isfinite()).nonzero().tolist():
        met = seen[batch, head, :, key]
        total[batch, head, met, dim] += p[batch, head, met, key] * v[batch, head, key, dim]
    return total


def backward(
    problem: Attention, inputs: Mapping[str, Tensor], form: str, style: Style | None = None, fault: str = ""
) -> dict[str, Tensor]:
    """grad_q, grad_k and grad_v; ``form``: the format of probabilities and of gradients of scores."""
    style = style or Style()
    kernel = EmulatedAttention(problem, inputs, style, fault, form)
    out, grad_out, lse = (inputs[name].float() for name in ("out", "grad_out", "lse"))
    lse = torch.where(lse == -math.inf, math.inf, lse)
    delta = (out * grad_out).sum(-1)
    delta = {"no-delta": delta * 0, "delta-row": delta.roll(1, -1), "delta-head": delta.roll(1, 1)}.get(fault, delta)
    if fault == "narrow-delta":
        delta = rounded(delta, form)
    group = problem.heads // problem.key_heads
    scale = torch.tensor(problem.softmax_scale)
    grad_q = torch.zeros(kernel.q.shape)
    grad_k, grad_v = torch.zeros(kernel.k.shape), torch.zeros(kernel.v.shape)
    for keys in kernel.blocks(problem.keys):
        scores = kernel.modified(kernel.products(keys), keys)
        shift = lse.clamp(-1e4, 1e4)[..., None] * (math.log(2) if fault == "lse-base-2" else 1)
        if fault == "split-exponent":  # exp(score) / exp(lse)
            p = torch.exp2(scores * LOG2E) / torch.exp2(shift * LOG2E)
        else:
            p = style.exp2(style.shifted(scores, shift * (fault != "no-lse"), LOG2E))
        p = torch.where(kernel.seen[..., keys] & lse.isfinite()[..., None], p, 0.0)
        grad_p = multiply(grad_out, kernel.v[..., keys, :].transpose(-1, -2), 0.0, style)
        grad = p * (grad_p - delta[..., None])
        if problem.score.kind == "soft-cap" and fault != "no-bend":
            grad = grad * (1 - (scores / problem.score.cap) ** 2)
        p = rounded(p, {"p-e4m3": "e4m3"}.get(fault, form))
        grad = rounded(grad, {"ds-e5m2": "e5m2", "ds-bf16": "bf16"}.get(fault, form))
        grad_q = multiply(grad, kernel.k[..., keys, :], grad_q, style)
        if fault == "narrow-sum":
            grad_q = rounded(grad_q, problem.dtype)
        rows = torch.arange(problem.queries)
        for part in rows.split(style.block)[: -1 if fault == "skip-queries" else None]:
            side = grad[..., part, :].transpose(-1, -2)
            grad_k[..., keys, :] = multiply(side, kernel.q[..., part, :], grad_k[..., keys, :], style)
            weights = p[..., part, :].transpose(-1, -2)
            grad_v[..., keys, :] = multiply(weights, grad_out[..., part, :], grad_v[..., keys, :], style)
    outputs = {"grad_q": grad_q * (1 if fault == "grad-q-scale" else scale)}
    for name, full in (("grad_k", grad_k), ("grad_v", grad_v)):
        heads = full.unflatten(1, (problem.key_heads, group))
        total = heads[:, :, 0] if fault == "one-head" else heads.sum(2)
        if problem.key_batch < problem.batch:
            total = total[:1] if fault == "one-batch" else total.sum(0, keepdim=True)
        outputs[name] = total * scale if name == "grad_k" and fault != "grad-k-scale" else total
    if fault == "row-swap":
        outputs["grad_q"][..., [0, 1], :] = outputs["grad_q"][..., [1, 0], :]
    return {name: round_to(t.double(), problem.dtype).to(DTYPES[problem.dtype]) for name, t in outputs.items()}
