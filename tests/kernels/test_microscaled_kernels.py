"""The kernels of block-scaled products: what they refuse, their grids, and the features that they promise."""

import pytest
import torch

from conformance import codegen_checks as codegen
from conformance import targets
from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.heuristics.configs import BatchConfig, Config
from conformance.judging.plan_rules import expected_grid
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.kernels.refusal_rules import objection
from conformance.problems import Layout
from conformance.records import ReasonCode

HOPPER, BLACKWELL, AMPERE, AMD = (targets.find(name) for name in ("sm_90", "sm_100", "sm_80", "gfx950"))
LARGE, SMALL = Config(128, 64, 128, 2, 4), Config(64, 64, 128, 2, 4)
BATCH, BATCH_OF_SCALES = "microscaled_mm_batch_descriptors", "microscaled_mm_batch_scales_descriptors"
TILES, TWO = "microscaled_mm_batch_tiles", BatchConfig(32, 64, 64, 1, 4)
TMA, SPECIALISED = "microscaled_mm_persistent_tma", "microscaled_mm_blackwell_ws"
COLUMN = Layout("col")


def _problem(a="mxfp8", b="mxfp8", M=160, N=128, K=128, **fields):
    return MicroscaledGemm(a, b, M, N, K, **fields)


def _draft(name, problem, config=LARGE, target=HOPPER, **variant):
    kernel = catalogue.get(name)
    return kernel, kernel.draft(problem, config, target, Variant(**variant))


@pytest.mark.parametrize(
    ("name", "problem", "config", "target", "variant", "code", "subject"),
    [
        (TMA, _problem(), LARGE, AMPERE, {}, ReasonCode.CAPABILITY, "tma"),
        (TMA, _problem(), LARGE, AMD, {}, ReasonCode.CAPABILITY, "tma"),
        (SPECIALISED, _problem(), LARGE, HOPPER, {}, ReasonCode.CAPABILITY, "tcgen05"),
        (SPECIALISED, _problem(), Config(32, 64, 64, 2, 4), BLACKWELL, {}, ReasonCode.CONFIG, "tcgen05"),
        (SPECIALISED, _problem(), Config(128, 64, 64, 2, 2), BLACKWELL, {}, ReasonCode.CONFIG, "tcgen05"),
        (TMA, _problem(), LARGE, HOPPER, {"static": True}, ReasonCode.CONFIG, "variant"),
        (TMA, _problem(), LARGE, HOPPER, {"epilogue_subtile": 2}, ReasonCode.CONFIG, "variant"),
        (TMA, _problem(batch=2), LARGE, HOPPER, {}, ReasonCode.EXTENT, "batch"),
        (TMA, _problem(layout_a=Layout(offset=8)), LARGE, HOPPER, {}, ReasonCode.ALIGNMENT_BASE, "a"),
        (TMA, _problem(layout_b=Layout("col", pad=8)), LARGE, HOPPER, {}, ReasonCode.ALIGNMENT_PITCH, "b"),
        (TMA, _problem(layout_out=COLUMN), LARGE, HOPPER, {"tma_store": True}, ReasonCode.LAYOUT, "out"),
        (
            TMA,
            _problem(N=130, layout_out=Layout(pad=2)),
            LARGE,
            HOPPER,
            {"tma_store": True},
            ReasonCode.ALIGNMENT_EXTENT,
            "out",
        ),
        # four-bit codes next to eight-bit ones, which tcgen05 reads with gaps
        (TMA, _problem("mxfp4", K=192), LARGE, BLACKWELL, {}, ReasonCode.ALIGNMENT_EXTENT, "a"),
        (TMA, _problem(b="mxfp4", K=192), LARGE, BLACKWELL, {}, ReasonCode.ALIGNMENT_EXTENT, "b"),
        (TMA, _problem("mxfp4", layout_a=Layout(offset=16)), LARGE, BLACKWELL, {}, ReasonCode.ALIGNMENT_BASE, "a"),
        (TMA, _problem("mxfp4", layout_a=Layout(pad=16)), LARGE, BLACKWELL, {}, ReasonCode.ALIGNMENT_PITCH, "a"),
    ],
)
def test_refusals_that_a_rule_justifies(name, problem, config, target, variant, code, subject):
    kernel, draft = _draft(name, problem, config, target, **variant)
    reason = kernel.refusal(draft)
    assert (reason.code, reason.subject) == (code, subject)
    assert objection(kernel, draft, reason) is None


@pytest.mark.parametrize(
    ("problem", "config", "target"),
    [
        (_problem("mxfp4", K=192), LARGE, HOPPER),  # converted
        (_problem("mxfp4", K=192), SMALL, BLACKWELL),  # likewise, for the tile has too few rows
        (_problem("mxfp4", "mxfp4", K=192), LARGE, BLACKWELL),
        (_problem("mxfp4"), LARGE, BLACKWELL),
        (_problem(M=1, layout_a=Layout(pad=3)), LARGE, HOPPER),  # one row needs no pitch
        (_problem(K=0), LARGE, HOPPER),
    ],
)
def test_what_descriptors_take(problem, config, target):
    kernel, draft = _draft(TMA, problem, config, target)
    assert kernel.refusal(draft) is None


def test_a_refusal_that_no_rule_justifies():
    kernel, draft = _draft(TMA, _problem("mxfp4", K=192), LARGE, BLACKWELL)
    reason = kernel.refusal(draft)
    _, converted = _draft(TMA, _problem("mxfp4", K=192), LARGE, HOPPER)
    assert "By the suite's rule it must take it" in objection(kernel, converted, reason)


def test_grids_and_features():
    kernel, draft = _draft(TMA, _problem(), sms=3)
    plan = kernel.plan(draft.problem, draft.config, HOPPER, draft.variant)
    assert plan.grid == (3,)
    features = kernel.features(plan)
    assert {codegen.TMA_LOAD, codegen.WGMMA, codegen.POINTER_STORE} <= features.required
    assert codegen.TMA_STORE in features.forbidden
    special = catalogue.get(SPECIALISED)
    scaled = special.features(special.plan(_problem(), LARGE, BLACKWELL, Variant("host", tma_store=True)))
    assert {codegen.SCALED_MMA, codegen.WARP_SPECIALIZED, codegen.TMA_STORE} <= scaled.required
    one_stage = special.plan(_problem(), Config(128, 64, 128, 1, 4), BLACKWELL)
    assert codegen.WARP_SPECIALIZED not in special.features(one_stage).required
    empty = kernel.features(kernel.plan(_problem(K=0), LARGE, HOPPER))
    assert {codegen.TMA_LOAD, codegen.POINTER_LOAD} <= empty.forbidden


def test_rows_that_nothing_is_said_about_have_a_pitch_for_descriptors():
    kernel = catalogue.get(TMA)
    assert kernel.problem(("mxfp4", "mxfp8"), 40, 50, 98).operand("a").strides == (64, 1)
    said = kernel.problem(("mxfp4", "mxfp8"), 40, 50, 98, layout_a=Layout())
    assert said.operand("a").strides == (49, 1)


def test_scales_by_descriptor():
    kernel, target = catalogue.get("microscaled_mm_scales_persistent_tma"), BLACKWELL
    whole = Config(128, 128, 128, 2, 4)
    features = kernel.features(kernel.plan(kernel.problem(("mxfp8", "mxfp8"), 144, 160, 288), whole, target))
    assert codegen.POINTER_LOAD in features.forbidden
    assert {codegen.TMA_LOAD, codegen.SCALED_MMA} <= features.required
    rows = kernel.problem(("mxfp8", "mxfp8"), 144, 160, 288, swizzled=False)
    odd = kernel.problem(("mxfp8", "bf16"), 144, 160, 288, layout_scale=Layout(offset=5))
    tiles = kernel.problem(("mxfp8", "mxfp8"), 144, 160, 288)
    refusals = (
        (rows, whole, ReasonCode.LAYOUT),
        (odd, whole, ReasonCode.LAYOUT),
        (tiles, Config(128, 64, 128, 2, 4), ReasonCode.CONFIG),
        (tiles, Config(128, 128, 64, 2, 4), ReasonCode.CONFIG),
    )
    for problem, config, code in refusals:
        draft = kernel.draft(problem, config, target)
        reason = kernel.refusal(draft)
        assert reason.code == code
        assert objection(kernel, draft, reason) is None


def test_grouped_products_by_descriptor():
    kernel, target = catalogue.get("microscaled_mm_grouped_persistent_tma"), BLACKWELL
    problem = kernel.problem(("mxfp8", "mxfp4"), (130, 0, 1), 128, 128)
    features = kernel.features(kernel.plan(problem, LARGE, target, Variant("host", sms=3)))
    assert {codegen.TMA_LOAD, codegen.SCALED_MMA, codegen.POINTER_STORE} <= features.required
    apart = MicroscaledGroupedGemm("mxfp8", "mxfp8", (64,) * 2, 64, 64, layout_b=Layout("col", batch_pad=8))
    narrow = kernel.problem(("mxfp8", "mxfp4"), (64,), 64, 64)
    refusals = (
        (apart, {}, ReasonCode.ALIGNMENT_PITCH),
        (narrow, {}, ReasonCode.ALIGNMENT_EXTENT),
        (problem, {"tma_store": True}, ReasonCode.CONFIG),
    )
    for asked, variant, code in refusals:
        draft = kernel.draft(asked, LARGE, target, Variant(**variant))
        reason = kernel.refusal(draft)
        assert reason.code == code, reason
        assert objection(kernel, draft, reason) is None


def test_groups_without_a_row_are_planned():
    kernel = catalogue.get("microscaled_mm_grouped_persistent_tma")
    problem = MicroscaledGroupedGemm("mxfp8", "mxfp8", (0,), 128, 64, layout_a=Layout("col", pad=31))
    assert kernel.refusal(kernel.draft(problem, LARGE, BLACKWELL, Variant("host"))) is None


def test_the_grouped_kernel():
    kernel, target = catalogue.get("microscaled_mm_grouped"), BLACKWELL
    problem = MicroscaledGroupedGemm("mxfp8", "mxfp4", (130, 0, 5), 128, 96)
    assert kernel.plan(problem, LARGE, target, Variant(sms=3)).grid == (3,)
    plan = kernel.plan(problem, LARGE, target)
    assert plan.grid == (8,), "two whole tiles of columns, and of rows one, and one for each group"
    assert codegen.SCALED_MMA in kernel.features(plan).required
    refusals = {
        "nvfp4": (MicroscaledGroupedGemm("nvfp4", "mxfp4", (64,), 64, 64), LARGE, {}, ReasonCode.SCALE),
        "tile": (problem, Config(16, 64, 64, 2, 4), {}, ReasonCode.CONFIG),
        "variant": (problem, LARGE, {"flatten": True}, ReasonCode.CONFIG),
        "op": (_problem(), LARGE, {}, ReasonCode.OPERATION),
    }
    for asked, config, variant, code in refusals.values():
        draft = kernel.draft(asked, config, target, Variant(**variant))
        reason = kernel.refusal(draft)
        assert reason.code == code
        assert objection(kernel, draft, reason) is None


def _batch(a="mxfp8", b="mxfp8", K=128, batch=3, **fields):
    return MicroscaledGemm(a, b, 160, 128, K, batch=batch, **fields)


@pytest.mark.parametrize(
    ("problem", "target", "variant", "code", "subject"),
    [
        (_batch(batch=None), HOPPER, {}, ReasonCode.EXTENT, "batch"),
        (_batch(), HOPPER, {"static": True}, ReasonCode.CONFIG, "variant"),
        (_batch(layout_a=Layout(offset=8)), HOPPER, {}, ReasonCode.ALIGNMENT_BASE, "a"),
        (_batch(layout_b=Layout("col", pad=8)), HOPPER, {}, ReasonCode.ALIGNMENT_PITCH, "b"),
        (_batch(layout_b=Layout("col", batch_pad=8)), HOPPER, {}, ReasonCode.ALIGNMENT_PITCH, "b"),
        (
            _batch("mxfp8e5", "mxfp4", layout_b=Layout("col", batch_pad=8)),
            AMPERE,
            {},
            ReasonCode.ALIGNMENT_PITCH,
            "b",
        ),
        (_batch(layout_a=Layout(batch="inner")), HOPPER, {}, ReasonCode.LAYOUT, "a"),
        (_batch(layout_a=Layout(batch_pad=2**40)), HOPPER, {}, ReasonCode.EXTENT, "a"),
        (_batch(layout_out=Layout(batch_pad=1)), HOPPER, {"tma_store": True}, ReasonCode.ALIGNMENT_PITCH, "out"),
        (_batch(layout_out=COLUMN), HOPPER, {"tma_store": True}, ReasonCode.LAYOUT, "out"),
        # four-bit codes next to eight-bit ones, which tcgen05 reads with gaps
        (_batch(b="mxfp4", layout_b=Layout("col", batch_pad=16)), BLACKWELL, {}, ReasonCode.ALIGNMENT_PITCH, "b"),
        (_batch(b="mxfp4", K=192), BLACKWELL, {}, ReasonCode.ALIGNMENT_EXTENT, "b"),
    ],
)
def test_batches_that_descriptors_refuse(problem, target, variant, code, subject):
    kernel, draft = _draft(BATCH, problem, LARGE, target, **variant)
    reason = kernel.refusal(draft)
    assert (reason.code, reason.subject) == (code, subject), reason
    assert objection(kernel, draft, reason) is None


@pytest.mark.parametrize(
    ("problem", "target"),
    [
        (_batch(), AMPERE),
        (_batch(), AMD),
        (_batch(batch=0), HOPPER),
        (_batch(batch=1, layout_a=Layout(batch_pad=8)), HOPPER),  # one matrix may have any stride
        (_batch(batch=70_000), HOPPER),  # more than a grid's second dimension
        (_batch(layout_out=Layout(batch_pad=1)), HOPPER),  # stored by pointers
        (_batch(b="mxfp4", K=192), HOPPER),  # converted, from codes without gaps
        (_batch(K=0), HOPPER),
    ],
)
def test_batches_that_descriptors_take(problem, target):
    kernel, draft = _draft(BATCH, problem, LARGE, target)
    if target is AMPERE:  # which has no e4m3
        problem = MicroscaledGemm("mxfp8e5", "mxfp4", 160, 128, 128, batch=3)
        draft = kernel.draft(problem, LARGE, target)
    assert kernel.refusal(draft) is None


def test_one_matrix_for_a_whole_batch_is_refused():
    """A tensor map has no stride of 0. A problem of such operands says so, and a launch does."""
    with pytest.raises(ValueError, match="each matrix of a batch is its own"):
        _batch(layout_b=Layout("col", batch="zero"))
    kernel, draft = _draft(BATCH, _batch())
    tensors = {operand.name: catalogue.meta_tensor(operand) for operand in draft.problem.tensors}
    plan = kernel.plan(draft.problem, LARGE, HOPPER)
    shared = torch.empty_strided((128, 128), (1, 128), dtype=torch.float8_e4m3fn, device="meta").expand(3, 128, 128)
    with pytest.raises(NotApplicable) as refused:
        kernel.launch(plan, {**tensors, "b": shared})
    assert (refused.value.reason.code, refused.value.reason.subject) == (ReasonCode.LAYOUT, "b")


def test_grids_of_batches():
    kernel, _ = _draft(BATCH, _batch())
    assert kernel.plan(_batch(), LARGE, HOPPER).grid == (2 * 2 * 3,)
    assert kernel.plan(_batch(), LARGE, HOPPER, Variant(sms=5)).grid == (5,)
    assert kernel.plan(_batch(batch=0), LARGE, HOPPER).grid == (0,)


@pytest.mark.parametrize("descriptors", ["device", "host"])
def test_features_of_batches(descriptors):
    kernel = catalogue.get(BATCH)
    features = kernel.features(kernel.plan(_batch(), LARGE, HOPPER, Variant(descriptors, tma_store=True)))
    assert {codegen.TMA_LOAD, codegen.TMA_STORE, codegen.WGMMA, codegen.POINTER_LOAD} <= features.required
    rewritten = kernel.features(kernel.plan(_batch(), LARGE, AMD, Variant(descriptors, tma_store=True)))
    assert {codegen.POINTER_LOAD, codegen.POINTER_STORE, codegen.SCALED_MMA} <= rewritten.required
    assert {codegen.TMA_LOAD, codegen.TMA_STORE, codegen.TENSOR_DESCRIPTOR} <= rewritten.forbidden
    assert not rewritten.required & rewritten.forbidden
    scales = catalogue.get(BATCH_OF_SCALES)
    tiles = scales.problem(("mxfp8", "mxfp8"), 144, 160, 288)
    whole = Config(128, 128, 128, 2, 4)
    assert codegen.POINTER_LOAD in scales.features(scales.plan(tiles, whole, BLACKWELL, Variant(descriptors))).forbidden
    loaded = scales.features(scales.plan(tiles, whole, AMD, Variant(descriptors)))
    assert codegen.POINTER_LOAD in loaded.required - loaded.forbidden


@pytest.mark.parametrize("name", [BATCH, BATCH_OF_SCALES])
def test_descriptors_of_the_host_have_the_batch(name):
    kernel = catalogue.get(name)
    problem = kernel.problem(("mxfp8", "mxfp4"), 144, 160, 256, batch=3)
    plan = kernel.plan(problem, Config(128, 128, 128, 2, 4), HOPPER, Variant("host"))
    arguments = catalogue.meta_launch(plan, HOPPER).arguments
    a, b = arguments["a_desc"], arguments["b_desc"]
    assert (a.shape, a.strides, a.block_shape) == ([3, 144, 256], [144 * 256, 256, 1], [1, 128, 128])
    assert (b.shape, b.strides, b.block_shape) == ([3, 160, 128], [160 * 128, 128, 1], [1, 128, 64])
    if name == BATCH_OF_SCALES:
        scale = arguments["scale_a_ptr"]
        assert (scale.shape, scale.block_shape) == ([3, 2, 2, 2, 256], [1, 1, 1, 2, 256])
        assert scale.strides == [2048, 1024, 512, 256, 1]


def test_problems_that_say_nothing_of_a_batch_have_one():
    kernel = catalogue.get(BATCH)
    assert kernel.example("e4m3", kernel.configs[0]).batch == 2
    assert kernel.problem(("mxfp8", "mxfp8"), 32, 32, 64, batch=0).batch == 0


def test_the_stride_of_a_single_matrix_is_one_that_a_descriptor_takes():
    kernel = catalogue.get(BATCH)
    problem = _batch(batch=1, layout_a=Layout(pad=16, batch_pad=5))
    assert problem.operand("a").strides[0] % 16
    by_host, by_device = (
        catalogue.meta_launch(kernel.plan(problem, LARGE, HOPPER, Variant(descriptors)), HOPPER).arguments
        for descriptors in ("host", "device")
    )
    assert by_host["a_desc"].strides[0] == by_device["stride_az"] == 160 * 144


@pytest.mark.parametrize(
    ("problem", "config", "variant", "code", "subject"),
    [
        (_batch(batch=None), TWO, {}, ReasonCode.EXTENT, "batch"),
        (_batch(), Config(32, 64, 64, 1, 4), {}, ReasonCode.CONFIG, "matrices"),
        (_batch(), BatchConfig(32, 64, 32, 1, 4), {}, ReasonCode.CONFIG, "block size"),
        (_batch(), TWO, {"tma_store": True}, ReasonCode.CONFIG, "variant"),
        (_batch(swizzled=True), TWO, {}, ReasonCode.LAYOUT, "scale_a"),
        (_batch("bf16", swizzled=True), TWO, {}, ReasonCode.LAYOUT, "scale_b"),
        (_batch("mxfp4", "nvfp4"), TWO, {}, ReasonCode.SCALE, "scale_b"),
    ],
)
def test_batches_that_tiles_of_several_matrices_refuse(problem, config, variant, code, subject):
    kernel, draft = _draft(TILES, problem, config, HOPPER, **variant)
    reason = kernel.refusal(draft)
    assert (reason.code, reason.subject) == (code, subject), reason
    assert objection(kernel, draft, reason) is None


@pytest.mark.parametrize(("batch", "matrices", "tiles"), [(0, 2, 0), (1, 2, 1), (4, 2, 2), (5, 2, 3), (5, 4, 2)])
def test_programs_of_tiles_of_several_matrices(batch, matrices, tiles):
    kernel, draft = _draft(TILES, _batch(batch=batch), BatchConfig(64, 64, 128, 2, 4, matrices=matrices), HOPPER)
    assert kernel.grid(draft) == (3 * 2 * tiles,)
    assert expected_grid(kernel, draft, 0) == kernel.grid(draft)


def test_the_id_of_a_config_says_how_many_matrices_a_tile_has():
    assert BatchConfig(64, 64, 128, 2, 4, matrices=4).id == "64x64x128-s2-w4-z4"


@pytest.mark.parametrize(
    ("target", "a", "b", "units"),
    [
        (HOPPER, "mxfp8", "mxfp8", {codegen.MMA}),
        (BLACKWELL, "mxfp8", "mxfp8", {codegen.MMA}),
        (targets.find("sm_120"), "mxfp8", "mxfp8e5", {codegen.SCALED_MMA}),
        (targets.find("sm_120"), "nvfp4", "nvfp4", {codegen.SCALED_MMA}),
        (targets.find("sm_120"), "mxfp8", "mxfp4", {codegen.MMA}),
        (AMD, "mxfp8", "mxfp8", {codegen.MFMA}),
    ],
)
def test_units_that_multiply_three_dimensions(target, a, b, units):
    kernel, draft = _draft(TILES, _batch(a, b), BatchConfig(128, 64, 128, 2, 4), target)
    features = kernel.features(draft)
    every = {codegen.MMA, codegen.WGMMA, codegen.TCGEN05, codegen.MFMA, codegen.WMMA, codegen.SCALED_MMA}
    assert features.required & every == units
    assert kernel.multiplies_scaled(draft) == (units == {codegen.SCALED_MMA})


def test_problems_of_tiles_of_several_matrices():
    kernel = catalogue.get(TILES)
    assert kernel.example("e4m3", TWO).batch == 3  # one tile and a part
    assert kernel.problem(("mxfp8", "mxfp8"), 32, 32, 64, batch=0).batch == 0
    assert kernel.timed("uint8").batch == 16
    assert kernel.multiply_adds(_batch(), TWO) == 2 * 32 * 64 * 64
