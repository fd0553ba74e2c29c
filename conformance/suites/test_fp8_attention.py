"""Attention of fp8 operands, whose probabilities are rounded to fp8: masks, scales, dtypes of the output, strides."""

from typing import Any

from conformance.cases.scenarios import scenario, where
from conformance.families.attention.problem import Attention, Mask, Score
from conformance.judging.plan_rules import expect_refusal
from conformance.records import ReasonCode

MASKS = {
    "full": Mask(),
    "causal": Mask("causal"),
    "sliding-window": Mask("sliding-window", 19),
    "document": Mask("document"),
}
SCORES = {"none": Score(), "soft-cap": Score("soft-cap", 15.0), "alibi": Score("alibi")}
#: In the quick tier: fills that show which keys a query sees, and every value and scale.
QUICK = ("selector", "randn")


def fp8_problem(dtype: str, config: Any, **fields: Any) -> Attention:
    """Queries and keys end inside the second block, and no size is another's."""
    block = max(config.tile)
    plain = {"batch": 1, "heads": 2, "queries": block + 1, "keys": block + 11, "head_dim": 64}
    return Attention("attention", dtype=dtype, **{**plain, **fields})


@scenario(
    where(family="fp8-attention"),
    mask=list(MASKS),
    rotate={"scaled": [True, False], "score": list(SCORES), "out_dtype": ["bf16", "fp16", "fp32"]},
    configs=2,
)
def test_masks_and_scales(conform, harness, kernel, target, dtype, config, mask, scaled, score, out_dtype):
    """Every mask with scales and without; outputs in each wider dtype."""
    fields = {"mask": MASKS[mask], "score": SCORES[score], "scaled": scaled, "out_dtype": out_dtype}
    problem = fp8_problem(dtype, config, **fields)
    conform(kernel, problem, config=config, target=target, fills=QUICK if harness.settings.tier == "quick" else None)


#: Sizes and strides that are all unlike, so that none can stand for another.
UNLIKE: dict[str, dict[str, Any]] = {
    "heads-first": {"heads": 4, "kv_heads": 2, "head_dim": 40, "value_dim": 24, "order": "bhsd"},
    "positions-first": {"heads": 3, "kv_heads": 3, "head_dim": 32, "value_dim": 40, "order": "bshd"},
    "dims-first": {"heads": 2, "kv_heads": 1, "head_dim": 48, "value_dim": 32, "order": "bhds"},
}


@scenario(where(family="fp8-attention"), unlike=list(UNLIKE), configs=1)
def test_unlike_sizes(conform, harness, kernel, target, dtype, config, unlike):
    """Every size, stride and count differs from every other: each index must be the right one."""
    fields = {**UNLIKE[unlike], "batch": 2, "mask": Mask("causal"), "pad": 3, "padded": "qkvo", "scaled": True}
    problem = fp8_problem(dtype, config, **fields)
    conform(kernel, problem, config=config, target=target, fills=QUICK if harness.settings.tier == "quick" else None)


@scenario(where(family="fp8-attention"), dtypes=("e4m3",), configs=1)
def test_refusals(conform, recorder, kernel, target, dtype, config):
    """A product of fp8 sums over more than a small head has."""
    problem = fp8_problem(dtype, config, head_dim=16)
    expect_refusal(conform, recorder, kernel, problem, config=config, target=target, code=ReasonCode.EXTENT)
