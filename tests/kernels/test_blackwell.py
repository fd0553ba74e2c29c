"""The warp-specialised kernels for Blackwell: what they refuse, their numbers, and the code that comes of them."""

import os

import pytest
import torch

from conformance import codegen_checks, targets
from conformance.codegen_checks import TCGEN05, TMA_LOAD, TMA_STORE, WARP_SPECIALIZED
from conformance.execution.compile.compilation import CompilePool, CompileRequest
from conformance.execution.compile.kernel_figures import over_limits
from conformance.families.draw import Draw
from conformance.families.gemm.problem import Bias, addmm, mm, scaled_mm
from conformance.heuristics.configs import Config
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.problems import Layout
from conformance.records import ReasonCode, Status
from tests.kernels import judged_examples
from tests.planted.cases import PERSISTENT, Case, Edit, Fault
from tests.planted.planted_kernels import planted

BLACKWELL, HOPPER = targets.find("sm_100"), targets.find("sm_90")
SMALL = Config(64, 64, 32, 2, 4)
COLUMN = Layout("col")


def refusal(problem, config=SMALL, target=BLACKWELL, **variant):
    name = f"{problem.op}_blackwell_ws"
    kernel = catalogue.get(name)
    return kernel.likely_refusal(kernel.draft(problem, config, target, Variant(**variant)))


@pytest.mark.parametrize(
    ("problem", "config", "target", "variant", "code", "subject"),
    [
        (mm(64, 64, 64), SMALL, HOPPER, {}, ReasonCode.CAPABILITY, "tcgen05"),
        (mm(64, 64, 64), SMALL, targets.find("sm_80"), {}, ReasonCode.CAPABILITY, "tma"),
        (mm(64, 64, 64), SMALL, targets.find("sm_120"), {}, ReasonCode.CAPABILITY, "tcgen05"),
        (mm(64, 64, 64), SMALL, targets.find("gfx950"), {}, ReasonCode.CAPABILITY, "tma"),
        (mm(64, 64, 64, "fp32", precision="tf32"), SMALL, BLACKWELL, {}, None, None),
        (mm(64, 64, 64), SMALL, BLACKWELL, {"implied_dtype": True}, ReasonCode.CONFIG, "variant"),
        (mm(64, 64, 64), Config(32, 64, 32, 2, 4), BLACKWELL, {}, ReasonCode.CONFIG, "tcgen05"),
        (mm(64, 64, 64), Config(64, 64, 32, 2, 2), BLACKWELL, {}, ReasonCode.CONFIG, "tcgen05"),
        (mm(64, 64, 64), Config(256, 512, 16, 2, 8), BLACKWELL, {}, ReasonCode.CONFIG, "tensor memory"),
        (mm(64, 64, 64), SMALL, BLACKWELL, {"epilogue_subtile": 4, "tma_store": True}, None, None),
        (mm(64, 64, 64), Config(64, 32, 32, 2, 4), BLACKWELL, {"epilogue_subtile": 4}, ReasonCode.CONFIG, None),
        (mm(64, 64, 64), Config(256, 128, 64, 4, 8), BLACKWELL, {}, ReasonCode.SHARED_MEMORY, None),
        (mm(64, 64, 64), Config(256, 128, 64, 4, 8), BLACKWELL, {"epilogue_subtile": 2}, None, None),
        (mm(64, 64, 60), SMALL, BLACKWELL, {}, ReasonCode.ALIGNMENT_PITCH, "a"),
        (scaled_mm(64, 64, 64, layout_b=Layout()), SMALL, BLACKWELL, {}, ReasonCode.LAYOUT, "b"),
    ],
)
def test_typed_reason(problem, config, target, variant, code, subject):
    reason = refusal(problem, config, target, **variant)
    assert (reason and reason.code) == code, str(reason)
    assert subject is None or reason.subject == subject


def test_another_operation_is_refused_before_the_target():
    kernel = catalogue.get("mm_blackwell_ws")
    with pytest.raises(NotApplicable, match="computes mm, not addmm"):
        kernel.plan(addmm(64, 64, 64), SMALL, HOPPER)


@pytest.mark.parametrize(
    ("problem", "config", "specialised"),
    [
        (mm(64, 64, 64), SMALL, True),
        (mm(64, 64, 64), Config(64, 64, 32, 1, 4), False),
        (mm(64, 64, 0), SMALL, False),
        (addmm(64, 64, 64, alpha=0.0), SMALL, False),
    ],
)
def test_specialisation_is_required_where_it_can_be(problem, config, specialised):
    kernel = catalogue.get(f"{problem.op}_blackwell_ws")
    required = kernel.features(kernel.plan(problem, config, BLACKWELL)).required
    assert (WARP_SPECIALIZED in required) == specialised
    assert {TCGEN05, TMA_LOAD} <= required or not problem.has_product


# Numbers

#: More tiles than programs, so that the epilogue's own tile counter goes round; ragged tiles, three k-blocks.
NUMBERS = [
    (mm(136, 72, 72, "fp16"), Variant(sms=2)),
    (mm(136, 72, 72, "bf16", layout_a=COLUMN), Variant("host", tma_store=True, sms=3)),
    (mm(72, 136, 72, "fp16", layout_b=COLUMN), Variant(epilogue_subtile=2, flatten=True, sms=2)),
    (mm(72, 136, 72, "bf16", out_dtype="fp32"), Variant("host", epilogue_subtile=4, tma_store=True, sms=2)),
    (mm(72, 136, 0, "fp16"), Variant(tma_store=True, sms=2)),
    (mm(136, 72, 72, "fp32", layout_a=COLUMN), Variant(flatten=True, sms=2)),
    (mm(136, 72, 72, "fp32", precision="tf32", layout_b=COLUMN), Variant(tma_store=True, sms=2)),
    (addmm(136, 72, 72, "bf16"), Variant(epilogue_subtile=4, sms=2)),
    (addmm(136, 72, 0, "fp16", bias=Bias("mn")), Variant("host", sms=2)),
    (scaled_mm(136, 80, 80, "e4m3"), Variant(tma_store=True, epilogue_subtile=2, sms=2)),
    (scaled_mm(136, 80, 80, "e5m2", b_dtype="e4m3", scaling="tensor", bias=Bias()), Variant(flatten=True, sms=2)),
]


def test_numbers():
    fills = ("transparent", "randn")
    cases = [(f"{p.op}_blackwell_ws", p, SMALL, "sm_100", variant, fills) for p, variant in NUMBERS]
    assert not judged_examples.failures(cases)


# Code

COMPILED = [
    (mm(520, 520, 520, "bf16"), Config(128, 128, 64, 3, 8), Variant()),
    (mm(520, 520, 520, "fp16"), Config(256, 128, 64, 3, 8), Variant(tma_store=True)),
    (mm(520, 520, 520, "bf16", layout_a=COLUMN), Config(128, 256, 64, 3, 8), Variant("host", epilogue_subtile=2)),
    (mm(520, 520, 520, "bf16", out_dtype="fp32"), SMALL, Variant(tma_store=True, epilogue_subtile=4)),
    (mm(520, 520, 520, "bf16"), Config(128, 128, 64, 1, 4), Variant(tma_store=True)),
    (mm(136, 136, 136, "fp32", precision="tf32", layout_b=COLUMN), Config(128, 64, 32, 3, 8), Variant(flatten=True)),
    (mm(136, 136, 136, "fp32", precision="tf32"), Config(128, 64, 32, 3, 8), Variant()),
    (mm(136, 136, 136, "fp32", layout_a=COLUMN), SMALL, Variant(flatten=True, tma_store=True)),
    (mm(520, 520, 0, "bf16"), SMALL, Variant(tma_store=True, epilogue_subtile=2)),
    (addmm(520, 520, 520, "bf16"), Config(128, 128, 64, 5, 4), Variant("host", tma_store=True, epilogue_subtile=4)),
    (addmm(520, 520, 520, "fp16"), Config(128, 128, 64, 3, 8), Variant(epilogue_subtile=4, flatten=True)),
    (scaled_mm(528, 528, 528, "e4m3"), Config(128, 128, 128, 4, 8), Variant(tma_store=True, epilogue_subtile=2)),
    (scaled_mm(528, 528, 528, "e4m3", scaling="tensor", bias=Bias()), Config(128, 128, 64, 4, 4), Variant()),
]


@pytest.fixture(scope="module")
def pool():
    with CompilePool(int(os.environ.get("CONFORMANCE_TEST_WORKERS", "2")), 240) as workers:
        yield workers


def _id(value):
    return value.id if hasattr(value, "id") else None


@pytest.mark.parametrize("target", [BLACKWELL], ids=_id)
@pytest.mark.parametrize(("problem", "config", "variant"), COMPILED, ids=_id)
def test_code(pool, problem, config, variant, target):
    """Features as declared, as many stores per tile as subtiles, and no more shared memory than estimated."""
    kernel = catalogue.get(f"{problem.op}_blackwell_ws")
    plan = kernel.plan(problem, config, target, variant)
    result = pool.submit(CompileRequest("conformance.kernels.catalogue:meta_launch", plan, target)).result()
    assert result.status is Status.PASS, result.error[-2000:]
    artefact = result.artefact
    features = kernel.features(plan)
    verdicts = codegen_checks.check(artefact, target, features.required, features.forbidden)
    assert not [verdict.text for verdict in verdicts if not verdict.passed]
    assert artefact.resources.shared_memory <= kernel.shared_memory(plan)
    assert not over_limits(artefact.resources, target)
    ttir = codegen_checks.code("ttir", artefact.text("ttir"))
    stores = ttir.count("tt.descriptor_store" if variant.tma_store else "tt.store")
    assert stores == variant.epilogue_subtile
    assert codegen_checks.present(artefact, target, TMA_STORE) == variant.tma_store


@pytest.mark.parametrize("flatten", [True, False])
def test_what_the_specialised_loop_is_known_by(pool, flatten):
    """One stage gives the same source without specialisation, and the feature is not there."""
    kernel = catalogue.get("mm_blackwell_ws")
    for stages, specialised in ((1, False), (2, True)):
        config, variant = Config(128, 128, 64, stages, 4), Variant(flatten=flatten)
        plan = kernel.plan(mm(520, 520, 520, "bf16"), config, BLACKWELL, variant)
        request = CompileRequest("conformance.kernels.catalogue:meta_launch", plan, BLACKWELL)
        artefact = pool.submit(request).result().artefact
        assert codegen_checks.present(artefact, BLACKWELL, WARP_SPECIALIZED) == specialised


def test_the_loop_has_the_form_that_is_asked_for(monkeypatch):
    """Usually flattened, also in random problems, and nested where a case says so."""
    kernel, config = catalogue.get("mm_blackwell_ws"), SMALL
    problem = mm(64, 64, 64)
    tensors = {name: torch.empty(64, 64, dtype=torch.float16) for name in ("a", "b", "out")}
    for variant, flatten in ((None, True), (Variant(flatten=False), False)):
        arguments = kernel.launch(kernel.plan(problem, config, BLACKWELL, variant), tensors).arguments
        assert (arguments["FLATTEN"], arguments["WARP_SPECIALIZE"]) == (flatten, True)
    assert all(kernel.draw_variant(Draw("", number, large=False)).flatten for number in range(20))


#: The nested loop is compiled as if it were not to be warp-specialised.
SAME_WORK = Fault(
    "ws_nested_same_work",
    Edit(PERSISTENT, "warp_specialize=WARP_SPECIALIZE and HAS_PRODUCT", "warp_specialize=WARP_SPECIALIZE and FLATTEN"),
    Case("mm_blackwell_ws", mm(520, 520, 520, "bf16"), SMALL),
)


def test_a_nested_loop_that_is_not_specialised_is_caught():
    """The numbers would be right, and the flattened loop has what it needs."""
    lacking = {}
    with planted(SAME_WORK) as kernel, CompilePool(1, 240) as workers:
        for flatten in (True, False):
            plan = kernel.plan(SAME_WORK.case.problem, SMALL, BLACKWELL, Variant(flatten=flatten))
            request = CompileRequest(f"planted_{SAME_WORK.name}.catalogue:meta_launch", plan, BLACKWELL)
            artefact, features = workers.submit(request).result().artefact, kernel.features(plan)
            verdicts = codegen_checks.check(artefact, BLACKWELL, features.required, features.forbidden)
            lacking[flatten] = [verdict.feature.name for verdict in verdicts if not verdict.passed]
    assert lacking == {True: [], False: [WARP_SPECIALIZED.name]}
