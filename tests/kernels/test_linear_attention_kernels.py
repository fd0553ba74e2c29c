"""The kernels of gated linear attention: what they refuse and for which reason, their grid, and the tiles they say."""

import dataclasses

import pytest

from conformance import targets
from conformance.families.family import family_of
from conformance.families.gemm.problem import mm
from conformance.families.linear_attention.problem import LinearAttention
from conformance.heuristics.configs import LinearAttentionConfig
from conformance.judging.plan_rules import expected_grid
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.kernels.refusal_rules import objection
from conformance.records import ReasonCode

HOPPER = targets.find("sm_90")
CONFIG = LinearAttentionConfig(32, 16, 2, 4)
PROBLEM = LinearAttention(2, 3, 100, 40, 24, 64)
NAMES = ("gated_linear_attention", "linear_attention_transposed")


def changed(**fields):
    return dataclasses.replace(PROBLEM, **fields)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("problem", "config", "code", "subject"),
    [
        (mm(64, 64, 64), CONFIG, ReasonCode.OPERATION, "mm"),
        (changed(head_dim=8), CONFIG, ReasonCode.EXTENT, "head_dim"),
        (changed(batch=65_536), CONFIG, ReasonCode.EXTENT, "batch"),
        (changed(heads=65_536), CONFIG, ReasonCode.EXTENT, "heads"),
        (PROBLEM, LinearAttentionConfig(8, 16, 2, 4), ReasonCode.CONFIG, "block size"),
        (PROBLEM, LinearAttentionConfig(32, 48, 2, 4), ReasonCode.CONFIG, "block size"),
        (changed(chunk=48), CONFIG, ReasonCode.CONFIG, "chunk"),
    ],
)
def test_typed_reason(name, problem, config, code, subject):
    kernel = catalogue.get(name)
    with pytest.raises(NotApplicable) as refused:
        kernel.plan(problem, config, HOPPER)
    reason = refused.value.reason
    assert (reason.code, reason.subject) == (code, subject), str(reason)
    assert objection(kernel, kernel.draft(problem, config, HOPPER), reason) is None
    if problem.op == PROBLEM.op:
        assert objection(kernel, kernel.draft(PROBLEM, CONFIG, HOPPER), reason) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_is_refused(name):
    kernel = catalogue.get(name)
    plan = kernel.draft(PROBLEM, CONFIG, HOPPER, Variant(flatten=True))
    reason = kernel.refusal(plan)
    assert (reason.code, reason.subject) == (ReasonCode.CONFIG, "variant")
    assert objection(kernel, plan, reason) is None
    assert objection(kernel, kernel.draft(PROBLEM, CONFIG, HOPPER, Variant(static=True)), reason)


@pytest.mark.parametrize("name", NAMES)
def test_grid_and_tiles(name):
    kernel = catalogue.get(name)
    plan = kernel.plan(PROBLEM, CONFIG, HOPPER)
    assert plan.grid == expected_grid(kernel, plan, 0) == (2, 3, 2)
    last = (64, 16, 32) if name == NAMES[0] else (16, 64, 32)
    assert family_of(plan.problem).code_tiles(kernel, plan, "") == {(32, 16, 64), (32, 32, 64), (32, 16, 32), last}


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("dtype", "fp32", "dtype 'fp32' is unknown"),
        ("order", "sbhd", "order 'sbhd' is unknown"),
        ("heads", 0, "heads is 0"),
        ("chunk", 0, "chunk is 0"),
        ("length", -1, "length is -1"),
    ],
)
def test_a_problem_that_cannot_be(field, value, text):
    with pytest.raises(ValueError, match=text):
        changed(**{field: value})
