"""Each planted regression is reported under its right name and nothing else; identical runs report nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import made_records
import pytest
from made_records import (
    BASE,
    CONFIGS,
    KERNEL,
    PROBLEMS,
    Record,
    by,
    changed,
    crash,
    fail,
    failing,
    kinds,
    not_run,
    observing,
    record,
    timed,
    untimed,
    without,
    write_run,
)

from conformance.gate.changes import sync_changes
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.reporting.comparison import render_terminal
from conformance.user_files.findings import Kind


@pytest.fixture
def compared(tmp_path):
    return lambda candidate, baseline=BASE, **run: made_records.compared(tmp_path, baseline, candidate, **run)


more_shared_memory = observing("resources", shared_memory=147456 * 6 // 5)
unread = observing("resources", registers=0, source="metadata")
spills_of_no_unit = observing("resources", spills=500, spill_unit=None)
other_bits = observing("outputs", randn="0" * 64)
wrong = failing("numerics/transparent", "FAIL exact/transparent seed 0: 41/416 wrong, first [0, 3] got 7 want 1")
nondeterministic = failing("repeat/randn", "two runs differ in 2688 elements, first [0, 88]")


def drop_tma(one: Record) -> None:
    one["observed"]["code"]["features"] = ["POINTER_LOAD", "TMA_STORE", "WGMMA"]
    mix = one["observed"]["code"]["instructions"]
    mix["LDGSTS"] = mix.pop("UTMALDG") * 40
    fail(one, "codegen/requires/TMA_LOAD", "CHECK: cp.async.bulk.tensor in ptx: no match")


def drop_tma_unjudged(one: Record) -> None:
    one["observed"]["code"]["features"].remove("TMA_LOAD")


def drop_tma_of_an_older_record(one: Record) -> None:
    del one["observed"]["code"]
    fail(one, "codegen/requires/TMA_LOAD", "CHECK: cp.async.bulk.tensor in ptx: no match")


def spill(one: Record) -> None:
    one["observed"]["resources"]["spills"] = 48
    fail(one, "codegen/forbids/SPILL", "48 bytes")


def cross_the_limit(one: Record) -> None:
    one["observed"]["resources"]["shared_memory"] = 240000
    fail(one, "resources", "shared memory: 240000 bytes per block, sm_90 has 232448")


def lose_a_fence(one: Record) -> None:
    fail(one, "codegen/order/fence", "in mm, wgmma at line 9 reads shared memory that cp.async at line 5 wrote")


def no_longer_fits(one: Record) -> None:
    """As the suites record code that needs more memory than the target has."""
    one["observed"]["resources"]["shared_memory"] = 240000
    detail = "shared memory: 240000 bytes per block, sm_90 has 232448; as measured for mm-1x2x3"
    reason = {"code": "shared-memory", "subject": "128x128x64", "detail": detail}
    one.update(status="not-applicable", executor=None, verdicts=[], reason=reason)


slower = timed(1.3)
interpreted, fewer_checks = by("interpreter"), without("memory")


def lose_tensor_cores(one: Record) -> None:
    mix = one["observed"]["code"]["instructions"]
    mix["FFMA"] = mix.pop("HGMMA")


def other_instructions(one: Record) -> None:
    one["observed"]["code"]["instructions"]["MOV"] = 200


def synchronising(**counts: int) -> Callable[[Record], None]:
    """Changes counts of synchronising instructions; 0 removes one."""

    def change(one: Record) -> None:
        sync = {
            "barrier": 4,
            "wait": 40,
            "tcgen05.ld in loops": 2,
            **{name.replace("_", " "): n for name, n in counts.items()},
        }
        one["observed"]["code"]["sync"] = {name: count for name, count in sync.items() if count}

    return change


def no_code(one: Record) -> None:
    del one["observed"]["code"]


def compiled_slowly(one: Record) -> None:
    one["observed"]["compile_s"] = 2.5


def measured_thrice(one: Record) -> None:
    one["observed"]["run"]["samples_us"] = [10 * us for us in one["observed"]["run"]["samples_us"][:3]]


TIMES = {config: record(config=config)["observed"]["run"]["us"] for config in CONFIGS}
ONE = {"kernel": "mm", "target": "sm_90", "config": CONFIGS[1], "problem": PROBLEMS[0]}


@pytest.mark.parametrize(
    ("change", "where", "expected", "cause"),
    [
        (drop_tma, KERNEL, {"FEATURE_LOST": 8}, "TMA_LOAD lost on sm_90"),
        (drop_tma_unjudged, KERNEL, {"FEATURE_LOST": 8}, "TMA_LOAD lost on sm_90"),
        (drop_tma_of_an_older_record, KERNEL, {"FEATURE_LOST": 8}, "TMA_LOAD lost on sm_90"),
        (lose_tensor_cores, KERNEL, {"FEATURE_LOST": 8}, "no tensor core instruction left on sm_90"),
        (spill, KERNEL, {"MORE_SPILLS": 8}, "more spills on sm_90"),
        (more_shared_memory, KERNEL, {"MORE_SHARED_MEMORY": 8}, "more shared memory on sm_90"),
        (cross_the_limit, KERNEL, {"LIMIT_CROSSED": 8}, "past the limit of shared memory on sm_90"),
        (no_longer_fits, KERNEL, {"LIMIT_CROSSED": 8}, "past the limit of shared memory on sm_90"),
        (lose_a_fence, KERNEL, {"ORDER_LOST": 8}, "codegen/order/fence on sm_90"),
        (wrong, ONE, {"NEW_FAIL": 1}, "numerics/transparent: FAIL exact/transparent wrong"),
        (nondeterministic, KERNEL, {"NONDETERMINISTIC": 8}, "repeat/randn: two runs differ in N elements"),
        (crash, KERNEL, {"NEW_CRASH": 8}, "crash: the worker died of signal N at HEX"),
        (other_instructions, KERNEL, {"OTHER_INSTRUCTIONS": 8}, "another mix of instructions on sm_90"),
        (other_bits, KERNEL, {"NUMERICS_DRIFT": 8}, "other bits, inside the bound"),
        (not_run, KERNEL, {"LOST_COVERAGE": 8}, "not-run no-device (device)"),
        (fewer_checks, KERNEL, {"LOST_COVERAGE": 8}, "no longer checked: memory"),
        (no_code, KERNEL, {"LOST_COVERAGE": 8}, "the features and instructions of the code are no longer recorded"),
        (interpreted, KERNEL, {"LOST_COVERAGE": 8}, "run by: device before, interpreter now"),
        (unread, KERNEL, {"LOST_COVERAGE": 8}, "registers and spills are no longer read"),
        (measured_thrice, KERNEL, {"LOST_COVERAGE": 8}, "measured too few times to tell"),
        (spills_of_no_unit, KERNEL, {"MORE_SPILLS": 8}, "more spills on sm_90"),
    ],
)
def test_planted_change_has_its_name_and_one_group(compared, change, where, expected, cause):
    comparison = compared(changed(BASE, change, **where))
    assert kinds(comparison) == expected
    (group,) = comparison.groups
    assert group.cause == cause
    assert comparison.safe == (not comparison.regressions)
    assert comparison.unchanged == len(BASE) - sum(expected.values())


def test_code_that_fits_again_is_fixed_and_code_that_never_did_says_nothing(compared):
    past = changed(BASE, no_longer_fits, **KERNEL)
    comparison = compared(BASE, past)
    assert kinds(comparison) == {"FIXED": 8}
    (first, *_) = comparison.groups[0].findings
    past_it = "240,000 of 232,448 bytes (104 %) of shared memory"
    assert (first.before, first.after) == (past_it, "147456 bytes of shared memory")
    assert kinds(compared(past, past)) == {}


def does_not_compile(one: Record) -> None:
    one.update(status="compile-error", executor=None, diagnosis="SomePass.cpp:1: Assertion `x' failed", verdicts=[])
    one["observed"] = {}


def is_known_not_to_compile(one: Record) -> None:
    does_not_compile(one)
    one.update(status="expected-fail", reason={"code": "known-defect", "subject": "x", "detail": "y"})


def only_compiled(one: Record) -> None:
    reason = {"code": "no-device", "subject": "compile-only", "detail": "none"}
    one.update(status="not-run", executor=None, reason=reason)


@pytest.mark.parametrize("broken", [does_not_compile, is_known_not_to_compile])
def test_a_kernel_that_compiles_for_the_first_time_is_fixed_whether_it_fits_or_not(compared, broken):
    before = changed(BASE, broken, **KERNEL)
    assert kinds(compared(changed(BASE, only_compiled, **KERNEL), before)) == {"FIXED": 8}
    (group,) = compared(changed(BASE, no_longer_fits, **KERNEL), before).groups
    assert (group.kind.value, len(group.findings)) == ("FIXED", 8)
    assert group.cause == "did not compile, and is past the limit of shared memory on sm_90 now"


def test_a_kernel_that_ran_and_failed_is_not_fixed_by_being_compiled_only_or_by_not_fitting(compared):
    before = changed(BASE, wrong, **KERNEL)
    assert kinds(compared(changed(BASE, only_compiled, **KERNEL), before)) == {"LOST_COVERAGE": 8}
    assert kinds(compared(changed(BASE, no_longer_fits, **KERNEL), before)) == {"LIMIT_CROSSED": 8}


CROSSED = {
    "shared memory": (
        {"shared_memory": 240_000},
        "shared memory: 240000 bytes per block, sm_90 has 232448",
        ("147456 bytes of shared memory", "240,000 of 232,448 bytes (104 %) of shared memory"),
    ),
    "tensor memory": (
        {"tensor_memory": 768},
        "tensor memory: 768 columns, sm_90 has 512",
        ("0 columns of tensor memory", "768 columns of tensor memory"),
    ),
    "registers": (
        {"registers": 255, "threads": 512},
        "registers: 255 for each of 512 threads take 131072 of the 65536 that sm_90 has per block",
        ("168 registers for each of 256 threads", "255 registers for each of 512 threads"),
    ),
    "registers, shared memory": (
        {"registers": 300, "shared_memory": 240_000},
        "shared memory: 240000 bytes per block, sm_90 has 232448; registers: 300 per thread, sm_90 has 255",
        (
            "147456 bytes of shared memory, 168 registers for each of 256 threads",
            "240,000 of 232,448 bytes (104 %) of shared memory, 300 registers for each of 256 threads",
        ),
    ),
}


@pytest.mark.parametrize("which", CROSSED)
def test_a_crossed_limit_shows_the_figures_of_what_crossed_it(compared, which):
    """Returns True if the case is passed over, as for memory, or fails by the check of resources."""
    used, text, shown = CROSSED[which]

    def passed_over(one: Record) -> None:
        no_longer_fits(one)
        one["observed"]["resources"].update(shared_memory=147_456)
        one["observed"]["resources"].update(used)
        one["reason"]["detail"] = f"{text}; as measured for mm-1x2x3"

    def failed(one: Record) -> None:
        one["observed"]["resources"].update(used)
        fail(one, "resources", text)

    for change, after in ((passed_over, shown[1]), (failed, text)):
        (group,) = compared(changed(BASE, change, **KERNEL)).groups
        assert (group.kind.value, group.cause) == ("LIMIT_CROSSED", f"past the limit of {which} on sm_90")
        assert {(one.before, one.after) for one in group.findings} == {(shown[0], after)}


REDUCE = {"check": "resources/reduce", "passed": True, "text": "within the target's limits", "details": {}}


def test_a_launch_beside_the_main_one_shows_no_figures_of_the_main_one(compared):
    text = "tensor memory: 768 columns, sm_90 has 512"
    for verdicts, before in (([], "not checked"), ([REDUCE], "within the target's limits")):
        baseline = changed(BASE, lambda one, more=verdicts: one["verdicts"].extend(copy.deepcopy(more)))
        (group,) = compared(changed(baseline, failing("resources/reduce", text), **KERNEL), baseline).groups
        assert group.findings[0].before == before


def test_a_refusal_by_estimate_loses_coverage_and_its_measurement_loses_nothing(compared):
    def estimated(one: Record) -> None:
        no_longer_fits(one)
        del one["observed"]["resources"]

    refused = changed(BASE, estimated, **KERNEL)
    assert kinds(compared(refused)) == {"LOST_COVERAGE": 8}
    assert kinds(compared(changed(BASE, no_longer_fits, **KERNEL), refused)) == {}


def test_identical_runs_report_nothing(compared):
    comparison = compared(copy.deepcopy(BASE))
    assert comparison.groups == ()
    assert comparison.warnings == ()
    assert comparison.safe
    assert comparison.compared == comparison.unchanged == len(BASE)


def test_other_machine_code_with_the_same_figures_reports_nothing(compared):
    assert compared(changed(BASE, lambda one: None)).groups == ()


def test_code_with_the_same_hash_is_not_compared(compared):
    candidate = copy.deepcopy(BASE)
    for one in candidate:
        observing("resources", registers=255)(one)
    assert compared(candidate).groups == ()


def test_slower_config_that_is_not_the_best(compared):
    slowest = max(TIMES, key=TIMES.__getitem__)
    comparison = compared(changed(BASE, slower, kernel="mm", target="sm_90", config=slowest, problem=PROBLEMS[0]))
    assert kinds(comparison) == {"SLOWER": 1}
    assert comparison.groups[0].findings[0].ratio == pytest.approx(1.3)
    assert not comparison.safe


def test_best_config_moved(compared):
    best, other = min(TIMES, key=TIMES.__getitem__), max(TIMES, key=TIMES.__getitem__)
    now_the_best = timed(TIMES[best] * 0.7 / TIMES[other])
    comparison = compared(changed(BASE, now_the_best, kernel="mm", target="sm_90", config=other, problem=PROBLEMS[0]))
    assert kinds(comparison) == {"BEST_CONFIG_MOVED": 1, "FASTER": 1}
    moved = comparison.groups[0].findings[0]
    assert (moved.before, moved.after) == (best, other)
    assert moved.ratio == pytest.approx(1 / 0.7, rel=0.02)
    assert PROBLEMS[0] in moved.detail


@pytest.mark.parametrize(("what", "name", "count"), [("kernel", "addmm", 16), ("target", "sm_100", 24)])
def test_what_is_lost_whole_is_one_group_that_says_so(compared, what, name, count):
    comparison = compared([one for one in BASE if one[what] != name])
    assert kinds(comparison) == {"LOST_COVERAGE": count}
    (group,) = comparison.groups
    assert group.cause == f"{what} {name}: none of its {count} cases was recorded"


def broken(comparison):
    """The class of each side that gives no answer, and what broke it."""
    assert not comparison.safe
    return {side.side: (side.fault_class.value, [fault.text for fault in side.faults]) for side in comparison.broken}


def test_run_without_its_tail_is_no_answer(compared):
    comparison = compared(BASE[:-5], selected=len(BASE), wall_s=None)
    assert kinds(comparison) == {}, "what the candidate lacks is not lost"
    assert broken(comparison) == {"candidate": ("unfinished", ["the run did not end"])}


@pytest.mark.parametrize(
    "damage", [lambda file: file.unlink(), lambda file: file.write_text("{")], ids=["missing", "torn"]
)
def test_candidate_without_a_usable_run_json_is_no_answer(tmp_path, damage):
    before, after = (write_run(tmp_path / name, BASE) for name in "ab")
    damage(after / "run.json")
    comparison = compare(read_compared_run(before), read_compared_run(after))
    fault_class, (text,) = broken(comparison)["candidate"]
    assert fault_class == "infrastructure"
    assert "run.json" in text


def test_fewer_configs_of_one_case_are_lost(compared):
    def configs(count: int):
        def change(one: Record) -> None:
            (verdict,) = [verdict for verdict in one["verdicts"] if verdict["check"] == "memory"]
            one["verdicts"] += [{**verdict, "check": f"memory@64x64x{32 * k}-s3-w4"} for k in range(1, count)]

        return change

    comparison = compared(changed(BASE, configs(1), **KERNEL), changed(BASE, configs(10), **KERNEL))
    assert kinds(comparison) == {"LOST_COVERAGE": 8}
    assert comparison.groups[0].cause == "judged fewer times"
    assert kinds(compared(changed(BASE, configs(10), **KERNEL), changed(BASE, configs(1), **KERNEL))) == {}


def test_a_failure_that_passes_by_being_judged_less_is_not_fixed(compared):
    for check in ("repeat/randn", "memory/randn", "repeat/randn@64x64x64-s3-w4", "diagnosis", "codegen/repeated-k"):
        assert kinds(compared(BASE, changed(BASE, failing(check, "it differs"), **KERNEL))) == {"FIXED": 8}, check
    failed = changed(BASE, failing("codegen/judged-is-launched", "another one"), **KERNEL)
    assert kinds(compared(BASE, failed)) == {"LOST_COVERAGE": 8}


def test_a_case_whose_layouts_differed_in_two_places_is_fixed_where_they_do_not(compared):
    def layouts(*texts):
        def change(one: Record) -> None:
            for text in texts:
                fail(one, "executed/layouts", text)

        return change

    def right(one: Record) -> None:
        one["verdicts"].append({"check": "executed/layouts", "passed": True, "text": "each fits"})

    twice = changed(BASE, layouts("here", "there"), **KERNEL)
    assert kinds(compared(changed(BASE, right, **KERNEL), twice)) == {"FIXED": 8}
    assert kinds(compared(BASE, twice)) == {"LOST_COVERAGE": 8}


def test_fewer_checks_beside_a_failure_are_lost(compared):
    broken = changed(BASE, wrong, **KERNEL)
    assert kinds(compared(BASE, broken)) == {"FIXED": 8}
    for less, cause in ((interpreted, "run by: device before, interpreter now"), (fewer_checks, "no longer checked")):
        comparison = compared(changed(BASE, less, **KERNEL), broken)
        assert kinds(comparison) == {"LOST_COVERAGE": 8}
        assert comparison.groups[0].cause.startswith(cause)


def test_what_was_not_read_before_is_no_regression(compared):
    read = observing("resources", spills=40)
    comparison = compared(changed(BASE, read, **KERNEL), changed(BASE, unread, **KERNEL))
    assert kinds(comparison) == {}


def test_an_accepted_case_that_is_measured_too_few_times_is_not_silent(compared):
    def expected_to_fail(one: Record) -> None:
        one |= {"status": "expected-fail", "reason": {"code": "known-defect", "subject": "x", "detail": "y"}}
        one["verdicts"][0] |= {"passed": False}

    accepted = changed(BASE, expected_to_fail, **KERNEL)
    assert kinds(compared(changed(accepted, measured_thrice, **KERNEL), accepted)) == {"AMBIGUOUS": 8}


def test_times_of_another_problem_are_not_compared_and_that_is_said(compared):
    other = observing("run", problem="mm-1x1x1-bf16", samples_us=[9e5] * 15)
    comparison = compared(changed(BASE, other, **KERNEL))
    assert comparison.warnings == ("times could not be compared in 8 cases: another problem was timed",)


@pytest.mark.parametrize(
    ("devices", "factor", "expected"),
    [
        (("a1", "a1"), 1.15, {"SLOWER": 8}),
        (("a1", None), 1.15, {"SLOWER": 8}),  # nothing is known of the other
        ((None, None), 1.15, {"SLOWER": 8}),
        (("a1", "b2"), 1.15, {}),
        (("a1", "b2"), 1 / 1.15, {}),
        (("a1", "b2"), 1.4, {"SLOWER": 8}),
        (("a1", "b2"), 1 / 1.4, {"FASTER": 8}),
    ],
)
def test_two_devices_of_one_kind_differ_by_themselves(compared, devices, factor, expected):
    before, after = (changed(BASE, observing("run", device=device)) for device in devices)
    comparison = compared(changed(after, timed(factor), **KERNEL), before)
    assert {kind: n for kind, n in kinds(comparison).items() if kind != "BEST_CONFIG_MOVED"} == expected
    said = "another device of the same kind timed 48 of 48 timed cases: there only more than 25% is a difference"
    assert (said in render_terminal(comparison)) is (devices == ("a1", "b2"))


def test_an_answer_names_the_threshold_that_holds_between_devices(tmp_path):
    """A user's threshold of one device holds between two, if it is the larger one."""
    before, after = (changed(BASE, observing("run", device=device)) for device in ("a1", "b2"))
    folders = write_run(tmp_path / "a", before), write_run(tmp_path / "b", changed(after, timed(1.35), **KERNEL))
    comparison = compare(*map(read_compared_run, folders), {"SLOWER": {"share": 0.4}})
    assert "SLOWER" not in kinds(comparison)
    assert "there only more than 40% is a difference" in render_terminal(comparison)


@pytest.mark.parametrize(("device", "moves"), [("a1", True), ("b2", False)])
def test_the_best_config_has_not_moved_because_another_device_timed_it(compared, device, moves):
    best, other = min(TIMES, key=TIMES.__getitem__), max(TIMES, key=TIMES.__getitem__)
    where = {**ONE, "config": other}
    before = changed(BASE, observing("run", device="a1"))
    after = changed(before, timed(TIMES[best] * 0.85 / TIMES[other]), **where)
    after = changed(after, observing("run", device=device), **where)
    assert ("BEST_CONFIG_MOVED" in kinds(compared(after, before))) is moves


def test_what_was_lost_comes_before_what_was_gained(compared):
    comparison = compared(changed(BASE, fewer_checks, **KERNEL), changed(BASE, interpreted, **KERNEL))
    assert [group.cause for group in comparison.groups] == ["no longer checked: memory"]
    assert kinds(comparison) == {"LOST_COVERAGE": 8}
    assert kinds(compared(BASE, changed(BASE, interpreted, **KERNEL))) == {"NEW_COVERAGE": 8}


def test_what_only_tells_of_drift_or_is_new_can_be_lacking(compared):
    def no_digests(one: Record) -> None:
        del one["observed"]["outputs"]

    comparison = compared(changed(BASE, no_digests, **KERNEL))
    assert (comparison.groups, comparison.safe) == ((), True)
    assert comparison.warnings == ("digests of outputs could not be compared in 8 cases: one side lacks them",)
    comparison = compared(BASE, changed(BASE, no_code, **KERNEL))
    assert (comparison.groups, comparison.safe) == ((), True)
    assert "could not be compared in 8 cases: the baseline lacks them" in comparison.warnings[0]


def test_instructions_of_another_kind_are_not_compared_and_that_is_said(compared):
    assembly = observing("code", instructions_of="sass", instructions={"FFMA": 8})
    comparison = compared(changed(BASE, assembly, **KERNEL))
    assert comparison.groups == ()
    assert comparison.warnings == ("instructions could not be compared in 8 cases: none before, sass now",)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"FFMA2": 64, "FFMA": 1984, "LDS": 182}, {"FEATURE_LOST": 8}),
        ({"FFMA": 2048, "LDS": 182}, {"FEATURE_LOST": 8}),
        ({"FFMA2": 640, "FFMA": 832, "LDS": 182}, {"OTHER_INSTRUCTIONS": 8}),
        ({"FFMA2": 64, "FFMA": 64, "LDS": 182}, {"OTHER_INSTRUCTIONS": 8}),
    ],
    ids=["nearly all", "all", "less than half", "a loop that is unrolled less"],
)
def test_packed_instructions_that_became_scalar_are_lost(compared, now, expected):
    before = changed(BASE, observing("code", instructions={"FFMA2": 1024, "FFMA": 64, "LDS": 182}))
    comparison = compared(changed(before, observing("code", instructions=now), **KERNEL), before)
    assert kinds(comparison) == expected
    if "FEATURE_LOST" in expected:
        assert [group.cause for group in comparison.groups] == ["packed FFMA2 became scalar instructions on sm_90"]
        assert comparison.groups[0].findings[0].before == "FFMA 64, FFMA2 1024"


def test_one_cause_with_other_numbers_is_one_group(compared):
    texts = iter(range(100))

    def wrong_somewhere(one: Record) -> None:
        number = next(texts)
        fail(
            one, "numerics/randn", f"FAIL bounded/randn seed 0: {number}/416 wrong, first [{number}, 3] got nan want 1"
        )

    comparison = compared(changed(BASE, wrong_somewhere, kernel="mm"))
    assert [len(group.findings) for group in comparison.groups] == [16]


def compiler_died(words: str) -> Callable[[Record], None]:
    """Makes the compiler of a case die with ``words``, which name the case's config and kernel."""

    def change(one: Record) -> None:
        wrote = words.format(kernel=one["kernel"], config=one["config"]["id"])
        diagnosis = f"the compiler died: SIGABRT\n--- the compiler wrote ---\n{wrote}"
        one.update(status="crash", diagnosis=diagnosis, verdicts=[])

    return change


def test_two_crashes_of_the_compiler_are_two_groups_and_one_in_two_kernels_is_one(compared):
    assertion = "/b/{kernel}/Pipeline.cpp:40: void f(): Assertion `n < 4' failed."
    first = changed(BASE, compiler_died(assertion), target="sm_90")
    comparison = compared(changed(first, compiler_died("LLVM ERROR: {config} cannot be selected"), target="sm_100"))
    assert kinds(comparison) == {"NEW_CRASH": 48}
    assert {group.cause: len(group.findings) for group in comparison.groups} == {
        "crash: Assertion `n < 4' failed at Pipeline.cpp:40": 24,
        "crash: LLVM ERROR: CONFIG cannot be selected": 24,
    }


@pytest.mark.parametrize(
    ("now", "expected", "cause"),
    [
        ({"barrier": 5}, {"SYNC_CHANGED": 8}, "higher count of barrier on sm_90"),
        ({"tcgen05.ld in loops": 4, "barrier": 5}, {"SYNC_CHANGED": 8}, "higher count of tcgen05.ld in loops on sm_90"),
        ({"tcgen05.ld in loops": 0}, {"SYNC_CHANGED": 8}, "lower count of tcgen05.ld in loops on sm_90"),
        ({"tcgen05.ld in loops": 4, "barrier": 3}, {"SYNC_CHANGED": 8}, "lower count of barrier on sm_90"),
        ({"wait": 51}, {"SYNC_CHANGED": 8}, "higher count of wait on sm_90"),
        ({"wait": 49}, {}, None),
        ({"accumulator round trips": 1}, {"ACCUMULATOR_MOVED": 8}, "accumulator round trips on sm_90"),
        ({"waits behind their barrier": 1}, {"WAIT_MOVED": 8}, "waits behind their barrier on sm_90"),
        ({"LDS stores open at a barrier": 3}, {"LDS_ACROSS_BARRIER": 8}, "LDS stores open at a barrier on sm_90"),
        ({"LDS loads open at a barrier": 3}, {"LDS_ACROSS_BARRIER": 8}, "LDS loads open at a barrier on sm_90"),
        ({"products without a wait": 1}, {"ORDER_LOST": 8}, "products without a wait on sm_90"),
        (
            {"products behind copies without a proxy fence": 2, "barrier": 3},
            {"ORDER_LOST": 8},
            "products behind copies without a proxy fence on sm_90",
        ),
        (
            {"commits behind a wait without a barrier": 2},
            {"ORDER_LOST": 8},
            "commits behind a wait without a barrier on sm_90",
        ),
    ],
    ids=str,
)
def test_other_synchronisation_has_its_name(compared, now, expected, cause):
    before = changed(BASE, synchronising())
    comparison = compared(changed(before, synchronising(**now), **KERNEL), before)
    assert kinds(comparison) == expected
    assert not cause or comparison.groups[0].cause == cause
    # the times of an accumulator that moves are the same here, so that it is a warning
    assert comparison.safe == (not expected or bool(expected.keys() & {"SYNC_CHANGED", "ACCUMULATOR_MOVED"}))


def test_an_accumulator_that_moves_is_a_regression_where_no_time_says_otherwise(compared):
    moved = synchronising(**{"accumulator round trips": 1})
    before = copy.deepcopy(BASE)
    for one in before:
        synchronising()(one)
        untimed(one)
    comparison = compared(changed(before, moved, **KERNEL), before)
    assert kinds(comparison) == {"ACCUMULATOR_MOVED": 8}
    assert not comparison.safe


def test_a_fence_that_came_is_no_cause_beside_a_barrier_that_went(compared):
    before = changed(BASE, synchronising(**{"products behind copies without a proxy fence": 2}))
    comparison = compared(changed(before, synchronising(barrier=3), **KERNEL), before)
    assert kinds(comparison) == {"SYNC_CHANGED": 8}  # newer records do not have the other count
    assert comparison.groups[0].cause == "lower count of barrier on sm_90"


@pytest.mark.parametrize("fault", sync_changes._FAULTS)
@pytest.mark.parametrize(("left", "cause"), [(0, "no {} any more on sm_90"), (1, "fewer {} on sm_90")])
def test_faults_of_order_that_fall_in_number_are_fixed_and_no_race(compared, fault, left, cause):
    before = changed(BASE, synchronising(**{fault: 3}))
    comparison = compared(changed(before, synchronising(**{fault: left}), **KERNEL), before)
    if not left and fault in sync_changes._JUDGED:  # newer records do not have the count, whatever the code does
        assert comparison.groups == ()
        return
    assert kinds(comparison) == {"FIXED": 8}
    assert comparison.groups[0].cause == cause.format(fault)
    texts = {(one.before, one.after, one.detail) for one in comparison.groups[0].findings}
    assert texts == {(f"{fault}: 3", f"{fault}: {left or 'none'}", "its TTGIR was not run")}


def test_loads_of_a_new_ping_pong_schedule_are_another_synchronisation_and_no_regression(compared):
    before = changed(BASE, synchronising())
    scheduled = synchronising(**{"priority": 8, "LDS loads open at a barrier": 3})
    comparison = compared(changed(before, scheduled, **KERNEL), before)
    assert kinds(comparison) == {"SYNC_CHANGED": 8}
    assert "LDS loads open at a barrier 3" in comparison.groups[0].findings[0].after


def test_structure_that_one_side_does_not_record_is_not_compared(compared):
    comparison = compared(changed(BASE, synchronising(**{"waits behind their barrier": 1}), **KERNEL))
    assert comparison.groups == ()


def test_synchronisation_of_the_machine_code_counts_too_and_a_feature_explains_it(compared):
    def more_barriers(one: Record) -> None:
        synchronising()(one)
        one["observed"]["code"] |= {"instructions": {"BAR": 3, "FFMA": 500}, "instructions_of": "sass"}

    before = changed(BASE, more_barriers)
    fewer = observing("code", instructions={"BAR": 2, "FFMA": 500})
    comparison = compared(changed(before, fewer, **KERNEL), before)
    assert kinds(comparison) == {"SYNC_CHANGED": 8}
    assert comparison.groups[0].cause == "lower count of BAR in SASS on sm_90"
    features = [*record()["observed"]["code"]["features"], "ASYNC_COPY"]
    gained = observing("code", instructions={"BAR": 2, "FFMA": 500}, features=features)
    assert kinds(compared(changed(before, gained, **KERNEL), before)) == {"FEATURE_GAINED": 8}


def test_slower_compilation_is_reported_per_kernel_and_target(compared):
    comparison = compared(changed(BASE, compiled_slowly, **KERNEL))
    assert kinds(comparison) == {"SLOWER_COMPILE": 1}
    assert comparison.safe
    assert kinds(compared(changed(BASE, compiled_slowly, **ONE))) == {}  # of one case it would be noise


def test_cached_compilations_are_not_timed(compared):
    def cached(one: Record) -> None:
        compiled_slowly(one)
        one["observed"]["compile_cached"] = True

    assert compared(changed(BASE, cached, **KERNEL)).groups == ()


@pytest.mark.parametrize(
    ("change", "run", "warning"),
    [
        (slower, {"stack": {**BASE[0]["stack"], "device": "NVIDIA H100"}}, "devices differ"),
        (other_bits, {"seed": 7}, "seeds differ"),
    ],
    ids=["times", "bits"],
)
def test_what_another_device_or_seed_changes_is_not_compared(compared, change, run, warning):
    comparison = compared(changed(BASE, change, **KERNEL), **run)
    assert comparison.groups == ()
    assert any(warning in text for text in comparison.warnings)


def test_single_measurements_that_differ_are_ambiguous(compared):
    def one_measurement(one: Record) -> None:
        del one["observed"]["run"]["samples_us"]

    def one_other(one: Record) -> None:
        one_measurement(one)
        one["observed"]["run"]["us"] *= 2

    baseline = changed(BASE, one_measurement)
    comparison = compared(changed(BASE, one_other, kernel="mm"), changed(BASE, one_measurement, kernel="mm"))
    assert kinds(comparison) == {"AMBIGUOUS": 16}
    assert len(comparison.groups) == 1
    assert compared(baseline, baseline).groups == ()


def test_no_longer_timed_is_lost_coverage(compared):
    def refused(one: Record) -> None:
        one["observed"]["run"] = {"problem": PROBLEMS[0], "refused": "shared-memory: 300000 bytes, 232448 required"}

    comparison = compared(changed(BASE, refused, **ONE))
    assert kinds(comparison) == {"LOST_COVERAGE": 1}
    assert "no longer timed: refused" in comparison.groups[0].cause


def test_a_waiver_does_not_hide_more_than_the_failure_it_accepts(compared):
    def accepted(one: Record) -> None:
        drop_tma_unjudged(one)
        fail(one, "codegen/requires/TMA_LOAD", "no match", status="expected-fail")
        one["reason"] = {"code": "known-defect", "subject": "no-tma", "detail": "reported"}

    def and_spills(one: Record) -> None:
        accepted(one)
        one["observed"]["resources"]["spills"] = 48

    assert kinds(compared(changed(BASE, accepted, **KERNEL))) == {"NEW_KNOWN_DEFECT": 8}
    assert kinds(compared(changed(BASE, and_spills, **KERNEL))) == {"NEW_KNOWN_DEFECT": 8, "MORE_SPILLS": 8}


def test_wgmma_for_mma_is_a_gain(compared, tmp_path: Path):
    older = observing("code", features=["MMA", "POINTER_LOAD"])
    comparison = compared(BASE, changed(BASE, older, **KERNEL))
    assert kinds(comparison) == {Kind.FEATURE_GAINED.value: 24}  # TMA_LOAD, TMA_STORE, WGMMA
    assert comparison.safe
