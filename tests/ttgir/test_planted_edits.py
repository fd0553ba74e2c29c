"""Single edits of compiled kernels are seen, or change nothing by a rule that is checked; a seeded few of them."""

from __future__ import annotations

import re

import pytest

from conformance import targets
from conformance.execution.compile.compilation import CompilePool
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels.catalogue import get
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from conformance.ttgir.machine import SCHEDULES
from tests.ttgir.edits import CLASSES, edits_of
from tests.ttgir.equivalent import _is_unused, reason
from tests.ttgir.judged_texts import first_wrong, orders_of_all, prepared
from tests.ttgir.planted_edits import Outcome, chosen_edits, compiled, outcome, table

SIZES = (136, 56, 176)
TILE = Config(64, 64, 32, 3, 4)
SOURCES = {
    "cp.async": ("mm", mm(*SIZES, layout_b=Layout(pad=8)), TILE, "sm_80", Variant()),
    "tma": ("mm_persistent_tma", mm(*SIZES), TILE, "sm_90", Variant(tma_store=True, sms=2)),
    "partitions": (
        *("mm_blackwell_ws", mm(600, 56, 176), Config(128, 64, 64, 3, 4), "sm_100"),
        Variant(flatten=True, sms=1),
    ),
    "amd": ("mm", mm(*SIZES, layout_a=Layout(pad=8), layout_b=Layout(pad=8)), TILE, "gfx950", Variant()),
}


@pytest.fixture(scope="module")
def sources():
    """Plans with the TTGIR of their kernels, by what they show."""
    plans = {
        name: get(kernel).plan(problem, config, targets.find(target), variant)
        for name, (kernel, problem, config, target, variant) in SOURCES.items()
        if target in {one.id for one in targets.compile_targets()}
    }
    with CompilePool(2, 240) as pool:
        texts = {(plan.kernel, plan.target.id): texts for plan, texts in compiled(pool, list(plans.values()))}
    return {name: (plan, texts[plan.kernel, plan.target.id]) for name, plan in plans.items()}


def of(sources, name):
    if name not in sources:
        pytest.skip("the installed Triton cannot compile for that target")
    plan, texts = sources[name]
    ((function, text),) = texts.items()
    return plan, function, text


@pytest.mark.parametrize("name", SOURCES)
def test_edits_are_seen_or_change_nothing(sources, name):
    plan, function, text = of(sources, name)
    problems, orders = prepared(plan), orders_of_all({function: text})
    assert first_wrong(problems, {function: text}, orders) is None
    rows = [
        outcome(plan, {function: text}, function, edit, problems, orders)
        for _, edit in chosen_edits({function: text}, 1, name)
    ]
    assert [row for row in rows if not row.how and not row.reason] == []
    assert sum(bool(row.how) for row in rows) >= len(rows) / 2


def test_every_class_is_made(sources):
    kinds = {edit.kind for plan, texts in sources.values() for text in texts.values() for edit in edits_of(text)}
    # an arrival for more than one, and a product of two equal shapes, are in other kernels
    assert set(CLASSES) - kinds <= {"operands swapped"}


def edits_at(text, kind, pattern):
    lines = text.splitlines()
    return [edit for edit in edits_of(text) if edit.kind == kind and re.search(pattern, lines[edit.line])]


@pytest.mark.parametrize(
    ("name", "kind", "pattern", "seen"),
    [
        ("tma", "fence removed", "fence_async_shared", "and no fence follows local_"),
        ("tma", "fence removed", "tensormap_fenceproxy_acquire", "takes a descriptor, and no fence follows"),
        ("cp.async", "wait dropped", r"async_wait \{num = 0", "local_dealloc .* may still be writing"),
        ("tma", "predicate true", "barrier_expect", "which still waits for 8192 bytes"),
        ("partitions", "arrive removed", "arrive_barrier", "deadlock"),
    ],
)
def test_an_edit_is_named(sources, name, kind, pattern, seen):
    plan, function, text = of(sources, name)
    edit = edits_at(text, kind, pattern)[0]
    wrong = first_wrong(prepared(plan), {function: edit.text}, orders_of_all({function: text}))
    assert wrong is not None
    assert re.search(seen, wrong.text), wrong.text


def test_rules_say_nothing_of_edits_that_matter(sources):
    plan, function, text = of(sources, "tma")
    texts, problems = {function: text}, prepared(plan)
    for kind in ("wait dropped", "fence removed", "other operand", "predicate true", "commit removed"):
        for edit in edits_at(text, kind, ".")[:2]:
            if first_wrong(problems, {function: edit.text}, SCHEDULES[:2]):
                assert reason(edit, function, texts, problems, SCHEDULES[:2]) == "", edit


def test_a_rule_names_a_fresh_barrier(sources):
    plan, function, text = of(sources, "partitions")
    first = edits_at(text, "wait dropped", "wait_barrier")[0]  # no operation has used the accumulators yet
    orders = orders_of_all({function: text})
    assert first_wrong(prepared(plan)[:2], {function: first.text}, orders) is None
    assert "fresh barrier" in reason(first, function, {function: text}, prepared(plan)[:2], orders)


UNUSED = """
    %0 = ttg.local_alloc : () -> !ttg.memdesc<2x1xi64, #shared, #smem, mutable>
    %1 = ttg.memdesc_index %0[%c0_i32] : !ttg.memdesc<2x1xi64, #shared> -> !ttg.memdesc<1xi64, #shared>
    ttng.init_barrier %1, 1 : !ttg.memdesc<1xi64, #shared, #smem, mutable>
    %10 = ttg.memdesc_index %0[%c1_i32] : !ttg.memdesc<2x1xi64, #shared> -> !ttg.memdesc<1xi64, #shared>
    ttng.init_barrier %10, 1 : !ttg.memdesc<1xi64, #shared, #smem, mutable>
"""


def test_an_array_of_barriers_is_unused_if_nobody_arrives_at_any():
    assert _is_unused("%1", UNUSED)
    assert not _is_unused("%1", UNUSED + "    ttng.arrive_barrier %10, 1 : !ttg.memdesc<1xi64, #shared>")
    assert not _is_unused("%1", UNUSED + "    ttg.warp_specialize(%0, %5)")


def test_the_table_counts_what_was_seen():
    rows = [
        Outcome("mm", "gemm", "sm_90", "wait dropped", 1, "ttg.async_wait", "is gone", "eager", "fault: x", ""),
        Outcome("mm", "gemm", "sm_90", "fence removed", 2, "ttng.fence_async_shared", "is gone", "", "", "a reason"),
        Outcome("mm", "gemm", "sm_80", "copy removed", 3, "ttg.local_store", "is gone", "", "", ""),
    ]
    text = table(rows)
    assert "3 edits of 2 compiled kernels: 1 seen, 1 change nothing" in text
    assert "**50.0%**" in text
    assert "| wait dropped | 1 | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "| mm | sm_80 | copy removed | 3, `ttg.local_store` | is gone |" in text
