"""The candidates that Inductor leaves out before it measures. They are configs that would not fit, kernels that a first
round leaves out, and fusions that would spill.

PyTorch's tests see that a prediction was made. Here it is compared with what is compiled, and what is left is judged.
"""

import importlib

import pytest

from conformance.cases.generated_cases import Thin, generated
from conformance.families.gemm.problem import addmm, mm, scaled_mm
from conformance.inductor.compile.observation import unmeasured_fusion
from conformance.inductor.compile.program import Decision, dense
from conformance.inductor.topics import pruning as checks
from conformance.inductor.tuning.prescreened_choices import place
from conformance.judging.harness import record
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.records import Reason, ReasonCode

# --- configs past the shared memory -----------------------------------------------------------------------------------

PRUNING = "max_autotune_prune_choices_based_on_shared_mem"
TMA = {"triton.enable_persistent_tma_matmul": True}
#: No dimension is so small that Inductor makes tiles smaller.
SIZES = (144, 144, 256)
#: A problem and its template, by pointers or, persistent, by descriptors.
TABLES = {
    "mm": (mm(*SIZES, "fp16"), "mm"),
    "persistent-mm": (mm(*SIZES, "fp16"), "persistent TMA"),
    "wide-mm": (mm(*SIZES, "fp32"), "mm"),
    "persistent-addmm": (addmm(*SIZES, "fp16", alpha=1.0, beta=1.0), "persistent TMA"),
    "scaled-mm": (scaled_mm(*SIZES, "e4m3", scaling="row"), "mm"),
    "persistent-scaled-mm": (scaled_mm(*SIZES, "e4m3", scaling="row", out_dtype="fp32"), "scaled persistent TMA"),
}


@pytest.mark.slow(30)
@generated(vendors=("nvidia",), table=Thin(list(TABLES), quick=2))
def test_shared_memory_estimate(inductor, target, table):
    """Every config that torch keeps fits, and none takes more than the estimate, which torch calls an upper bound. That
    it drops configs that fit is recorded and no fault: torch says that it does, and for one table on Blackwell it keeps
    none. What it keeps is judged."""
    inductor.need_option(PRUNING)
    problem, kind = TABLES[table]
    persistent = kind != "mm"
    if persistent:
        inductor.require(target, "tma")
        kind = "Blackwell" if target.capability("tcgen05").available else kind
    template, settings = inductor.template(kind), {PRUNING: True, **TMA}
    needless = []
    for pinned in inductor.choices(problem, target, template, settings=settings, decision=Decision.NOTHING_IS_PRUNED):
        inductor.record(checks.check_estimate(pinned, template, target))
        if checks.needlessly_dropped(pinned, template, target):
            needless.append(pinned.left[0].description)
    inductor.recorder.set(observed={"dropped although they fit": needless})
    if not checks.kept(pinned, template):
        inductor.refused(problem, target, template, "NoValidChoicesError", settings=settings)
        return
    fields = {"settings": settings, "choices": 1, "fills": ("transparent",)}
    for run in inductor.pinned(problem, target, template, persistent=persistent, **fields):
        run.record(checks.check_offered(run.generated, pinned, template))


# --- prescreening -----------------------------------------------------------------------------------------------------

RULES = {
    "two-rounds": checks.check_two_rounds,
    "slow-library": checks.check_slow_library,
    "few-kernels": checks.check_one_round,
    "one-swizzle": lambda: checks.check_one_round(12, [2]),
    "not-wanted": lambda: checks.check_one_round(12, prescreens=False),
    "remembered": checks.check_remembered,
}


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.proves_at_most("nothing", "rules of Inductor's are judged, and no kernel is run")
def test_prescreening(recorder, rule):
    """Kernels of CUTLASS are timed with one swizzle first, and the best with all. The kernels are stand-ins that are
    timed at what they are told. PyTorch's tests have CUTLASS and see the number of choices."""
    if place() is None:
        detail = "this torch has no choices of CUTLASS's, which are what it prescreens"
        recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "prescreening", detail))
    record(recorder, RULES[rule]())


@generated(vendors=("nvidia",))
def test_prescreened_product(inductor, target):
    """The same with Triton's choices in CUTLASS's place: of all of them the fastest eight are left, and the fastest is
    generated. Its numbers are exact."""
    operands = [dense("a", 40, 64, dtype="fp16"), dense("b", 64, 48, dtype="fp16")]
    fields = {"templates": inductor.choices_of("mm"), "settings": PINNED_SETTINGS}
    fields["decision"] = Decision.TRITON_IS_PRESCREENED
    compiled = inductor.exact("conformance.inductor.topics.gemm:mm", operands, target, **fields)
    inductor.record(checks.check_product(compiled.generated))


# --- fusion that would cost more than it saves ------------------------------------------------------------------------

MOST = "max_epilogue_benchmarked_choices"
#: What the compiler says of the fused kernel -> whether it is taken.
FUSIONS = {
    "fits": (Decision.FUSION_FITS, True),
    "spills": (Decision.FUSION_SPILLS, False),
    "crowds": (Decision.FUSION_CROWDS, False),
}


@generated(vendors=("nvidia",), sampled=True, kernel=Thin(list(FUSIONS), quick=2), most=Thin([2, 5]))
def test_fusion_by_registers(inductor, target, kernel, most):
    """Without measuring, a relu is fused into its product unless the fused kernel spills or leaves too few blocks on a
    multiprocessor. The compiler's figures are given; it compiles no more fused kernels than the option allows. Both
    results are exact."""
    inductor.need_option(MOST)
    operands = [dense("a", 40, 64, dtype="fp16"), dense("b", 64, 48, dtype="fp16")]
    decision, fused = FUSIONS[kernel]
    fields = {"templates": inductor.choices_of("mm"), "descriptions": r"\bnum_warps=[48]\b", "decision": decision}
    fields["settings"] = {**PINNED_SETTINGS, MOST: most, **unmeasured_fusion()}
    compiled = inductor.exact("conformance.inductor.topics.choices:relu_mm", operands, target, **fields)
    inductor.record(checks.check_fusion(compiled.generated, fused=fused, asked=most))


@pytest.mark.proves_at_most("nothing", "rules of Inductor's are judged, and no kernel is run")
def test_rules_of_fusion(recorder):
    """Spills, registers and times decide about a fusion, at the borders of each rule."""
    if not hasattr(importlib.import_module("torch._inductor.scheduler"), "_fuse_epilogue"):
        detail = "this torch does not decide by registers and spills what it fuses"
        recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "fusion", detail))
    record(recorder, checks.check_fusion_rules())
