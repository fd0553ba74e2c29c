"""Random problems that a kernel takes: ragged sizes, tails of every kind, ones and zeros, all layouts and variants.

The stream is named by a kernel and a number, so that a record's seed gives the same problem again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance import problems
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.kernel import Kernel, Plan, Variant
from conformance.problems import (
    BLOCK_SCALINGS,
    Attention,
    Bias,
    Conv,
    Fusion,
    GroupedGemm,
    Layout,
    Mask,
    Problem,
    Score,
)
from conformance.problems.gemm import OPERATIONS
from conformance.targets import Target

#: Sizes around the multiples of 8, 16 and 32, primes among them; larger ones are for a device.
SIZES = (1, 2, 3, 7, 8, 13, 16, 17, 24, 31, 32, 33, 40, 47, 48, 56, 61, 64, 65, 72, 80, 88, 97)
LARGE_SIZES = (*SIZES, 127, 128, 129, 168, 248, 257, 300, 384, 520)
K_SIZES = (0, 1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 40, 64, 88, 96, 127, 128, 131, 160)
LARGE_K = (*K_SIZES, 256, 520, 1031, 2048)

#: Draws until a kernel must have taken one: a kernel that refuses so many takes next to nothing.
PATIENCE = 2000


class _Draw:
    """One stream of choices."""

    def __init__(self, kernel: Kernel, seed: int, large: bool) -> None:
        self.kernel, self.large = kernel, large
        self.source = random.Random(f"{kernel.name} {seed}")
        self.pick: Callable[[Any], Any] = self.source.choice

    def chance(self, share: float) -> bool:
        return self.source.random() < share

    def size(self) -> int:
        return int(self.pick(LARGE_SIZES if self.large else SIZES))

    def k(self) -> int:
        return int(self.pick(LARGE_K if self.large else K_SIZES))

    def layout(self, order: str | None = None, batched: bool = False) -> Layout:
        """Any layout of a pointer kernel; of a descriptor kernel mostly one that it takes."""
        plain = self.kernel.descriptors or self.chance(0.6)
        pad = self.pick((0, 0, 8, 16)) if plain else self.pick((0, 1, 3, 8))
        step = 1 if plain or order else self.pick((1, 2))
        offset = self.pick((0, 0, 16)) if plain else self.pick((0, 1, 5))
        more = {"batch": self.pick(("outer", "outer", "inner", "zero")), "batch_pad": self.pick((0, 5))}
        return Layout(order or self.pick(("row", "col")), pad, step, offset, **(more if batched else {}))


def _gemm(draw: _Draw) -> Problem:
    kernel, pick = draw.kernel, draw.pick
    op = next(name for name in OPERATIONS if name in kernel.operations)
    dtype = pick(kernel.dtypes)
    m, n, k = draw.size(), draw.size(), draw.k()
    if kernel.descriptors and draw.chance(0.8):  # otherwise nearly every pitch would be refused
        n, k = -(-n // 8) * 8, -(-k // 16) * 16
    batched = op in ("bmm", "baddbmm")
    orders = (None, None) if kernel.any_order else ("row", "col")
    out = draw.layout("row" if kernel.descriptors else None, batched)
    if out.batch == "zero":
        out = Layout(out.order, out.pad, out.step, out.offset)
    fields: dict[str, Any] = {
        "layout_a": draw.layout(orders[0], batched),
        "layout_b": draw.layout(orders[1], batched),
        "layout_out": out,
    }
    if dtype == "fp32":
        fields["precision"] = pick(("ieee", "tf32"))
    elif op == "scaled_mm":
        fields["out_dtype"] = pick(("bf16", "fp16", "fp32"))
    elif op != "int_mm":
        fields["out_dtype"] = pick((None, None, "fp32"))
    if op == "scaled_mm":
        scalings = BLOCK_SCALINGS if kernel.block_scaled else ("tensor", "row")
        fields |= {"scaling": pick(scalings), "fast_accum": pick((False, True)), "b_dtype": pick(kernel.dtypes)}
    if op == "mixed_mm":
        fields["b_dtype"] = pick(("int8", "uint8"))
    if batched:
        fields["batch"] = pick((0, 1, 2, 3, 5))
    if op in ("addmm", "baddbmm"):
        fields |= {"alpha": pick((1.0, 2.0, -0.5, 0.3, 0.0)), "beta": pick((1.0, 0.5, -4.0, 0.7, 0.0))}
    if op in ("addmm", "baddbmm") or (op == "scaled_mm" and not kernel.block_scaled and draw.chance(0.5)):
        fields["bias"] = Bias(pick(("n", "1n", "m1", "mn", *(("b1n", "bmn") if batched else ()))))
    if op == "fused_mm":
        fields["fusion"] = _fusion(draw, dtype)
        if "bias" in fields["fusion"].epilogue:
            fields["bias"] = Bias(pick(("n", "m1", "mn")))
    problem: Problem = getattr(problems, op)(m, n, k, dtype, **fields)
    return problem


def _fusion(draw: _Draw, dtype: str) -> Fusion:
    prologue = draw.pick((None, "cast", "scale", "gather"))
    stored = None
    if prologue == "cast":
        stored = draw.pick([name for name in ("fp32", "fp16", "bf16") if name != dtype])
    names = [name for name in ("bias", "relu", "gelu", "residual", "dropout") if draw.chance(0.4)]
    draw.source.shuffle(names)
    return Fusion(prologue, stored, tuple(names))


def _split_k(draw: _Draw) -> Problem:
    k = draw.pick((2, 4, 6, 12)) * draw.pick((8, 17, 32, 40))
    fields: dict[str, Any] = {"layout_a": draw.layout(), "layout_b": draw.layout(), "layout_out": draw.layout()}
    dtype = draw.pick(draw.kernel.dtypes)
    if dtype == "fp32":
        fields["precision"] = draw.pick(("ieee", "tf32"))
    return problems.mm(draw.size(), draw.size(), k, dtype, **fields)


def _conv(draw: _Draw) -> Problem:
    kernel, pick = draw.kernel, draw.pick
    rank = 3 if "conv3d" in kernel.operations and ("conv2d" not in kernel.operations or draw.chance(0.5)) else 2
    single = "conv1x1" in kernel.name
    groups = 1 if single else pick((1, 1, 2, 3))
    window = tuple(1 if single else pick((1, 2, 3)) for _ in range(rank))
    size = tuple(edge + pick((0, 1, 3, 6)) for edge in window)
    order = "channels-last" if single else None
    dtype = pick(kernel.dtypes)
    fields: dict[str, Any] = {"precision": pick(("ieee", "tf32"))} if dtype == "fp32" else {}
    return Conv(
        f"conv{rank}d",
        pick((0, 1, 2, 3)) if not single else pick((1, 2)),
        groups * pick((1, 3, 8, 20)),
        size,
        groups * pick((1, 5, 16, 40)),
        window,
        tuple(1 if single else pick((1, 2)) for _ in range(rank)),
        tuple(0 if single else pick((0, 1)) for _ in range(rank)),
        groups,
        dtype,
        bias=draw.chance(0.5),
        order_x=order or pick(("contiguous", "channels-last")),
        order_w=order or pick(("contiguous", "channels-last")),
        order_out=order or pick(("contiguous", "channels-last")),
        **fields,
    )


def _attention(draw: _Draw) -> Problem:
    kernel, pick = draw.kernel, draw.pick
    (operation,) = kernel.operations
    dtype = pick(kernel.dtypes)
    kv_heads, share = pick((1, 2)), pick((1, 1, 2, 3))
    few = "decode" in kernel.name
    lengths = (1, 2, 5, 16, 31) if few else (1, 3, 17, 33, 64, 65, 130) + ((300, 520) if draw.large else ())
    keys = (1, 3, 17, 33, 64, 65, 130) + ((300, 520, 1030) if draw.large else ())
    batch = pick((1, 2))
    mask = pick((Mask(), Mask("causal"), Mask("sliding-window", pick((1, 7, 40))), Mask("document")))
    fields: dict[str, Any] = {"precision": pick(("ieee", "tf32"))} if dtype == "fp32" else {}
    return Attention(
        operation,
        batch,
        kv_heads * share,
        pick(lengths),
        pick(keys),
        pick((16, 40, 64) + ((80, 128) if draw.large else ())),
        dtype,
        kv_heads=kv_heads,
        kv_batch=pick((None, 1)),
        mask=mask,
        score=pick((Score(), Score(), Score("soft-cap", 20.0), Score("alibi"))),
        order=pick(("bhsd", "bshd")),
        pad=pick((0, 8)),
        **fields,
    )


def _grouped(draw: _Draw) -> Problem:
    pick = draw.pick
    kind = pick(("2d-3d", "3d-2d", "2d-2d", "3d-3d"))
    sizes = tuple(pick((0, 1, 8, 17, 40, 64)) for _ in range(pick((1, 2, 4))))
    extents: dict[str, Any] = {"M": draw.size(), "N": draw.size(), "K": draw.k()}
    if kind == "3d-3d":
        sizes = (extents["M"],) * len(sizes)
    else:
        extents[{"2d-3d": "M", "3d-2d": "N", "2d-2d": "K"}[kind]] = None
    dtype = pick(draw.kernel.dtypes)
    fields: dict[str, Any] = {name: draw.layout() for name in ("layout_a", "layout_b", "layout_out")}
    if dtype == "fp32":
        fields["precision"] = pick(("ieee", "tf32"))
    return GroupedGemm(kind, sizes, **extents, dtype=dtype, **fields)


#: How problems of a family are drawn.
FAMILIES: dict[str, Callable[[_Draw], Problem]] = {
    "gemm": _gemm,
    "split-k": _split_k,
    "conv": _conv,
    "attention": _attention,
    "grouped": _grouped,
}


def _variant(draw: _Draw, problem: Problem) -> Variant:
    pick = draw.pick
    if draw.kernel.family == "split-k":
        return Variant(splits=pick((2, 4)))
    if "decode" in draw.kernel.name:
        return Variant(splits=pick((1, 2, 5, *((None,) if draw.large else ()))))
    if draw.kernel.descriptors:
        store = draw.chance(0.5)
        host, subtile = pick(("device", "host")), pick((1, 2, 4))
        return Variant(host, store, subtile, pick((False, True)), pick((False, True)), pick((None, 2, 3)))
    if draw.kernel.persistent:
        return Variant(sms=pick((None, 2, 3)))
    return Variant(static=pick((False, True))) if draw.kernel.family == "gemm" else Variant()


def random_plan(kernel: Kernel, seed: int, target: Target, *, large: bool, configs: tuple[AnyConfig, ...] = ()) -> Plan:
    """The plan number ``seed`` of ``kernel``: the first drawn that it takes. ``large`` draws sizes for a device,
    ``configs`` replaces the kernel's own.

    Raises RuntimeError if it refuses everything that is drawn.
    """
    draw = _Draw(kernel, seed, large)
    for _ in range(PATIENCE):
        problem, config = FAMILIES[kernel.family](draw), draw.pick(configs or kernel.configs)
        variant = _variant(draw, problem)
        if kernel.refusal(kernel.draft(problem, config, target, variant)) is None:
            return kernel.plan(problem, config, target, variant)
    raise RuntimeError(f"{kernel.name} refused {PATIENCE} random problems on {target.id}: it takes next to nothing")
