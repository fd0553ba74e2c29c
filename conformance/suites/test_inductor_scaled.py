"""fp8 products with scales of tensors, rows and blocks: what Inductor offers, generates, computes and refuses for
torch's two functions of them.

The scenarios are those of PyTorch's fp8 and max-autotune tests. Here one choice is pinned after another instead of the
fastest being taken. Numbers are exact or within our own bounds instead of near those of ATen's kernel for the same
device. What must not be offered is checked, too.
"""

import functools
import zlib

import pytest
import torch

from conformance.cases.generated_cases import Thin, generated
from conformance.codegen_checks import MFMA, MFMA_FP8, POINTER_STORE, TMA_LOAD, TMA_STORE
from conformance.families.gemm.problem import BLOCK_SCALINGS, Bias, scaled_mm
from conformance.inductor.compile.program import dense, program_of
from conformance.inductor.source import spellings
from conformance.inductor.topics import scaled as checks
from conformance.inductor.topics.choices import compiled_verdict
from conformance.inductor.topics.gemm import check_descriptors
from conformance.inductor.topics.operations import alone, check_dynamic
from conformance.inductor.topics.scaled import MX_FORMATS, mx_scales
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.problems import FNUZ, Operand
from conformance.records import Reason, ReasonCode

GRAPHS = "conformance.inductor.topics.scaled"

TMA = {"triton.enable_persistent_tma_matmul": True}
STORE = {**TMA, "triton.enable_template_tma_store": True}
TRITON = {**PINNED_SETTINGS, **TMA}

SCALINGS = ["row", "tensor"]


def beyond_quick(*values):
    """Values of a parameter that the quick tier leaves out, so that it has no case of the test."""
    return Thin(values, quick=0)


#: Templates by how they load and where they multiply by the scales, with what a target needs for them.
TEMPLATES = {
    "pointers": ("mm", ()),
    "descriptors": ("scaled persistent TMA", ("tma",)),
    "blackwell": ("Blackwell", ("tma", "tcgen05")),
    "main-loop": ("scaled main loop", ("tma",)),
}
EPILOGUES = ["pointers", "descriptors", "blackwell"]


def by_template(inductor, target, by):
    """Returns a function that pins choices of a template of :data:`TEMPLATES`; the case is not-applicable where the
    target lacks what it needs."""
    kind, needs = TEMPLATES[by]
    inductor.require(target, *needs)
    persistent = by != "pointers"
    return functools.partial(inductor.pinned, target=target, template=inductor.template(kind), persistent=persistent)


# --- scales of tensors and rows ---------------------------------------------------------------------------------------


@generated(sampled=True, scaling=Thin(SCALINGS), fast=Thin([False, True]))
def test_pointers(inductor, target, scaling, fast):
    """Every choice that reads and writes by pointers. Its scales are an epilogue of the plain product's template."""
    problem = scaled_mm(144, 208, 208, "e4m3", scaling=scaling, fast_accum=fast)
    for run in inductor.pinned(problem, target, inductor.template("mm")):
        run.filecheck("kernel", "CHECK: def triton_tem_fused__scaled_mm")
        run.record(alone(run.generated))
        run.code(requires=[POINTER_STORE], forbids=[TMA_LOAD, TMA_STORE])
        checks.check_fast(run, fast=fast)


@generated(needs=("e4m3fnuz",), scaling=beyond_quick(*SCALINGS), dtype=beyond_quick(*FNUZ))
def test_fnuz(inductor, target, scaling, dtype):
    """The fp8 of AMD's CDNA3, which its matrix unit multiplies as they are."""
    problem = scaled_mm(144, 208, 208, dtype, scaling=scaling)
    for run in inductor.pinned(problem, target, inductor.template("mm"), choices=1):
        run.record(alone(run.generated))
        run.code(requires=[MFMA, MFMA_FP8])


@generated(scaling=beyond_quick(*SCALINGS))
def test_pointers_dynamic_sizes(inductor, target, scaling):
    """Two products by one compilation, which has all sizes as arguments."""
    problem, *also = (scaled_mm(*sizes, "e4m3", scaling=scaling) for sizes in ((144, 208, 80), (40, 64, 208)))
    for run in inductor.pinned(problem, target, inductor.template("mm"), dynamic=True, also=also, choices=2):
        check_dynamic(run)


@generated(sampled=True, needs=("tma",), scaling=Thin(SCALINGS), fast=Thin([False, True]), store=Thin([False, True]))
def test_descriptors(inductor, target, scaling, fast, store):
    """Every choice of the persistent template that reads by descriptors. It has none for the output, whether stores by
    descriptors are allowed or not; Blackwell's has one, with which the suite about products by descriptors deals."""
    template = inductor.template("scaled persistent TMA")
    problem = scaled_mm(144, 208, 208, "e4m3", scaling=scaling, fast_accum=fast)
    for run in inductor.pinned(problem, target, template, persistent=True, settings=STORE if store else TMA):
        run.filecheck("kernel", "CHECK: def triton_tem_fused__scaled_mm")
        check_descriptors(run, template, store=False)
        checks.check_fast(run, fast=fast)
        checks.check_unit(run)


@generated(
    sampled=True,
    scaling=beyond_quick(*SCALINGS),
    bias=beyond_quick("bf16", "fp16", "fp32"),
    out=beyond_quick("bf16", "fp16", "fp32"),
)
def test_bias(inductor, target, scaling, bias, out):
    """A bias for each column, of any dtype: it is added in fp32, after the scales. ATen's kernel takes none of fp32."""
    problem = scaled_mm(144, 208, 80, "e4m3", scaling=scaling, bias=Bias("n", bias), out_dtype=out)
    for run in inductor.pinned(problem, target, inductor.template("mm"), settings=TMA, choices=1):
        run.record(alone(run.generated))


@generated(needs=("tma",), scaling=beyond_quick(*SCALINGS), by=beyond_quick(*EPILOGUES[1:]))
def test_bias_has_no_descriptors(inductor, target, scaling, by):
    """With a bias there is no choice that reads by descriptors. The reason is proven: without it there is one."""
    pinned = by_template(inductor, target, by)
    with_bias = scaled_mm(144, 208, 80, "e4m3", scaling=scaling, bias=Bias("n", "bf16"))
    template = inductor.template(TEMPLATES[by][0])
    inductor.refused(with_bias, target, template, "NoValidChoicesError", settings=TMA)
    for run in pinned(scaled_mm(144, 208, 80, "e4m3", scaling=scaling), settings=TMA, choices=1):
        run.code(requires=[TMA_LOAD])


#: dtypes of A, B and the output. ATen's kernels take no product of two e5m2 operands.
OPERANDS = [
    ("e4m3", "e4m3", "fp16"),
    ("e4m3", "e4m3", "fp32"),
    ("e4m3", "e4m3", "e4m3"),
    ("e4m3", "e5m2", "bf16"),
    ("e5m2", "e4m3", "bf16"),
]


def check_dtypes(pinned, dtypes):
    """One choice for operands and an output of ``dtypes``; its sum is fp32 whatever they are."""
    first, second, out = dtypes
    problem = scaled_mm(144, 208, 80, first, b_dtype=second, out_dtype=out, scaling="row")
    for run in pinned(problem, settings=TMA, choices=1):
        run.exactly(1, "accumulator", r"ACC_TYPE : tl\.constexpr = tl\.float32\b")


@generated(sampled=True, dtypes=beyond_quick(*OPERANDS), by=beyond_quick(*EPILOGUES))
def test_dtypes(inductor, target, dtypes, by):
    """Operands of both fp8 formats, and outputs of each dtype."""
    check_dtypes(by_template(inductor, target, by), dtypes)


@generated(needs=("tma",), out=beyond_quick("e5m2"))
def test_output_of_e5m2(inductor, target, out):
    """An output of the other fp8 format, by descriptors only. The other templates have the same accumulator; where that
    is of the output's dtype, they abort the compiler."""
    check_dtypes(by_template(inductor, target, "descriptors"), ("e4m3", "e4m3", out))


@generated(needs=("tma",), k=beyond_quick(16, 32, 48))
def test_short_k(inductor, target, k):
    """At K = 16 no box of a descriptor and no instruction of tcgen05 is filled, and wgmma's compilation has crashed. So
    a choice that needs one of them is left out. From 32 on there are choices of both kinds, and their numbers are
    right. Torch takes multiples of 16 only."""
    problem = scaled_mm(144, 208, k, "e4m3", scaling="row")
    fields = {"arguments": (("out_dtype", "bf16"),), "templates": "^triton_", "pick": 0, "descriptions": ""}
    offered = inductor.compile(program_of(f"{GRAPHS}:scaled_mm", problem.operands, TRITON, **fields), target).generated
    inductor.recorder.set(kernel="inductor/scaled_mm", problem=problem)
    tcgen05 = target.capability("tcgen05").available
    inductor.record(checks.check_offered(offered, k, tcgen05=tcgen05))
    inductor.conclude()
    if any("tma" not in choice.name for choice in offered.offered):
        for _ in inductor.pinned(problem, target, inductor.template("mm"), choices=2):
            pass
    if k >= checks.LEAST_K:
        for _ in by_template(inductor, target, "descriptors")(problem, settings=TMA, choices=2):
            pass


# --- scales of blocks -------------------------------------------------------------------------------------------------

#: BLOCK_M, BLOCK_N and BLOCK_K of the persistent configs. The first have one scale of 128 k at a time.
TILES = [(128, 128, 128), (128, 256, 128), (64, 256, 128), (128, 128, 64), (64, 32, 256), (64, 128, 256)]


def tiled(tile):
    """The expression for descriptions of choices with the tile."""
    return "".join(rf"(?=.*\bBLOCK_{name}={size}\b)" for name, size in zip("MNK", tile, strict=True))


@generated(sampled=True, needs=("tma",), scaling=Thin(BLOCK_SCALINGS[1:] + BLOCK_SCALINGS[:1]), tile=Thin(TILES))
def test_block_scales(inductor, target, scaling, tile):
    """Scales of 1x128 and of 128x128 multiply the operands in the main loop. Tiles have one block of an operand,
    several, or part of one. Each operand's scales of one row or column lie side by side."""
    template = inductor.template("scaled main loop")
    problem = scaled_mm(192, 272, 384, "e4m3", scaling=scaling)
    fields = {"persistent": True, "settings": TMA, "descriptions": tiled(tile)}
    for run in inductor.pinned(problem, target, template, **fields):
        check_descriptors(run, template, store=False)
        checks.check_block_scales(run, scaling)
        checks.check_unit(run)


@generated(needs=("tma", "tcgen05"), scaling=beyond_quick(*BLOCK_SCALINGS))
def test_block_scales_by_blackwell(inductor, target, scaling):
    """The warp-specialised template multiplies by scales after the main loop, which is too late for those of blocks. So
    it is not offered, or what it computes is right."""
    template = inductor.template("Blackwell")
    problem = scaled_mm(192, 272, 384, "e4m3", scaling=scaling)
    fields = {"arguments": (("out_dtype", "bf16"),), "templates": inductor.choices_of("Blackwell"), "pick": 0}
    tried = inductor.compile(program_of(f"{GRAPHS}:scaled_mm", problem.operands, TRITON, **fields), target).generated
    if tried.failure is not None and "NoValidChoicesError" in tried.failure.types:
        inductor.recorder.set(kernel=f"inductor/{template}", problem=problem)
        inductor.recorder.verdict("not offered", True, "no choice of the template")
        return
    for _ in inductor.pinned(problem, target, template, persistent=True, settings=TMA, choices=2):
        pass


@generated(scaling=beyond_quick(*BLOCK_SCALINGS))
@pytest.mark.proves_at_most("nothing", "a refusal is judged, and no kernel is run")
def test_block_scales_have_no_pointers(inductor, target, scaling):
    """The template by pointers has no main loop with scales, so it is not offered."""
    problem = scaled_mm(192, 272, 384, "e4m3", scaling=scaling)
    inductor.refused(problem, target, inductor.template("mm"), "NoValidChoicesError", settings=TMA)


# --- shapes and layouts of scales -------------------------------------------------------------------------------------

M, N, K = 256, 384, 640
#: K in blocks, and as ATen's kernels want it for 128x128.
BLOCKS, PADDED = 5, 8

operand = functools.partial(Operand, dtype="fp32")


def factors(m=M, n=N, k=K):
    """A by rows and B by columns."""
    return [dense("a", m, k, dtype="e4m3"), dense("b", k, n, dtype="e4m3", last=0)]


def powers(scale, seed):
    """Scales of a half, 1 and 2."""
    exponents = torch.randint(-1, 2, scale.shape, generator=torch.Generator().manual_seed(seed))
    return torch.ldexp(torch.ones(scale.shape), exponents)


def exact(inductor, target, by, scales, graph="scaled_mm", descriptions=None, **arguments):
    """Judges a choice of a template of :data:`TEMPLATES` bit by bit, with ``scales`` of A and B. The output is fp32.
    Unless ``descriptions`` say which, by descriptors it is one that fits every target's shared memory."""
    if by == "descriptors":
        descriptions = descriptions or tiled((128, 128, 64))
    kind, needs = TEMPLATES[by]
    inductor.require(target, *needs)
    values = {scale.name: powers(scale, seed) for seed, scale in enumerate(scales)}
    fields = {"values": values, "arguments": (("out_dtype", "fp32"), *arguments.items()), "settings": TRITON}
    fields |= {"templates": inductor.choices_of(kind), "descriptions": descriptions}
    pick = zlib.crc32(inductor.recorder.case.encode()) % 997
    compiled = inductor.exact(f"{GRAPHS}:{graph}", [*factors(), *scales], target, pick=pick, **fields)
    if by != "blackwell":  # whose one store is in a loop over subtiles
        inductor.record(alone(compiled.generated))


def one_element(name, rank):
    return operand(name, (1,) * rank, (1,) * rank)


@generated(rank=beyond_quick(0, 1, 2), by=beyond_quick(*EPILOGUES))
def test_scale_of_one_element(inductor, target, rank, by):
    """The scale of a tensor as a number, a vector and a matrix, which ATen's kernels all take."""
    exact(inductor, target, by, [one_element(name, rank) for name in ("scale_a", "scale_b")])


@generated(ranks=beyond_quick((0, 1), (0, 2), (1, 2), (2, 1)))
def test_unequal_scales(inductor, target, ranks):
    """One scale of each tensor, of different ranks: an error that says so, or the right numbers. Where torch compares
    a vector and a matrix, it says what it expects."""
    scales = [one_element(name, rank) for name, rank in zip(("scale_a", "scale_b"), ranks, strict=True)]
    inductor.recorder.set(kernel="inductor/scaled_mm")
    fields = {"arguments": (("out_dtype", "fp32"),), "templates": inductor.choices_of("mm"), "pick": 0}
    program = program_of(f"{GRAPHS}:scaled_mm", [*factors(), *scales], TRITON, **fields)
    tried = inductor.compile(program, target).generated
    if tried.failure is None:
        exact(inductor, target, "pointers", scales)
        return
    inductor.recorder.proves_at_most("nothing", "an error of Inductor's is judged, and no kernel is run")
    message = "Expect scale_a and scale_b to be either both scalars" if 0 not in ranks else ""
    inductor.record(checks.check_refused(tried, types="AssertionError", message=message))


#: Scales of blocks of A and B as ATen's kernels take them from torch._scaled_mm. The rows of A, and the columns of B,
#: are contiguous.
ATEN = {
    "1x128/1x128": [("scale_a", (M, BLOCKS), (1, M)), ("scale_b", (BLOCKS, N), (N, 1))],
    "1x128/128x128": [("scale_a", (M, BLOCKS), (1, M)), ("scale_b", (BLOCKS, N // 128), (1, PADDED))],
    "128x128/1x128": [("scale_a", (M // 128, BLOCKS), (PADDED, 1)), ("scale_b", (BLOCKS, N), (N, 1))],
}


@generated(needs=("tma",), scaling=beyond_quick(*BLOCK_SCALINGS))
def test_layout_of_block_scales(inductor, target, scaling):
    """Scales that lie as ATen's kernels require it. The strides of the scales decide, not their shapes alone."""
    scales = [operand(*fields) for fields in ATEN[scaling]]
    exact(inductor, target, "main-loop", scales, descriptions=tiled(TILES[0]))


# --- torch.nn.functional.scaled_mm ------------------------------------------------------------------------------------


def needs_recipes(inductor):
    """Ends the case as not-applicable where torch has no function that is told what the scales are."""
    if not all(hasattr(torch.nn.functional, name) for name in ("scaled_mm", "ScalingType", "SwizzleType")):
        detail = f"torch {torch.__version__} has no torch.nn.functional.scaled_mm"
        inductor.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "scaled_mm", detail))
    if not spellings.is_lowered("_scaled_mm_v2"):
        detail = f"torch {torch.__version__} has no lowering of it: ATen's kernel is called, whatever the options"
        inductor.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "scaled_mm", detail))


#: Shapes of the scales of A and B for a recipe. ATen's kernels take the scales of columns in both shapes.
RECIPES = {
    "tensor": ("TensorWise", (), ()),
    "row": ("RowWise", (M, 1), (1, N)),
    "column-of-B": ("RowWise", (M, 1), (N, 1)),
}


@generated(recipe=beyond_quick(*RECIPES), by=beyond_quick(*EPILOGUES))
def test_recipes(inductor, target, recipe, by):
    """Scales of tensors and rows by the function that is told their kind."""
    needs_recipes(inductor)
    scaling, shape_a, shape_b = RECIPES[recipe]
    scales = [dense("scale_a", *shape_a), dense("scale_b", *shape_b)]
    exact(inductor, target, by, scales, "scaled_mm_by_recipes", recipes=(scaling, scaling))


#: Scales of blocks as torch.nn.functional.scaled_mm takes them.
BLOCK_RECIPES = {
    "1x128/1x128": [("scale_a", (M, BLOCKS), (1, M)), ("scale_b", (N, BLOCKS), (1, N))],
    "1x128/128x128": [("scale_a", (M, BLOCKS), (1, M)), ("scale_b", (PADDED, N // 128), (1, PADDED))],
    "128x128/1x128": [("scale_a", (PADDED, M // 128), (1, PADDED)), ("scale_b", (N, BLOCKS), (1, N))],
}


@generated(needs=("tma",), scaling=beyond_quick(*BLOCK_SCALINGS))
def test_block_recipes(inductor, target, scaling):
    """Scales of blocks by the same function."""
    needs_recipes(inductor)
    scales = [operand(*fields) for fields in BLOCK_RECIPES[scaling]]
    recipes = tuple(f"BlockWise{kind}" for kind in scaling.split("/"))
    fields = {"descriptions": tiled(TILES[0]), "recipes": recipes}
    exact(inductor, target, "main-loop", scales, "scaled_mm_by_recipes", **fields)


@generated(needs=("tcgen05",), form=beyond_quick(*MX_FORMATS), by_recipes=beyond_quick(False, True))
def test_mx_formats(inductor, target, form, by_recipes):
    """Products of MX formats have no template: Triton alone has no choice, and ATen's kernel is called with the
    operands in their order. What it computes is not judged. A lowering that takes no scales in tiles is named as the
    reason."""
    if by_recipes:
        needs_recipes(inductor)
    for name in MX_FORMATS[form][:2]:
        if not hasattr(torch, name):
            detail = f"torch {torch.__version__} has no dtype torch.{name}"
            inductor.recorder.not_applicable(Reason(ReasonCode.DTYPE, name, detail))
    inductor.recorder.set(kernel="inductor/mx_scaled_mm")
    columns = K // (1 if form == "mxfp8" else 2)  # two values of four bits are one byte
    operands = [dense(name, lines, columns, dtype="uint8") for name, lines in (("a", M), ("b", N))]
    operands += [
        dense(f"scale_{name}", mx_scales(lines, K, form), dtype="uint8") for name, lines in (("a", M), ("b", N))
    ]
    fields = {"arguments": (("form", form), ("by_recipes", by_recipes))}
    with_triton, with_aten = (
        inductor.compile(program_of(f"{GRAPHS}:mx_scaled_mm", operands, settings, **fields), target).generated
        for settings in (TRITON, {**TRITON, "max_autotune_gemm_backends": "ATEN,TRITON"})
    )
    if with_aten.failure is not None and "does not yet support non-trivial swizzles" in with_aten.failure.message:
        detail = f"torch {torch.__version__}: Inductor lowers no scales in tiles of 128 x 4"
        inductor.recorder.not_applicable(Reason(ReasonCode.SCALE, form, detail))
    inductor.record([compiled_verdict(with_aten)])
    inductor.conclude()
    inductor.record(checks.check_called(with_aten))
    if with_triton.failure is not None:
        inductor.record(checks.check_refused(with_triton, types="NoValidChoicesError"), "Triton alone/")
    else:  # where the lowering leaves such products to ATen, whatever the backends
        inductor.record(checks.check_called(with_triton), "Triton alone/")


# --- what torch refuses -----------------------------------------------------------------------------------------------

OF_ROWS, OF_COLUMNS = dense("scale_a", M, 1), dense("scale_b", 1, N)
INVALID = "Invalid scaling configuration"

#: What is wrong -> operands in place of the right ones, and a part of torch's message; "" where it has none of its own.
MISTAKES = {
    "A-by-columns": ([Operand("a", (M, K), (1, M), "e4m3")], "self must be row_major"),
    "B-by-rows": ([Operand("b", (K, N), (N, 1), "e4m3")], "mat2 must be col_major"),
    "K-of-24": (factors(k=24), "to be divisible by 16"),
    "N-of-24": (factors(n=24), "Expected both dimensions of mat2 to be divisible by 16"),
    "A-of-bf16": ([dense("a", M, K, dtype="bf16")], "Expected both inputs to be fp8"),
    "three-dimensions": ([dense("a", 1, M, K, dtype="e4m3")], "Inputs must be 2D"),
    "two-K": (factors(k=K + 16)[1:], ""),
    "fp16-scale": ([dense("scale_a", dtype="fp16")], "For tensorwise scaling, both scale_a and scale_b must be float"),
    "fp16-scales": (
        [dense("scale_a", M, 1, dtype="fp16"), OF_COLUMNS],
        "For rowwise scaling, both scale_a and scale_b must be float",
    ),
    "vectors-of-scales": ([dense("scale_a", M), dense("scale_b", N)], "scale tensors must be 2D"),
    "scales-of-the-other-operand": ([dense("scale_a", N, 1), dense("scale_b", 1, M)], INVALID),
    "scales-of-columns-by-rows": ([OF_ROWS, dense("scale_b", N, 1)], INVALID),
    "scales-of-rows-alone": ([OF_ROWS, dense("scale_b", 1, 1)], INVALID),
    "scales-apart": ([Operand("scale_a", (M, 1), (2, 1), "fp32"), OF_COLUMNS], "contiguous for rowwise scaling"),
    "a-scale-too-many": ([dense("scale_a", M + 1, 1), OF_COLUMNS], INVALID),
    "a-block-too-few": ([dense("scale_a", M, BLOCKS - 1), dense("scale_b", BLOCKS, N // 128)], INVALID),
    "bias-too-short": ([dense("bias", N - 16, dtype="bf16")], ""),
}


@generated(mistake=Thin(list(MISTAKES)))
@pytest.mark.proves_at_most("nothing", "errors of Inductor's are judged, and no kernel is run")
def test_wrong_operands(inductor, target, mistake):
    """Operands and scales that torch does not take are an error in its own words, while it compiles. Without the
    mistake the same product compiles."""
    replaced, message = MISTAKES[mistake]
    right = {one.name: one for one in [*factors(), dense("scale_a"), dense("scale_b")]}
    wrong = right | {one.name: one for one in replaced}
    inductor.recorder.set(kernel="inductor/scaled_mm")
    fields = {"arguments": (("out_dtype", "bf16"),), "templates": inductor.choices_of("mm"), "pick": 0}
    compiled, refused = (
        inductor.compile(program_of(f"{GRAPHS}:scaled_mm", operands.values(), TRITON, **fields), target).generated
        for operands in (right, wrong)
    )
    inductor.record([compiled_verdict(compiled)], "without the mistake/")
    inductor.record(checks.check_refused(refused, message=message))
