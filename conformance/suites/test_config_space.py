"""Every config that the heuristics list, on each kernel that it belongs to: a bad row is seen whether tuned or not.

Each row is compiled, run and judged by the exact fills, bit for bit; from the full tier on with a shape of every class.
Registers, spills, shared memory and compile time are in the record. On a device the case of the usual shape also times
a larger problem, so that two runs show where the fastest row has changed.
"""

import dataclasses
import functools

import pytest

from conformance.cases.config_space import torch_row
from conformance.cases.each_kernel import each_kernel_without_target
from conformance.cases.scenarios import every_kernel, named, scenario, shapes_of
from conformance.cases.selected_rows import every_selected_row, selected
from conformance.cases.tier_rows import CROSSED
from conformance.families.examples import EVEN, WHOLE_TILES
from conformance.inputs.fills import fill_set
from conformance.judging.sweep import estimates, measure, spill_verdict
from conformance.kernels import catalogue
from conformance.kernels.refusal_rules import objection
from conformance.records import Reason, ReasonCode

#: The exact fill of a family that the quick tier takes; of a family without one of these, the last.
QUICK_FILLS = ("wide-A", "tie")
#: An exact fill that is left out, because scales act after the loop, whatever the config.
WITHOUT = "wide-scales"


def swept_fills(problem, tier):
    """The exact fills of the problem's family, in the quick tier one of them. A sweep looks for wrong bits; bounded
    fills belong to the other suites. None, which is every fill, for a family without exact ones."""
    exact = [kind.name for kind in fill_set(problem).kinds if kind.exact and kind.name != WITHOUT]
    quick = [name for name in exact if name in QUICK_FILLS] or exact[-1:]
    return tuple(quick if tier == "quick" else exact) or None


def quick_shapes(kernel):
    """The shape classes of the quick tier: of a kernel of this package with weight 1 several tiles, or less than
    one. A third-party kernel may refuse these."""
    shapes = shapes_of(kernel)
    few = ("several-tiles", "smaller-than-a-tile") if kernel.weight == 1 and catalogue.is_own(kernel) else shapes
    return [name for name in few if name in shapes]


def is_timed(case):
    """Returns True if a case with these parameters also times its kernel, if there is a device."""
    return case["shape"] == case["kernel"].usual_shape


@pytest.mark.timed(when=is_timed)
@scenario(
    every_kernel,
    shape={"quick": quick_shapes, "default": shapes_of, "full": shapes_of, "exhaustive": shapes_of},
    every_config=True,
)
def test_config_space(conform, harness, recorder, kernel, target, dtype, config, shape):
    """A config compiles and fits the target, or its kernel or the compiled code says why not; its bits are right and it
    spills only where that is declared."""
    problem = kernel.example(dtype, config, shape)
    recorder.set(options={"dtype": dtype}, observed=estimates(kernel, problem, config, target))
    row = torch_row(kernel, target, config, harness.settings.tier)
    recorder.set(observed={"torch_row": row} if row else {})
    # a declaration is kept up with by whole sweeps only, and rows of torch's alone have none
    spills = functools.partial(
        spill_verdict, kernel, dtype, config, target, judged=harness.settings.whole_tier and row is None
    )
    fills = swept_fills(problem, harness.settings.tier)
    usual = kernel.example(dtype, config, kernel.usual_shape)
    run = {"config": config, "target": target, "variant": config.in_variant(kernel.example_variant())}
    conform(kernel, problem, **run, fills=fills, inspect=spills, gauge=usual)
    if is_timed({"kernel": kernel, "shape": shape}) and harness.settings.has_gpu:
        recorder.set(observed=measure(harness, kernel, dtype, config, target))


def even_shapes(kernel):
    """The shape classes without a rest that a kernel has examples of: a third-party kernel may know whole tiles only,
    or none at all."""
    return [shape for shape in (EVEN, WHOLE_TILES) if kernel.knows(shape)]


def alignments(kernel):
    """Returns whether rows are multiples of 16 bytes, both ways; where they are not, the compiler copies elements one
    by one. Only products without descriptors take rows of any length."""
    if not even_shapes(kernel):
        return []
    return [True, False] if kernel.family == "gemm" and not kernel.descriptors else [True]


def takes_constants(kernel):
    """Returns True if a kernel can have its sizes as constants."""
    return kernel.family in ("gemm", "conv", "conv-gradient")


def even(kernel, dtype, config, aligned):
    """A problem of which no tile and no block of K has a rest, and whose K is longer than the pipeline."""
    problem = kernel.example(dtype, config, even_shapes(kernel)[0])
    if aligned:
        return problem
    a, b = (dataclasses.replace(layout, pad=1) for layout in (problem.layout_a, problem.layout_b))
    return dataclasses.replace(problem, layout_a=a, layout_b=b)


def judge_even(conform, harness, recorder, kernel, target, dtype, config, aligned, static):
    """Judges a kernel with sizes as production has them; ``static``: they are constants."""
    problem = even(kernel, dtype, config, aligned)
    recorder.set(options={"dtype": dtype}, observed=estimates(kernel, problem, config, target))
    row = torch_row(kernel, target, config, harness.settings.tier)
    recorder.set(observed={"torch_row": row} if row else {})
    variant = dataclasses.replace(config.in_variant(kernel.example_variant()), static=static)
    run = {"config": config, "target": target, "variant": variant}
    usual = kernel.example(dtype, config, kernel.usual_shape)
    conform(kernel, problem, **run, fills=swept_fills(problem, harness.settings.tier), gauge=usual)


@scenario(
    every_kernel,
    aligned=alignments,
    configs=1,
    every_config=CROSSED,
    quick=named(
        "bmm",
        "fp8_bmm_descriptors",
        "mm_fp64",
        "mm_atomic_split_k",
        "fused_mm",
        "grouped_mm",
        "conv2d",
        "conv_transpose2d",
        "attention_decode",
        "attention_paged",
        "microscaled_mm_scales_persistent_tma",
        "mm_plus_mm_one_loop",
        "int4_mm",
        "mm_descriptors",
        "mm_scaled_k",
        "conv2d_weight_gradient",
    ),
)
def test_even_sizes(conform, harness, recorder, kernel, target, dtype, config, aligned):
    """Sizes without a rest that the kernel learns at run time."""
    judge_even(conform, harness, recorder, kernel, target, dtype, config, aligned, static=False)


@scenario(
    takes_constants,
    aligned=alignments,
    configs=1,
    every_config=CROSSED,
    quick=named(
        "mm_persistent",
        "mm_plus_mm",
        "scaled_mm_blockwise",
        "mm_blackwell_ws",
        "conv3d",
        "conv2d_input_gradient",
        "dual_mm",
    ),
)
def test_even_constant_sizes(conform, harness, recorder, kernel, target, dtype, config, aligned):
    """Sizes without a rest that the compiler knows, so that the loop over K has no mask. Of kernels that take turns in
    the quick tier each has such sizes in the suite ``dynamic_shapes``, too."""
    judge_even(conform, harness, recorder, kernel, target, dtype, config, aligned, static=True)


def knows_depth(kernel):
    """Returns True for a kernel that is no plain product and has loads without a mask where the compiler knows that
    blocks are whole."""
    families = ("int4", "linear-attention", "microscaled", "microscaled-grouped")
    return kernel.family in families and not kernel.descriptors


@scenario(knows_depth, shape={"quick": [EVEN], **dict.fromkeys(("default", *CROSSED), (EVEN, "ragged"))}, configs=1)
def test_constant_depths(conform, kernel, target, dtype, config, shape):
    """The compiler knows K, or how many positions there are: whole blocks, or some with a rest."""
    conform(kernel, kernel.example(dtype, config, shape), config=config, target=target, static=True)


@every_selected_row
def test_selected_rows(conform, harness, recorder, kernel, target, dtype, config, size):
    """A row that the heuristics scale to a problem's size is right on that problem. Attention's default is right with
    the head dim for which it is the default."""
    problem = selected(kernel, dtype, target)[config, size]
    recorder.set(options={"dtype": dtype, "size": size}, observed=estimates(kernel, problem, config, target))
    # their spills are declared as one version of Triton showed them: others are recorded and fail no case
    spills = functools.partial(spill_verdict, kernel, dtype, config, target, size=size, judged=False)
    fills = swept_fills(problem, harness.settings.tier)
    conform(
        kernel, problem, config=config, target=target, fills=fills, inspect=spills, variant=kernel.example_variant()
    )


@each_kernel_without_target
def test_each_kernel_has_a_target(harness, recorder, kernel):
    """A kernel that takes no target of this run has a case, too: it is not run, for the kernel's reason."""
    reason = kernel.example_refusal(kernel.dtype_names()[0], kernel.configs[0], harness.targets[0])
    recorder.set(kernel=kernel, target=harness.targets[0])
    recorder.not_run(reason)


@pytest.mark.parametrize("family", sorted({kernel.family for kernel in catalogue.own_kernels().values()}))
@pytest.mark.proves_at_most("nothing", "refusals are judged, and no kernel is run")
def test_refusals_of_examples(harness, recorder, family):
    """A kernel refuses only those of its own examples that the rules allow: such a config would have no case."""
    offered = {name: each for name, each in catalogue.own_kernels().items() if each.offered and each.family == family}
    for name, kernel in offered.items():
        objections = list(unjustified_refusals(kernel, harness.targets))
        text = "; ".join(objections[:4]) or "each is one that the rules allow"
        recorder.verdict(f"refusals/{name}", not objections, text)
    if not offered:
        detail = f"the installed Triton lacks what every kernel of the family {family} calls"
        recorder.not_applicable(Reason(ReasonCode.CAPABILITY, family, detail))


def unjustified_refusals(kernel, targets):
    """Returns the objections of the suite's rules to refusals of a kernel's own examples: such a config would have no
    case."""
    for target in targets:
        for dtype in kernel.dtype_names():
            for config in kernel.configs:
                problem, variant = kernel.example(dtype, config), config.in_variant(kernel.example_variant())
                draft = kernel.draft(problem, config, target, variant)
                reason = kernel.refusal(draft)
                if reason is not None and (text := objection(kernel, draft, reason)):
                    yield text
