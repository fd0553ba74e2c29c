"""The grouped kernels: problems, typed reasons, a grid that the offsets cannot change, numbers, and code per target."""

import pytest

from conformance import codegen_checks, targets
from conformance.execution.compile.compilation import CompilePool, CompileRequest
from conformance.execution.compile.kernel_figures import over_limits
from conformance.families.gemm.problem import mm
from conformance.families.grouped.problem import GroupedGemm
from conformance.heuristics.configs import Config
from conformance.kernels import carveout, catalogue
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.problems import Layout
from conformance.records import ReasonCode, Status
from tests.kernels import judged_examples

HOPPER = targets.find("sm_90")
SMALL = Config(32, 32, 16, 2, 4)
KERNEL = catalogue.get("grouped_mm")


@pytest.mark.parametrize(
    ("kind", "a", "b", "out"),
    [
        ("2d-3d", (45, 40), (3, 40, 56), (45, 56)),
        ("3d-2d", (3, 24, 40), (40, 45), (24, 45)),
        ("2d-2d", (24, 45), (45, 56), (3, 24, 56)),
    ],
)
def test_shapes_by_kind(kind, a, b, out):
    sizes = {"M": 24, "N": 56, "K": 40}
    split = {"2d-3d": "M", "3d-2d": "N", "2d-2d": "K"}[kind]
    problem = GroupedGemm(kind, (20, 0, 25), **{**sizes, split: None})
    assert [operand.shape for operand in problem.tensors] == [a, b, (3,), out]
    assert (problem.operand("offsets").dtype, problem.ends, problem.ragged) == ("int32", (20, 20, 45), split)
    assert problem.group_extents(2) == tuple({**sizes, split: 25}.values())


def test_a_plain_batch_has_no_offsets():
    problem = GroupedGemm("3d-3d", (24, 24), 24, 56, 40)
    assert [operand.shape for operand in problem.tensors] == [(2, 24, 40), (2, 40, 56), (2, 24, 56)]


@pytest.mark.parametrize(
    ("arguments", "fields", "says"),
    [
        (("4d", (1,)), {}, "unknown"),
        (("2d-3d", ()), {"N": 1, "K": 1}, "at least one group"),
        (("2d-3d", (1, -1)), {"N": 1, "K": 1}, ">= 0"),
        (("2d-3d", (1,)), {"M": 1, "N": 1, "K": 1}, "M is 1"),
        (("2d-3d", (1,)), {"K": 1}, "N is None"),
        (("3d-3d", (1, 2)), {"M": 1, "N": 1, "K": 1}, "each is M"),
        (("2d-3d", (1,)), {"N": 1, "K": 1, "dtype": "int4"}, "int4"),
        (("2d-3d", (1,)), {"N": 1, "K": 1, "precision": "x"}, "precision"),
        (("2d-3d", (1,)), {"N": 1, "K": 1, "layout_b": Layout(batch="zero")}, "of its own"),
    ],
)
def test_problems_that_make_no_sense(arguments, fields, says):
    with pytest.raises(ValueError, match=says):
        GroupedGemm(*arguments, **fields)


def test_ids_tell_problems_apart():
    problems = [
        GroupedGemm("2d-3d", (8, 8), None, 8, 8),
        GroupedGemm("2d-3d", (16, 0), None, 8, 8),
        GroupedGemm("3d-2d", (8, 8), 8, None, 8),
        GroupedGemm("2d-2d", (8, 8), 8, 8, None),
        GroupedGemm("3d-3d", (8, 8), 8, 8, 8),
        GroupedGemm("2d-3d", (8, 8), None, 8, 8, "fp32"),
        GroupedGemm("2d-3d", (8, 8), None, 8, 8, "fp32", precision="tf32"),
        GroupedGemm("2d-3d", (8, 8), None, 8, 8, out_dtype="fp32"),
        GroupedGemm("2d-3d", (8, 8), None, 8, 8, layout_a=Layout(pad=8)),
    ]
    assert len({problem.id for problem in problems}) == len(problems)


PLAIN = GroupedGemm("2d-3d", (40, 0, 25), None, 56, 40)


@pytest.mark.parametrize(
    ("problem", "config", "target", "variant", "code"),
    [
        (mm(8, 8, 8), SMALL, HOPPER, {}, ReasonCode.OPERATION),
        (GroupedGemm("2d-3d", (8,), None, 8, 8, "e4m3"), SMALL, HOPPER, {}, ReasonCode.DTYPE),
        (GroupedGemm("2d-3d", (8,), None, 8, 8, "fp32", precision="tf32"), SMALL, targets.find("gfx950"), {},
         ReasonCode.PRECISION),
        (PLAIN, Config(8, 32, 16, 2, 4), HOPPER, {}, ReasonCode.CONFIG),
        (PLAIN, SMALL, HOPPER, {"tma_store": True}, ReasonCode.CONFIG),
        (PLAIN, SMALL, HOPPER, {"flatten": True}, ReasonCode.CONFIG),
        (PLAIN, Config(256, 256, 128, 4, 8), HOPPER, {}, ReasonCode.SHARED_MEMORY),
    ],
)  # fmt: skip
def test_typed_reason(problem, config, target, variant, code):
    with pytest.raises(NotApplicable) as caught:
        KERNEL.plan(problem, config, target, Variant(**variant))
    assert caught.value.reason.code is code, str(caught.value.reason)


SCALED = GroupedGemm("2d-3d", (40, 0, 25), None, 56, 64, "e4m3", layout_b=Layout("col"), scaling="row")


@pytest.mark.parametrize(
    ("kernel", "problem", "variant", "code"),
    [
        ("grouped_mm_descriptors", GroupedGemm("2d-3d", (8,), None, 8, 9), {}, ReasonCode.ALIGNMENT_PITCH),
        (
            "grouped_mm_descriptors",
            GroupedGemm("2d-3d", (8, 8), None, 8, 8, layout_b=Layout(batch_pad=3)),
            {},
            ReasonCode.ALIGNMENT_PITCH,
        ),
        (
            "grouped_mm_descriptors",
            GroupedGemm("3d-3d", (8, 8), 8, 8, 8, layout_a=Layout(batch="inner")),
            {},
            ReasonCode.LAYOUT,
        ),
        ("grouped_mm_descriptors", GroupedGemm("3d-2d", (8,), 8, None, 8), {"tma_store": True}, ReasonCode.CONFIG),
        ("grouped_mm_descriptors", PLAIN, {"tma_store": True, "descriptors": "host"}, ReasonCode.CONFIG),
        (
            "grouped_mm_descriptors",
            GroupedGemm("2d-2d", (8,), 8, 9, None, layout_b=Layout("col")),
            {"tma_store": True},
            ReasonCode.ALIGNMENT_PITCH,
        ),
        ("grouped_mm_descriptors", PLAIN, {"epilogue_subtile": 2}, ReasonCode.CONFIG),
        ("grouped_mm", SCALED, {}, ReasonCode.OPERATION),
        ("scaled_grouped_mm", PLAIN, {}, ReasonCode.OPERATION),
        (
            "scaled_grouped_mm",
            GroupedGemm("2d-3d", (8,), None, 32, 32, "e5m2", scaling="tensor"),
            {},
            ReasonCode.LAYOUT,
        ),
    ],
)
def test_typed_reason_of_descriptors_and_scales(kernel, problem, variant, code):
    with pytest.raises(NotApplicable) as caught:
        catalogue.get(kernel).plan(problem, Config(32, 32, 32, 2, 4), HOPPER, Variant(**variant))
    assert caught.value.reason.code is code, str(caught.value.reason)


def test_scales_by_kind():
    """The groups' rows share a vector of scales where they share the rows; with a scale a matrix they never do."""

    def shapes(kind, scaling, **extents):
        problem = GroupedGemm(kind, (20, 25), **extents, dtype="e4m3", scaling=scaling)
        return [problem.operand(name).shape for name in ("scale_a", "scale_b")]

    assert shapes("2d-3d", "row", N=56, K=40) == [(45,), (2, 56)]
    assert shapes("3d-2d", "row", M=24, K=40) == [(2, 24), (45,)]
    assert shapes("2d-2d", "row", M=24, N=56) == [(2, 24), (2, 56)]
    assert shapes("2d-3d", "tensor", N=56, K=40) == [(2,), (2,)]
    with pytest.raises(ValueError, match="e4m3"):
        GroupedGemm("2d-3d", (8,), None, 8, 8, "bf16", scaling="row")


@pytest.mark.parametrize("kind", ["2d-3d", "3d-2d", "2d-2d"])
def test_the_grid_depends_on_the_sum_of_the_sizes_only(kind):
    """Offsets are on the device: groups of other sizes get the same programs, and no more than there can be tiles."""
    split = {"2d-3d": "M", "3d-2d": "N", "2d-2d": "K"}[kind]
    extents = {**dict.fromkeys("MNK", 40), split: None}
    sizes = [(100, 0, 0), (33, 33, 34), (0, 1, 99)]
    grids = {KERNEL.plan(GroupedGemm(kind, size, **extents), SMALL, HOPPER).grid for size in sizes}
    assert len(grids) == 1
    (programs,) = grids.pop()
    for size in sizes:
        problem = GroupedGemm(kind, size, **extents)
        shapes = [problem.group_extents(group) for group in range(3)]
        assert sum(-(-m // 32) * -(-n // 32) for m, n, _ in shapes) <= programs


def test_the_grid_leaves_the_carveout():
    large = GroupedGemm("2d-3d", (4096, 4096), None, 4096, 64)
    with carveout.reserved(32):
        assert KERNEL.plan(large, SMALL, HOPPER).grid == (100,)
    assert KERNEL.plan(large, SMALL, HOPPER).grid == (132,)
    assert KERNEL.plan(GroupedGemm("2d-3d", (0, 0), None, 64, 64), SMALL, HOPPER).grid == (0,)


COLUMN, INNER = Layout("col", pad=5), Layout(batch="inner")
NUMBERS = [
    (PLAIN, 3),
    (GroupedGemm("3d-2d", (0, 40, 25), 40, None, 40, "fp16", layout_b=COLUMN, layout_a=INNER), 2),
    (GroupedGemm("2d-2d", (40, 0, 25), 40, 24, None, "fp16", layout_a=COLUMN, layout_out=INNER), 100),
    (GroupedGemm("3d-3d", (40, 40), 40, 24, 40, "fp32", precision="tf32", layout_a=COLUMN), 1),
    (GroupedGemm("2d-2d", (0, 0), 40, 24, None, "bf16"), 3),
]


def test_numbers():
    fills = ("transparent", "special", "randn")
    assert not judged_examples.failures(
        ("grouped_mm", p, SMALL, "sm_90", Variant(sms=sms), fills) for p, sms in NUMBERS
    )


def test_numbers_by_descriptors_and_with_scales():
    kernel, deep, config = "scaled_grouped_mm_descriptors", (32, 0, 16, 25), Config(32, 32, 32, 2, 4)
    problems = (
        catalogue.get(kernel).problem("e4m3", "2d-3d", (40, 0, 1, 25), N=48, K=72),
        catalogue.get(kernel).problem("e5m2", "2d-2d", deep, M=40, N=48, scaling="tensor"),
    )
    variants = (Variant(sms=3), Variant("host", sms=2), Variant(tma_store=True, sms=2))
    assert not judged_examples.failures(
        (kernel, problem, config, "sm_90", variant, ("transparent", "special", "wide-scales"))
        for problem in problems
        for variant in variants
    )


@pytest.fixture(scope="module")
def pool():
    with CompilePool(2, 240) as workers:
        yield workers


@pytest.mark.parametrize("target", ["sm_90", "sm_100", "gfx950"])
@pytest.mark.parametrize("kind", ["2d-3d", "2d-2d", "3d-3d"])
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("grouped_mm", Variant()),
        ("grouped_mm_descriptors", Variant(tma_store=True)),
        ("scaled_grouped_mm_descriptors", Variant("host")),
    ],
)
def test_code(pool, name, variant, kind, target):
    kernel = catalogue.get(name)
    if target not in {one.id for one in targets.compile_targets()}:
        pytest.skip(f"the installed Triton cannot compile for {target}")
    target = targets.find(target)
    split = {"2d-3d": "M", "2d-2d": "K"}.get(kind)
    extents = {name: None if name == split else size for name, size in (("M", 136), ("N", 72), ("K", 520))}
    sizes = (136, 136) if kind == "3d-3d" else (144, 0, 48)
    problem = kernel.problem(kernel.dtypes[0], kind, sizes, **extents)
    plan = kernel.plan(problem, Config(64, 64, 32, 2, 4), target, variant)
    result = pool.submit(CompileRequest("conformance.kernels.catalogue:meta_launch", plan, target)).result()
    assert result.status is Status.PASS, result.error[-2000:]
    features = kernel.features(plan)
    verdicts = codegen_checks.check(result.artefact, target, features.required, features.forbidden)
    assert verdicts
    assert not [verdict.text for verdict in verdicts if not verdict.passed]
    assert not over_limits(result.artefact.resources, target)
