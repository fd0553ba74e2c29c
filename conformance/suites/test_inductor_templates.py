"""Templates of Inductor's that no other suite asks for: gradients of convolutions, depthwise convolutions, grouped
products, and a persistent product without descriptors.

PyTorch's tests compare each with ATen's result, within a tolerance. Here choices are pinned one after another, and
numbers are exact integers or judged by our own bounds.
"""

import math
import zlib

import torch

from conformance.cases.generated_cases import Thin, generated
from conformance.codegen_checks import TMA_LOAD
from conformance.families.gemm.problem import mm
from conformance.families.grouped.problem import KINDS, GroupedGemm
from conformance.inductor.compile.program import Decision, dense
from conformance.inductor.source.spellings import leaves_gradients_to_aten
from conformance.inductor.topics import templates as topic
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.problems import Layout, itemsize
from conformance.records import Reason, ReasonCode

GRAPHS = topic.__name__

#: Triton's templates only, for convolutions and their gradients. Releases without gradients lack their options.
CONVOLUTIONS = {"max_autotune_conv_backends": "TRITON"}
GRADIENTS = {
    **CONVOLUTIONS,
    "max_autotune_conv_bwd_input_backends": "TRITON",
    "max_autotune_conv_bwd_weight_backends": "TRITON",
}

#: Groups, and in both dimensions the filter's extent, its stride, padding and dilation. No extent is a whole number of
#: blocks.
GEOMETRIES = {
    "groups-strided": (2, (3, 2), (2, 1), (1, 0), (1, 2)),
    "plain": (1, (3, 3), (1, 1), (1, 1), (1, 1)),
    "dilated": (1, (3, 3), (1, 1), (2, 3), (2, 3)),
    "far-strided": (1, (2, 3), (3, 4), (0, 0), (1, 1)),
    "one-by-one": (1, (1, 1), (2, 2), (0, 0), (1, 1)),
}
#: Gradients that one program computes.
WANTED = [("input", "weight", "bias"), ("input",), ("weight",)]
GRADIENT_KINDS = {"input": "gradient of a convolution's input", "weight": "gradient of a convolution's weight"}


def pinned(inductor, graph, operands, target, templates, *, settings, **fields):
    """Judges ``graph`` exactly. One choice of each lowering is left, of those of ``templates``: another one in each
    case."""
    fields |= {"settings": {**PINNED_SETTINGS, **settings}, "templates": templates}
    pick = zlib.crc32(inductor.recorder.case.encode()) % 997
    return inductor.exact(f"{GRAPHS}:{graph}", operands, target, pick=pick, **fields)


def extents_after(extents, *, kernel, stride, padding, dilation):
    """Extents of a convolution's result."""
    return [
        (size + 2 * pad - step * (taps - 1) - 1) // stride + 1
        for size, taps, stride, pad, step in zip(extents, kernel, stride, padding, dilation, strict=True)
    ]


#: Dimension with stride 1 and dtype, by name.
FORMS = {"channels-last": (1, "fp16"), "contiguous": (None, "fp32")}


@generated(sampled=True, wanted=Thin(WANTED), geometry=Thin(list(GEOMETRIES)), form=Thin(list(FORMS)))
def test_convolution_gradients(inductor, target, wanted, geometry, form):
    """Gradients of a convolution's input, weight and bias: each of the first two is one kernel of its template, and
    ATen computes none."""
    last, dtype = FORMS[form]
    kinds = [inductor.choices_of(GRADIENT_KINDS[name]) for name in wanted if name in GRADIENT_KINDS]
    if target.vendor == "nvidia" and leaves_gradients_to_aten():
        detail = "the installed torch leaves gradients of convolutions on NVIDIA's GPUs to ATen"
        inductor.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "convolution_backward", detail))
    groups, kernel, *others = GEOMETRIES[geometry]
    places = dict(zip(("stride", "padding", "dilation"), others, strict=True))
    rows, columns = extents_after((9, 11), kernel=kernel, **places)
    operands = [
        dense("upstream", 2, 10, rows, columns, dtype=dtype, last=last),
        dense("x", 2, 6, 9, 11, dtype=dtype, last=last),
        dense("w", 10, 6 // groups, *kernel, dtype=dtype, last=last),
    ]
    arguments = {"names": wanted, "groups": groups, **places}
    fields = {"settings": GRADIENTS, "arguments": tuple(arguments.items())}
    compiled = pinned(inductor, "convolution_gradients", operands, target, "|".join(kinds), **fields)
    inductor.record(topic.templates_alone(compiled.generated, len(kinds)))


@generated(sampled=True, stride=Thin([2, 1]), taps=Thin([3, 4, 1]), dtype=Thin(["fp16", "fp32"]))
def test_depthwise_convolution(inductor, target, stride, taps, dtype):
    """A filter of its own for each channel, in one dimension: sums of fp32 products without a matrix unit."""
    operands = [dense("x", 3, 40, 21, dtype=dtype, last=1), dense("w", 40, 1, taps, dtype=dtype)]
    arguments = (("stride", stride), ("padding", taps // 2))
    template = inductor.choices_of("depthwise convolution 1d")
    fields = {"settings": CONVOLUTIONS, "arguments": arguments}
    compiled = pinned(inductor, "depthwise_convolution", operands, target, template, **fields)
    inductor.record(topic.templates_alone(compiled.generated, 1))


# --- grouped products -------------------------------------------------------------------------------------------------

#: Rows and columns of a group's product, and its k, where they are not split.
SIZES = {"M": 56, "N": 72, "K": 48}
#: Orders of A and B, each with groups of other sizes: an empty one inside, first and last, and one alone.
ORDERS = {
    ("row", "col"): (37, 0, 27),
    ("col", "row"): (0, 29, 35, 0),
    ("row", "row"): (64,),
    ("col", "col"): (1, 40, 7, 16),
}


def all_but_three(target):
    """SMs that a persistent kernel must leave alone, so that each of three programs has several tiles."""
    return (target.limits.multiprocessors or 0) - 3


def grouped(kind, order, sizes, dtype):
    """The problem. Where groups follow each other along rows of memory, torch asks that each starts at a multiple of
    16 bytes."""
    split = KINDS[kind]
    along_rows = {"M": order[0] == "col", "N": order[1] == "row", "K": order != ("col", "row"), "": False}[split]
    step = 16 // itemsize(dtype) if along_rows else 1
    sizes = tuple(-(-size // step) * step for size in sizes) if split else (SIZES["M"],) * len(sizes)
    layouts = {"layout_a": Layout(order[0]), "layout_b": Layout(order[1])}
    fields = {name: None if name == split else size for name, size in SIZES.items()}
    return GroupedGemm(kind, sizes, **fields, dtype=dtype, **layouts)


@generated(sampled=True, needs=("tma",), kind=Thin(list(KINDS)), order=Thin(list(ORDERS)))
def test_grouped_mm(inductor, target, kind, order):
    """Groups whose sizes only the device knows, split along each dimension or not at all: three programs share the
    tiles of all groups. Values next to a group must not get into it."""
    problem = grouped(kind, order, ORDERS[order], "bf16")
    fills = ("transparent", "special") if inductor.harness.settings.tier == "quick" else None
    fields = {"persistent": True, "carveout": all_but_three(target), "fills": fills}
    for run in inductor.pinned(problem, target, inductor.template("grouped mm"), **fields):
        run.record(topic.templates_alone(run.generated, 1))
        run.code(requires=[TMA_LOAD])


def powers(shape, *, step):
    """Scales that are powers of two from a quarter to 4; neighbours differ."""
    return torch.exp2(torch.arange(math.prod(shape)) * step % 5 - 2.0).reshape(shape)


def signs(shape, seed):
    """-1, 0 and 1."""
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed)).to(torch.float8_e4m3fn)


@generated(
    sampled=True,
    needs=("tma", "e4m3"),
    kind=Thin(list(KINDS)),
    fast=Thin([True, False]),
    groups=Thin([(37, 0, 27), (64,)]),
)
def test_scaled_grouped_mm(inductor, target, kind, fast, groups):
    """The same of fp8 operands with a scale for each row of A and each column of B of a group."""
    problem = grouped(kind, ("row", "col"), groups, "e4m3")
    a, b, *offsets = problem.operands
    shapes = [a.shape[:-1], (*b.shape[:-2], b.shape[-1])]
    if KINDS[kind] == "K":  # the scales of one group after those of another
        shapes = [(len(groups) * shape[0],) for shape in shapes]
    operands = [a, b, dense("scale_a", *shapes[0]), dense("scale_b", *shapes[1]), *offsets]
    seed = inductor.harness.settings.seed
    values = {
        "a": signs(a.shape, seed),
        "b": signs(b.shape, seed + 1),
        "scale_a": powers(shapes[0], step=1),
        "scale_b": powers(shapes[1], step=2),
        "offsets": torch.tensor(problem.ends, dtype=torch.int32),
    }
    templates = inductor.choices_of("scaled grouped mm")
    fields = {"values": values, "reference": f"{GRAPHS}:scaled_grouped_product", "carveout": all_but_three(target)}
    arguments = (("fast", fast),)
    compiled = pinned(
        inductor, "scaled_grouped_mm", operands, target, templates, settings={}, arguments=arguments, **fields
    )
    inductor.record(topic.templates_alone(compiled.generated, 1))


# --- products ---------------------------------------------------------------------------------------------------------

TMA = {"triton.enable_persistent_tma_matmul": True}
ONE_A = "bmm_shared_a"


@generated(sampled=True, order=Thin(["row", "col"]), k=Thin([88, 64]))
def test_bmm_of_one_matrix(inductor, target, order, k):
    """A batch of products with the same A, which one program reads once for several of them. 67 products are no whole
    number of such programs. torch offers the template from 64 products on, where that was asked for."""
    inductor.need_option(ONE_A)
    operands = [
        dense("a", 72, k, dtype="fp16"),
        dense("b", 67, k, 24, dtype="fp16", last=1 if order == "col" else None),
    ]
    template = inductor.choices_of("bmm of one A")
    compiled = pinned(inductor, "bmm_of_one_matrix", operands, target, template, settings={ONE_A: True})
    inductor.record(topic.templates_alone(compiled.generated, 1))


@generated(
    sampled=True, needs=("tma",), order=Thin([("row", "col"), ("col", "row"), ("row", "row")], quick=0), k=[88, 128]
)
def test_mm_persistent_without_descriptors(inductor, target, order, k):
    """The persistent product by pointers. torch offers it on AMD alone, so it is put in the place of the one with
    descriptors: the code is the same. Three programs share the tiles."""
    problem = mm(168, 248, k, "fp16", layout_a=Layout(order[0]), layout_b=Layout(order[1]))
    template = inductor.template("persistent pointers")
    fields = {"persistent": True, "carveout": all_but_three(target), "settings": TMA}
    fields["decision"] = Decision.WITHOUT_DESCRIPTORS
    for run in inductor.pinned(problem, target, template, **fields):
        run.exactly(1, "NUM_SMS", r"NUM_SMS : tl\.constexpr = 3\b")
        run.record(topic.templates_alone(run.generated, 1))
        run.code(forbids=[TMA_LOAD])
