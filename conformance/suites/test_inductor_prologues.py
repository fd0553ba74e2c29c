"""Pointwise functions of the operands that Inductor moves into the product's kernel, and those that it must not.

The scenarios are those of PyTorch's tests of prologue fusion. Here each of the four configurations is pinned by itself
and not only the fastest. Results are exact (constants such as 1.5 in place of 1.1) where PyTorch's tests have
tolerances of 0.05. Counts of launches, allocations and deletions are read from the wrapper's syntax tree. An operand
must be masked in each configuration exactly if its BLOCK_K asks for that.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator, Mapping, Sequence

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from conformance.cases.generated_cases import Thin, generated
from conformance.inductor.compile.program import dense
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.source import spellings
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.inductor.topics import prologues as checks
from conformance.inductor.topics.prologues import Counts
from conformance.judging.inductor_judge import CHOICES
from conformance.problems import DTYPES, Operand
from conformance.records import Verdict

GRAPHS = "conformance.inductor.topics.prologues"

#: Configurations of a product that Inductor is let consider.
CONFIGURATIONS = 4

SETTINGS = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "prologue_fusion": True,
    "shape_padding": False,
    "test_configs.max_mm_configs": CONFIGURATIONS,
}

#: Every pointwise result gets memory of its own unless it is fused.
REALIZED = {"realize_reads_threshold": 1, "realize_opcount_threshold": 1}

#: The first two of each differ in whether every configuration's block of k divides its extent.
SIZES = Thin([(64, 128, 256), (63, 120, 250), (128, 128, 128)], quick=2)
ALIGNED_SIZES = Thin([(64, 64, 64), (64, 120, 64), (64, 128, 256)], quick=2)


def matrices(sizes, first="fp32", second="fp32"):
    rows, inner, columns = sizes
    return dense("x", rows, inner, dtype=first), dense("y", inner, columns, dtype=second)


def small(placed: Operand) -> Tensor:
    """Values of -1, 0 and 1, for products whose sums must fit few bits."""
    generator = torch.Generator().manual_seed(zlib.crc32(placed.name.encode()))
    return torch.randint(-1, 2, placed.shape, generator=generator).to(DTYPES[placed.dtype])


def measuring(enabled: bool) -> Mapping[str, bool]:
    """The option that has Inductor measure whether a fusion pays, by the name that the installed torch gives it."""
    config = importlib.import_module("torch._inductor.config")
    name = "benchmark_template_fusion"
    return {name if hasattr(config, name) else "benchmark_epilogue_fusion": enabled}


def pinned(
    inductor, target, graph: str, operands: Sequence[Operand], counts: Counts, **program
) -> Iterator[CompiledProgram]:
    """The graph compiled with one configuration after another, as many as the tier asks for, its numbers judged and its
    wrapper's statements counted."""
    program["settings"] = {**SETTINGS, **measuring(False), **program.get("settings", {})}
    program["templates"] = inductor.choices_of("mm")
    first = zlib.crc32(inductor.recorder.case.encode()) % CONFIGURATIONS
    tier = CHOICES[inductor.harness.settings.tier]
    for number in range(min(tier or CONFIGURATIONS, CONFIGURATIONS)):
        compiled = inductor.exact(f"{GRAPHS}:{graph}", operands, target, pick=first + number, **program)
        inductor.record([checks.check_counts(compiled, counts)])
        yield compiled


def sources(*arguments, **fields) -> Iterator[str]:
    """The source of the product's kernel for each configuration of :func:`pinned`."""
    for compiled in pinned(*arguments, **fields):
        yield checks.template_kernel(compiled).source


@generated(sizes=SIZES)
def test_upcast(inductor, target, sizes):
    """An fp16 operand becomes fp32: zero stays zero, so that nothing is masked twice."""
    for source in sources(inductor, target, "upcast", matrices(sizes, "fp16"), Counts(1, 1, 2)):
        inductor.record(
            [checks.check_loop(source, "no mask", "CHECK-NOT: tl.where"), checks.check_block(source, sizes[1])]
        )


@generated()
def test_gather_fusion(inductor, target):
    """Rows by index. PyTorch's test is skipped on every device, for an error of Triton's; here it runs, with the index
    held in 32 bits and widened in the graph."""
    x, y = matrices((64, 128, 128), "fp16", "fp16")
    index = dense("index", 64, dtype="int32")
    order = torch.randperm(64, generator=torch.Generator().manual_seed(7)).int()
    for source in sources(inductor, target, "gather", (x, index, y), Counts(1, 1, 3), values={"index": order}):
        inductor.record([checks.check_loop(source, "stays in low precision", "CHECK-NOT: to(tl.float32)")])


@generated(needs=("e4m3",), added=[0, 1])
def test_low_precision(inductor, target, added):
    """fp8 to bf16 without a detour through fp32, so it is fused; an addition would need the detour, so it is not."""
    x, y = matrices((128, 128, 128), "e4m3", "bf16")
    counts = Counts(2, 2, 3) if added else Counts(1, 1, 2)
    fields = {"values": {"y": small(y)}, "arguments": (("added", added),)}
    for source in sources(inductor, target, "low_precision", (x, y), counts, **fields):
        inductor.record([checks.check_loop(source, "stays in low precision", "CHECK-NOT: to(tl.float32)")])


@generated()
def test_downcast(inductor, target):
    """From fp32 to fp16: more would be read in the loop, so it is not fused."""
    for source in sources(inductor, target, "downcast", matrices((64, 128, 256), "fp32", "fp16"), Counts(2, 2, 3)):
        inductor.record([checks.check_loop(source, "fp16 is loaded", "CHECK-NOT: to(tl.float16)")])


@generated(sizes=ALIGNED_SIZES)
def test_multiple_fusions(inductor, target, sizes):
    """Both operands and the result: the constant occurs three times, and the store is the only one. Zero does not stay
    zero, so both operands are masked; PyTorch's test does not look at the masks."""
    for source in sources(inductor, target, "multiple_fusions", matrices(sizes), Counts(1, 1, 2)):
        inductor.record(
            [
                in_source("constants", exactly(3, r"tl\.full\(.*\b1\.5\b"), source, "kernel"),
                in_source("stores", exactly(1, spellings.POINTER_STORE), source, "kernel"),
                checks.check_mask(source, "a", masked=True),
                checks.check_mask(source, "b", masked=True),
                checks.check_block(source, sizes[1]),
            ]
        )


@generated(measured=[False, True], graph=["two_products", "product_relu"])
def test_pending_fusions_multiple(inductor, target, measured, graph):
    """One product, or two whose epilogue fusions are pending at the same time: there is one kernel per product.

    If fusions are measured, Inductor may prefer a separate kernel: only the numbers and the products are judged."""
    shapes = {"two_products": ("x", "y"), "product_relu": ("x",)}[graph]
    operands = tuple(dense(name, 64, 64) for name in shapes)
    counts = {"two_products": Counts(2, 2, 3), "product_relu": Counts(1, 1, 1)}[graph]
    if not measured:
        for _ in pinned(inductor, target, graph, operands, counts):
            pass
        return
    compiled = compile_measured(inductor, target, graph, operands)
    check_products(inductor, compiled, len(shapes))


@generated(measured=[False, True])
def test_pending_fusion_pro_and_epi(inductor, target, measured):
    """One upcast for both operands, and an epilogue. Measured: as above."""
    operands = (dense("x", 128, 128, dtype="fp16"),)
    if not measured:
        for source in sources(inductor, target, "upcast_relu", operands, Counts(1, 1, 1)):
            inductor.record([checks.check_loop(source, "both are cast", exactly(2, r"\.to\(tl\.float32\)"))])
        return
    compiled = compile_measured(inductor, target, "upcast_relu", operands)
    check_products(inductor, compiled, 1)


def compile_measured(inductor, target, graph, operands):
    """The graph with every fusion measured, over three choices."""
    inductor.need_device("measuring fusions", target)
    return inductor.exact(
        f"{GRAPHS}:{graph}",
        operands,
        target,
        templates=inductor.choices_of("mm"),
        settings={**SETTINGS, **measuring(True), "max_epilogue_benchmarked_choices": 3},
    )


def check_products(inductor, compiled, products):
    """As many launches of templates as there are products, and none of ATen; equal products may share a kernel."""
    module = compiled.generated.modules[-1]
    counts = checks.counts_of(module)
    templates = [kernel.name for kernel in compiled.generated.kernels if kernel.kind == "template"]
    launches = sum(module.count(f"{name}.run(") for name in templates)
    right = launches == products and not counts.externs
    inductor.record([Verdict("products", right, f"{launches} launches of templates, {counts}, {products} required")])


@generated(sizes=ALIGNED_SIZES)
def test_multiple_inputs(inductor, target, sizes):
    """The sum of two fp16 tensors, as fp32."""
    rows, inner, columns = sizes
    x, y = dense("x", rows, inner, dtype="fp16"), dense("y", rows, inner, dtype="fp16")
    z = dense("z", inner, columns)
    for source in sources(inductor, target, "multiple_inputs", (x, y, z), Counts(1, 1, 3)):
        inductor.record([checks.check_mask(source, "a", masked=False), checks.check_mask(source, "b", masked=False)])


@generated()
def test_storage_offset_prologue(inductor, target):
    """Both operands in one tensor: the second is read at its offset."""
    for source in sources(inductor, target, "storage_offset", (dense("x", 128, 64),), Counts(1, 1, 1)):
        inductor.record([checks.check_loop(source, "offset", exactly(1, r"\b4096\b"))])


@generated(sizes=ALIGNED_SIZES)
def test_prologue_multiple_nodes(inductor, target, sizes):
    """A prologue of several nodes for one operand, one for the other, and an epilogue."""
    for source in sources(inductor, target, "multiple_nodes", matrices(sizes), Counts(1, 1, 2), settings=REALIZED):
        inductor.record([checks.check_mask(source, "a", masked=True), checks.check_mask(source, "b", masked=False)])


@generated(inner=[63, 64])
def test_broadcast_x(inductor, target, inner):
    """One element as a row, of dynamic sizes."""
    operands = (dense("x", 1, 1), dense("y", inner, 128))
    for source in sources(inductor, target, "broadcast_x", operands, Counts(1, 1, 2), dynamic=True):
        inductor.record([checks.check_mask(source, "a", masked=True)])


@generated()
def test_broadcast_y(inductor, target):
    """One element as the second operand, the first one's rows being dynamic."""
    operands = (dense("x", 20, 1), dense("y", 1, 1))
    for _ in pinned(inductor, target, "product", operands, Counts(1, 1, 2), dynamic=None, marked=(("x", 0),)):
        pass


@generated(graph=["positive", "increased", "absolute"])
def test_preserves_zero_analysis(inductor, target, graph):
    """A function that keeps zero needs no mask past k's end. One that does not, or is not known to, needs a mask."""
    for source in sources(inductor, target, graph, matrices((64, 127, 64)), Counts(1, 1, 2)):
        inductor.record([checks.check_mask(source, "a", masked=graph != "positive"), checks.check_block(source, 127)])


@generated(measured=[False, True])
def test_prologue_read_into_both_inputs(inductor, target, measured):
    """One operand is computed from the other, in two kernels. If fusions are measured, Inductor may choose either way:
    only the numbers and the product are judged."""
    operands = (dense("x", 256, 256),)
    if not measured:
        for _ in pinned(inductor, target, "read_into_both", operands, Counts(2, 3, 3)):
            pass
        return
    check_products(inductor, compile_measured(inductor, target, "read_into_both", operands), 1)


@generated()
def test_mismatched_prologue_group(inductor, target):
    """One row that is broadcast within a prologue: its sizes are not the prologue's, so it has a kernel of its own."""
    x, (y, z) = dense("x", 1, 256), (dense("y", 256, 256), dense("z", 256, 128))
    for compiled in pinned(inductor, target, "mismatched_group", (x, y, z), Counts(2, 2, 4), settings=REALIZED):
        kinds = sorted(kernel.kind for kernel in compiled.generated.kernels)
        inductor.record([Verdict("kernels", kinds == ["pointwise", "template"], ", ".join(kinds))])


@generated(sizes=[(250, 245, 128), (250, 256, 128), (256, 128, 62)], padding=["written", "forced"])
def test_prologue_masked_load(inductor, target, sizes, padding):
    """Padding is not fused, for a load that is aligned would become one that is not. PyTorch's test has Inductor pad
    the operands, and takes the first sizes for all three. Without a device Inductor pads nothing, so that the graph
    itself pads."""
    rows, inner, columns = sizes
    padded = (rows % 8 or inner % 8) != 0, (inner % 8 or columns % 8) != 0
    counts = Counts(1 + sum(padded), 1 + sum(padded), 2 + sum(padded))
    operands = matrices(sizes, "fp16", "fp16")
    if padding == "forced":
        inductor.need_device("padding by Inductor, which measures it", target)
    settings = {"shape_padding": True, "force_shape_pad": True} if padding == "forced" else {}
    graph = "product" if padding == "forced" else "padded"
    for source in sources(inductor, target, graph, operands, counts, settings=settings):
        inductor.record([checks.check_loop(source, "nothing is padded within", "CHECK-NOT: tl.where")])


@pytest.mark.slow(10)
@generated()
def test_template_with_epilogues_and_dynamic_shape(inductor, target):
    """A linear layer with two epilogues, compiled once for five rows and then called with eight: the second call
    compiles nothing. On a device choices are measured in a process of their own, as in PyTorch's test."""

    def shapes(rows):
        x, weight = dense("x", 4, rows, dtype="fp16"), dense("weight", 4, 3, dtype="fp16")
        return x, weight, dense("bias", 3, dtype="fp16"), dense("factor", rows, 3, dtype="fp16")

    device = inductor.harness.settings.has_gpu and not inductor.harness.settings.compile_only
    settings = {"autotune_in_subproc": True} if device else {}
    first, second = shapes(5), shapes(8)
    compiled = inductor.exact(
        f"{GRAPHS}:linear_relu_times",
        first,
        target,
        dynamic=True,
        calls=(second,),
        settings={**SETTINGS, **measuring(False), **settings},
    )
    counters = compiled.generated.counters
    for name in ("recompiles", "graph_breaks"):
        inductor.record([Verdict(name, counters[name] == 0, f"{counters[name]} {name}")])
    further = (replace(verdict, check=f"{verdict.check}/second call") for verdict in inductor.second_call(compiled))
    inductor.record([*further, checks.check_counts(compiled, Counts(1, 1, 4))])
