"""Flex attention as Inductor's templates compute it: forward, with few queries, and backward.

PyTorch's tests compare it with the eager composition within a tolerance that is a multiple of eager's own error. Here
outputs, logarithms and gradients are judged by the bounds of our own attention kernels. The fills show a wrong mask,
index or head bit by bit. The lists of blocks are operands, as they are in a compiled model.
"""

from conformance.cases.generated_cases import Thin, generated
from conformance.families.attention.problem import Attention, Mask, Score
from conformance.inductor.topics import templates as checks
from conformance.inductor.topics.attention import gradients_without_autograd
from conformance.records import Reason, ReasonCode

MASKS = {
    "sliding-window": Mask("sliding-window", 37),
    "causal": Mask("causal"),
    "document": Mask("document"),
    "full": Mask(),
}
SCORES = {"alibi": Score("alibi"), "soft-cap": Score("soft-cap", 15.0), "none": Score()}

#: Two blocks of queries and three of keys, the last ones ragged: the two see other blocks under every mask but "full".
LENGTHS = {"queries": 133, "keys": 300}
#: A parameter's values of which the quick tier has none: no case.
LATER = 0


def is_quick(inductor):
    return inductor.harness.settings.tier == "quick"


def check(inductor, target, kind, problem, **fields):
    """Judges choices of the template of ``kind``, which is launched once and alone. The quick tier has one fill in
    which a wrong mask or index shows, and one of usual values."""
    exact = "uniform" if problem.backward else "selector"
    fills = (exact, "randn") if is_quick(inductor) else None
    for run in inductor.pinned(problem, target, inductor.template(kind), fills=fills, **fields):
        run.record(checks.templates_alone(run.generated, 1))


def attention(op="attention", mask="causal", score="none", **fields):
    """A problem of one batch and two heads."""
    sizes = {"batch": 1, "heads": 2, "head_dim": 64, "dtype": "fp16", **LENGTHS, **fields}
    return Attention(op, mask=MASKS[mask], score=SCORES[score], **sizes)


def gradients(inductor, **fields):
    """The same of its gradients; the case ends where torch compiles them with autograd only."""
    if not gradients_without_autograd():
        detail = "the installed torch differentiates the scores' modification in autograd alone"
        inductor.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "flex_attention_backward", detail))
    return attention("attention_backward", **fields)


# --- masks and scores -------------------------------------------------------------------------------------------------


@generated(sampled=True, mask=Thin(list(MASKS)), score=Thin(list(SCORES)))
def test_attention(inductor, target, mask, score):
    """Every mask with every modification of the scores. Slopes and documents are captured tensors."""
    size = {"heads": 1, "head_dim": 16} if is_quick(inductor) else {}
    check(inductor, target, "attention", attention(mask=mask, score=score, **size))


@generated(sampled=True, mask=Thin(list(MASKS)), score=Thin(["soft-cap", "alibi", "none"]))
def test_gradients(inductor, target, mask, score):
    """The same backward: gradients of q, k and v, with the derivative of the modification."""
    size = {"heads": 1, "head_dim": 16} if is_quick(inductor) else {}
    check(inductor, target, "gradients of attention", gradients(inductor, mask=mask, score=score, **size))


# --- shapes -----------------------------------------------------------------------------------------------------------

SHAPES = {
    # the first rows of the causal mask see nothing: their output is 0 and their logarithm -inf
    "more-queries-than-keys": {"queries": 150, "keys": 131},
    "whole-blocks": {"queries": 128, "keys": 256},
    "one-key": {"queries": 129, "keys": 1},
    "two-heads-of-four": {"heads": 4, "kv_heads": 2},
    "one-head-for-three": {"heads": 3, "kv_heads": 1},
    "one-batch-for-two": {"batch": 2, "heads": 1, "kv_batch": 1},
    "head-of-80": {"head_dim": 80},
    "wider-values": {"head_dim": 32, "value_dim": 64},
    "sequence-first": {"order": "bshd", "pad": 8},
    "fp32": {"dtype": "fp32", "head_dim": 32},
}


@generated(shape=Thin(list(SHAPES), quick=LATER))
def test_shapes(inductor, target, shape):
    """Ragged lengths, rows that see no key, heads and batches that share keys, heads that are no power of two."""
    check(inductor, target, "attention", attention(**SHAPES[shape]))


#: Inductor rounds the gradients of each batch before it sums them, and our bound has one rounding.
FORWARD_ONLY = ("one-batch-for-two",)


@generated(shape=Thin([name for name in SHAPES if name not in FORWARD_ONLY], quick=LATER))
def test_gradients_of_shapes(inductor, target, shape):
    """The same backward. Gradients of keys are summed over all heads that share them."""
    check(inductor, target, "gradients of attention", gradients(inductor, **SHAPES[shape]))


@generated(backward=Thin([False, True], quick=LATER))
def test_configs(inductor, target, backward):
    """Configs that autotuning offers, as many as the tier asks for."""
    kind, problem = ("gradients of attention", gradients(inductor)) if backward else ("attention", attention())
    check(inductor, target, kind, problem, settings={"max_autotune": True})


@generated(score=Thin(["none", "alibi"], quick=LATER))
def test_dynamic_lengths(inductor, target, score):
    """Lengths that may change: one compilation serves three pairs of them. They have as many blocks: torch fixes the
    extents of the lists."""
    problem, *also = (attention(score=score, queries=q, keys=k) for q, k in ((133, 150), (200, 255), (250, 190)))
    check(inductor, target, "attention", problem, dynamic=True, also=also)


# --- few queries ------------------------------------------------------------------------------------------------------

SHARED = {
    "two-heads-of-four": {"heads": 4, "kv_heads": 2},
    "one-for-each": {"heads": 2},
    "one-batch-for-two": {"batch": 2, "heads": 2, "kv_heads": 1, "kv_batch": 1},
}


@generated(sampled=True, splits=Thin([3, None, 1, 20]), shared=Thin(list(SHARED)), mask=Thin(["causal", "document"]))
def test_few_queries(inductor, target, splits, shared, mask):
    """Fewer queries than a block: the keys are split among programs, more than there are blocks of keys too, and the
    parts are merged. ``splits`` None is Inductor's own number, which depends on the SMs."""
    options = (("SPLIT_KV", splits),) if splits else ()
    size = {"head_dim": 16} if is_quick(inductor) else {}
    problem = attention(mask=mask, queries=5, keys=300, **SHARED[shared], **size)
    check(inductor, target, "attention of few queries", problem, arguments=(("options", options),))
