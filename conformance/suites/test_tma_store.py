"""C leaves through a descriptor exactly when asked to, whole or in subtiles, and never touches a neighbour."""

import dataclasses

from conformance.cases.scenarios import quick_fills, ragged, scenario, where
from conformance.codegen_checks import POINTER_STORE, TMA_STORE
from conformance.families.examples import stored_dtype
from conformance.judging.plan_rules import accepted, broken_by_descriptors
from conformance.kernels.kernel import Variant
from conformance.problems import Layout, itemsize
from conformance.records import ReasonCode


@scenario(
    where(descriptors=True),
    tma_store=[False, True],
    subtile=[4, 1, 2],  # in this order descriptors of the device store four subtiles, those of the host two
    rotate={"descriptors": ["device", "host"], "flatten": [False, True]},
    configs=1,
)
def test_store_as_asked(conform, harness, kernel, target, dtype, config, tma_store, subtile, descriptors, flatten):
    """Rows of C are padded, so that every byte after a row is watched while the store writes to its edge."""
    M, N, K = ragged(kernel, config, dtype, aligned=True)
    pad = 32 // itemsize(stored_dtype(dtype))
    problem = kernel.problem(dtype, M, N, K, layout_out=Layout(pad=pad - N % pad))
    variant = {"tma_store": tma_store, "epilogue_subtile": subtile, "descriptors": descriptors, "flatten": flatten}
    fills = quick_fills(harness.settings.tier)
    run = conform(kernel, problem, config=config, target=target, sms=3, fills=fills, **variant)
    check_store(run, tma_store)


def check_store(run, tma_store):
    """C leaves by TMA exactly if it was asked to. A target without TMA has neither: there Triton makes stores by
    pointers of all."""
    if run.plan.target.capability("tma").available:
        run.requires(TMA_STORE if tma_store else POINTER_STORE)
        run.forbids(POINTER_STORE if tma_store else TMA_STORE)


@scenario(where(descriptors=True), short=[1, 3], descriptors=["device", "host"], configs=1)
def test_inner_extent_not_a_multiple_of_16_bytes(
    conform, harness, recorder, kernel, target, dtype, config, short, descriptors
):
    """A descriptor store would overwrite up to the next 16 bytes: it is refused; the pointer store keeps to its row."""
    M, N, K = ragged(kernel, config, dtype, aligned=True)
    out = kernel.problem(dtype, M, N, K).output_dtype
    N -= short
    step = 16 // min(itemsize(out), itemsize(stored_dtype(dtype)))
    fields = {"layout_out": Layout(pad=-N % step + step)}
    if (kernel.orders or ("row", "row"))[1] == "row":
        fields["layout_b"] = Layout(pad=-N % step)
    problem = kernel.problem(dtype, M, N, K, **fields)
    variant = Variant(tma_store=True, descriptors=descriptors)
    reason = kernel.refusal(kernel.draft(problem, config, target, variant))
    judged = kernel.limits is not None
    expected = reason is not None and (reason.code, reason.subject) == (ReasonCode.ALIGNMENT_EXTENT, "out")
    sound = kernel.draft(kernel.problem(dtype, M, N + short, K), config, target, variant)
    recorder.set(kernel=kernel, problem=problem, config=config, target=target, options={"variant": variant.id})
    if reason is None and not judged:  # it copes, and must then be right
        conform(kernel, problem, config=config, target=target, variant=variant)
        return
    if not expected and (already := kernel.refusal(sound)):  # a variant that it does not take at all
        recorder.not_applicable(already)
    # one without limits may need more than that extent, and say so in its own words
    broken = next(rule for rule in broken_by_descriptors(problem, tma_store=True))
    text = accepted(kernel, broken) if reason is None else str(reason)
    recorder.verdict("refusal", expected or not judged, text)
    fills = quick_fills(harness.settings.tier)
    plain = dataclasses.replace(kernel.usual_variant, sms=3, tma_store=False, descriptors=descriptors)
    run = conform(kernel, problem, config=config, target=target, fills=fills, variant=plain)
    run.forbids(TMA_STORE)
