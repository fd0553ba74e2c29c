"""Random problems, each judged in full: shapes that no list has. The number in an id is the seed of the draw."""

from conformance.cases.random_problems import random_plan
from conformance.cases.scenarios import every_kernel, named, scenario
from conformance.cases.tier_rows import CROSSED
from conformance.kernels.kernel import NotApplicable

#: Problems of each kernel by tier.
COUNTS = {"quick": 1, "default": 4, "full": 200, "exhaustive": 200}


@scenario(
    every_kernel,
    drawn=COUNTS,
    quick=named(
        "baddbmm",
        "mm_plus_mm",
        "scaled_mm_blockwise",
        "mm_reduce_split_k",
        "mm_blackwell_ws",
        "scaled_grouped_mm",
        "conv3d",
        "conv2d_input_gradient",
        "attention_descriptors",
        "microscaled_mm",
        "microscaled_mm_grouped",
        "mm_fp16_acc",
        "mm_specialised",
        "mm_stream_k",
        "gated_linear_attention",
        "microscaled_mm_batch_descriptors",
    ),
)
def test_random_problem(conform, harness, recorder, kernel, target, drawn):
    """A correct kernel passes every problem that it takes."""
    number, large = drawn + 1_000_000 * harness.settings.seed, harness.settings.has_gpu
    recorder.set(kernel=kernel, target=target, options={"drawn": drawn})
    try:
        plan = random_plan(kernel, number, target, large=large, soon_compiled=harness.settings.tier not in CROSSED)
    except NotApplicable as refusal:
        recorder.not_applicable(refusal.reason)
    conform(kernel, plan.problem, config=plan.config, target=target, variant=plan.variant)
