"""Costs of code have a name and a severity: spills and occupancy, and times where a device took them."""

from __future__ import annotations

import copy

import made_records
import pytest
from made_records import (
    BASE,
    CONFIGS,
    KERNEL,
    Record,
    changed,
    fail,
    failing,
    kinds,
    measured_once,
    observing,
    timed,
    untimed,
)

from conformance.reporting.comparison import render_terminal, summary_line
from conformance.user_files.findings import Kind


@pytest.fixture
def compared(tmp_path):
    return lambda candidate, baseline=BASE, **run: made_records.compared(tmp_path, baseline, candidate, **run)


#: NVIDIA and AMD: target, resources before and after, what is resident, and what keeps another block out.
LESS_OCCUPANCY = {
    "shared memory of sm_90": (
        *("sm_90", {"shared_memory": 100_000}, {"shared_memory": 120_000}),
        *("2 blocks of 4 warps per SM", "1 block of 4 warps per SM", "shared memory", "regression"),
    ),
    "shared memory of sm_120": (
        *("sm_120", {"shared_memory": 24_000}, {"shared_memory": 25_000}),
        *("4 blocks of 4 warps per SM", "3 blocks of 4 warps per SM", "shared memory", "regression"),
    ),
    "registers of sm_80": (
        *("sm_80", {"registers": 72}, {"registers": 80}),
        *("7 blocks of 4 warps per SM", "6 blocks of 4 warps per SM", "registers", "warning"),
    ),
    "tensor memory of sm_100": (
        *("sm_100", {"tensor_memory": 256}, {"tensor_memory": 260}),
        *("2 blocks of 4 warps per SM", "1 block of 4 warps per SM", "tensor memory", "regression"),
    ),
    "LDS of gfx950": (
        *("gfx950", {"shared_memory": 49_152}, {"shared_memory": 98_304}),
        *("12 waves per CU (3 blocks of 4 waves)", "4 waves per CU (1 block of 4 waves)"),
        *("shared memory", "regression"),
    ),
    "registers of gfx942": (
        *("gfx942", {"registers": 128}, {"registers": 136}),
        *("16 waves per CU (4 blocks of 4 waves)", "12 waves per CU (3 blocks of 4 waves)", "registers", "regression"),
    ),
    "registers of gfx1201": (
        *("gfx1201", {"registers": 144}, {"registers": 150}),
        *("40 waves per WGP (10 blocks of 4 waves)", "36 waves per WGP (9 blocks of 4 waves)"),
        *("registers", "warning"),
    ),
    "registers of gfx1250": (
        *("gfx1250", {"registers": 256}, {"registers": 264}),
        *("16 waves per CU (4 blocks of 4 waves)", "12 waves per CU (3 blocks of 4 waves)", "registers", "regression"),
    ),
}
SMALL = {"registers": 40, "shared_memory": 1024, "threads": 128, "tensor_memory": 0}


def using(target: str, **resources: object) -> list[Record]:
    """The run with the cases of one kernel for ``target``, none of them timed: each block has 4 waves."""
    records = copy.deepcopy([one for one in BASE if one["kernel"] == "mm" and one["target"] == "sm_90"])
    for one in records:
        one["target"] = target
        one["observed"]["resources"].update({**SMALL, "threads": 4 * (64 if "gfx9" in target else 32), **resources})
        del one["observed"]["run"]
    return records


@pytest.mark.parametrize("name", LESS_OCCUPANCY)
def test_less_occupancy_is_a_regression_from_a_quarter_on(compared, name):
    target, was, now, before, after, limit, severity = LESS_OCCUPANCY[name]
    baseline = using(target, **was)
    comparison = compared(changed(baseline, observing("resources", **now), kernel="mm"), baseline)
    (group,) = [group for group in comparison.groups if group.kind is Kind.LESS_OCCUPANCY]
    assert (group.severity.value, len(group.findings)) == (severity, 8)
    assert group.cause == f"less occupancy for {limit} on {target}"
    assert (group.findings[0].before, group.findings[0].after) == (before, after)
    assert comparison.safe == (severity == "warning")
    reverse = compared(baseline, changed(baseline, observing("resources", **now), kernel="mm"))
    assert "MORE_OCCUPANCY" in kinds(reverse)
    assert reverse.safe


def test_occupancy_that_is_not_known_is_no_equality_and_that_is_said(compared):
    for target, figures in (("zz_1", {"registers": 80}), ("sm_90", {"threads": 0}), ("sm_90", {"tensor_memory": 64})):
        baseline = using(target)
        comparison = compared(changed(baseline, observing("resources", **figures), kernel="mm"), baseline)
        assert not {"LESS_OCCUPANCY", "MORE_OCCUPANCY"} & kinds(comparison).keys()
        (warning,) = comparison.warnings
        assert warning.startswith(f"occupancy could not be compared in 8 cases on {target}")
    assert compared(using("zz_1"), using("zz_1")).warnings == ()


def test_a_persistent_kernel_loses_nothing_as_long_as_one_block_fits(compared):
    baseline = using("sm_90", shared_memory=100_000)
    for one in baseline:
        one["observed"]["persistent"] = True
    for shared_memory, safe in ((120_000, True), (300_000, False)):
        less = observing("resources", shared_memory=shared_memory)
        comparison = compared(changed(baseline, less, kernel="mm"), baseline)
        assert kinds(comparison) == {"LESS_OCCUPANCY": 8, "MORE_SHARED_MEMORY": 8}
        assert comparison.safe is safe


def test_past_a_limit_occupancy_says_nothing_more(compared):
    def cross(one: Record) -> None:
        one["observed"]["resources"]["shared_memory"] = 300_000
        fail(one, "resources", "shared memory: 300000 bytes per block, sm_90 has 232448")

    assert kinds(compared(changed(using("sm_90"), cross, kernel="mm"), using("sm_90"))) == {"LIMIT_CROSSED": 8}


@pytest.mark.parametrize(
    ("unit", "was", "now", "severity"),
    [
        ("bytes", 0, 8, "warning"),
        ("bytes", 0, 56, "warning"),
        ("bytes", 0, 64, "regression"),
        ("bytes", 104, 136, "warning"),
        ("bytes", 8, 240, "regression"),
        ("bytes", 400, 480, "warning"),  # not a quarter more
        ("bytes", 400, 520, "regression"),
        ("registers", 0, 15, "warning"),
        ("registers", 0, 16, "regression"),
    ],
)
def test_few_spills_warn_and_many_are_a_regression(compared, unit, was, now, severity):
    baseline = using("sm_90", spills=was, spill_unit=unit)
    for change in (observing("resources", spills=now), lambda one: spilled(one, now)):
        comparison = compared(changed(baseline, change, kernel="mm"), baseline)
        assert kinds(comparison) == {"MORE_SPILLS": 8}
        assert [group.severity.value for group in comparison.groups] == [severity]
        assert comparison.safe == (severity == "warning")


def spilled(one: Record, count: int) -> None:
    """Has a case spill registers, which fails it."""
    one["observed"]["resources"]["spills"] = count
    fail(one, "spills", f"{count} bytes per thread spilled, not declared")


def test_a_spill_that_fails_its_case_is_small_where_the_figures_say_so(compared):
    """8 bytes more are below the threshold of a report where there were some; the case fails by its own check."""
    baseline = using("sm_90", spills=104)
    comparison = compared(changed(baseline, lambda one: spilled(one, 112), kernel="mm"), baseline)
    assert (kinds(comparison), comparison.safe) == ({"MORE_SPILLS": 8}, True)
    elsewhere = changed(baseline, failing("spills", "64 bytes per thread spilled, not declared"), kernel="mm")
    comparison = compared(elsewhere, baseline)  # the figures are those of the main launch, which spills no more
    assert (kinds(comparison), comparison.safe) == ({"MORE_SPILLS": 8}, False)


def test_what_is_bought_with_spills_is_no_gain(compared):
    """As ptxas does that keeps 32 registers and spills all others."""
    before = changed(BASE, observing("resources", shared_memory=1024, registers=255, spills=888), **KERNEL)
    after = changed(before, observing("resources", registers=32, spills=6664), **KERNEL)
    comparison = compared(after, before)
    assert kinds(comparison) == {"MORE_SPILLS": 8}
    for one in comparison.groups[0].findings:
        assert one.detail.startswith("255 registers -> 32 registers; 1 block of 8 warps per SM -> 8 blocks of 8 warps")
    assert {"FEWER_SPILLS", "MORE_REGISTERS", "LESS_OCCUPANCY"} <= kinds(compared(before, after)).keys()


def test_a_finding_by_which_its_case_fails_says_so(compared):
    baseline = using("sm_90", spills=104)
    comparison = compared(changed(baseline, lambda one: spilled(one, 512), kernel="mm"), baseline)
    assert kinds(comparison) == {"MORE_SPILLS": 8}
    assert {one.detail for one in comparison.groups[0].findings} == {"the case fails by this now"}
    assert "newly failing" not in render_terminal(comparison), "a regression is shown anyway"
    passing = changed(baseline, observing("resources", spills=512), kernel="mm")
    assert {one.detail for one in compared(passing, baseline).groups[0].findings} == {""}


def test_cases_that_fail_by_what_only_warns_are_named_at_the_top(compared):
    baseline = using("sm_90", spills=104)
    comparison = compared(changed(baseline, lambda one: spilled(one, 112), kernel="mm"), baseline)
    first = sorted(one.case for one in comparison.groups[0].findings)[0]
    line = next(line for line in render_terminal(comparison).splitlines() if line.startswith("newly failing"))
    assert line.startswith(f"newly failing by what only warns: {first} (MORE_SPILLS), ")
    assert line.endswith(" and 3 more")
    same = changed(baseline, lambda one: spilled(one, 104), kernel="mm")
    assert "newly failing" not in render_terminal(compared(same, same))


#: The run with room for four blocks, of which there are two when a block has twice as many threads.
ROOMY = changed(BASE, observing("resources", registers=64, shared_memory=16_384))


@pytest.mark.parametrize(("factor", "safe", "also"), [(1.0, True, {}), (0.7, True, {"FASTER": 8})])
def test_with_a_device_time_decides(compared, factor, safe, also):
    def costs(one: Record) -> None:
        one["observed"]["resources"].update(spills=512, threads=512)
        timed(factor)(one)

    comparison = compared(changed(ROOMY, costs, **KERNEL), ROOMY)
    assert kinds(comparison) == {"MORE_SPILLS": 8, "LESS_OCCUPANCY": 8, **also}
    assert comparison.safe is safe
    assert all("took no longer on the device" in one.detail for one in comparison.groups[0].findings)


OTHER_GPU = {"stack": {**BASE[0]["stack"], "device": "NVIDIA H100"}}


timed_elsewhere = observing("run", device="a1")


@pytest.mark.parametrize(
    ("measure", "factor", "run"),
    [
        (None, 1.3, {}),
        (untimed, None, {}),
        (measured_once, 1.001, {}),
        (None, 1.0, OTHER_GPU),
        (timed_elsewhere, 1.0, {}),
    ],
    ids=["slower", "not timed", "timed once", "another kind of device", "another device of the kind"],
)
def test_without_times_that_decide_spills_and_occupancy_stay_regressions(compared, measure, factor, run):
    def costs(one: Record) -> None:
        one["observed"]["resources"].update(spills=512, threads=512)
        if factor:
            timed(factor)(one)
        if measure is timed_elsewhere:
            one["observed"]["run"]["device"] = "b2"

    baseline = changed(ROOMY, measure) if measure else ROOMY
    regressions = {
        group.kind.value for group in compared(changed(baseline, costs, **KERNEL), baseline, **run).regressions
    }
    assert regressions - {"SLOWER"} == {"MORE_SPILLS", "LESS_OCCUPANCY"}
    assert ("SLOWER" in regressions) == (factor == 1.3)


def test_what_grew_from_zero_comes_first_and_the_costliest_group_before_the_largest(compared):
    baseline = [*using("sm_90", spills=100), *using("sm_89", spills=100), *using("sm_80")]
    for one in baseline:
        one["case"] = one["case"].replace("sm_90", one["target"])
    counts = iter([180, 900, *[200] * 6])
    candidate = changed(baseline, lambda one: one["observed"]["resources"].update(spills=next(counts)), target="sm_90")
    candidate = changed(candidate, observing("resources", spills=1600), target="sm_89", config=CONFIGS[0])
    first = iter([64, 128, *[72] * 6])
    candidate = changed(candidate, lambda one: one["observed"]["resources"].update(spills=next(first)), target="sm_80")
    groups = compared(candidate, baseline).groups
    assert [group.cause for group in groups] == [f"more spills on {target}" for target in ("sm_80", "sm_89", "sm_90")]
    assert [len(group.findings) for group in groups] == [8, 2, 8]
    assert summary_line(groups[0]).endswith("on sm_80; 8 from none")
    assert [one.after for one in groups[0].findings][:2] == ["128 bytes spilled", "72 bytes spilled"]
    assert [one.after for one in groups[2].findings][:2] == ["900 bytes spilled", "200 bytes spilled"]


def test_the_ratio_at_the_end_is_the_best_of_a_gain_and_the_worst_of_a_loss(compared):
    more = using("sm_90", spills=400)
    fewer = changed(more, observing("resources", spills=100), kernel="mm")
    assert "median x0.25, best x0.25" in summary_line(compared(fewer, more).groups[0])
    assert "median x4, worst x4" in summary_line(compared(more, fewer).groups[0])


def test_warnings_of_a_kind_are_a_group_of_their_own(compared):
    counts = iter([8, 8, 200, 8, 8, 8, 8, 8])
    baseline = using("sm_90")
    comparison = compared(
        changed(baseline, lambda one: one["observed"]["resources"].update(spills=next(counts)), kernel="mm"), baseline
    )
    assert [(group.severity.value, len(group.findings)) for group in comparison.groups] == [
        ("regression", 1),
        ("warning", 7),
    ]
