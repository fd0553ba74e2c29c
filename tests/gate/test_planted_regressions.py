"""Each planted regression is reported under its right name and nothing else; identical runs report nothing."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import made_records
import pytest
from made_records import CONFIGS, PROBLEMS, Record, changed, fail, record, run_of_all, write_run

from conformance.gate.findings import Comparison, Kind
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.reporting.comparison import render_terminal, summary_line

BASE = run_of_all()


@pytest.fixture
def compared(tmp_path):
    return lambda candidate, baseline=BASE, **run: made_records.compared(tmp_path, baseline, candidate, **run)


def kinds(comparison: Comparison) -> dict[str, int]:
    return dict(Counter(finding.kind.value for group in comparison.groups for finding in group.findings))


def observing(part: str, **figures: object) -> Callable[[Record], None]:
    """Changes figures that were observed of a case."""
    return lambda one: one["observed"][part].update(figures)


def failing(check: str, text: str) -> Callable[[Record], None]:
    """Makes a check of a case fail."""
    return lambda one: fail(one, check, text)


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


def no_longer_fits(one: Record) -> None:
    """As the suites record code that needs more memory than the target has."""
    one["observed"]["resources"]["shared_memory"] = 240000
    detail = "shared memory: 240000 bytes per block, sm_90 has 232448; as measured for mm-1x2x3"
    reason = {"code": "shared-memory", "subject": "128x128x64", "detail": detail}
    one.update(status="not-applicable", executor=None, verdicts=[], reason=reason)


def crash(one: Record) -> None:
    one.update(status="crash", diagnosis="the worker died of signal 11 at 0x7f00deadbeef", verdicts=[])


def timed(factor: float) -> Callable[[Record], None]:
    """Makes all times of a case ``factor`` times as long."""

    def change(one: Record) -> None:
        run = one["observed"]["run"]
        run["us"] *= factor
        run["samples_us"] = [value * factor for value in run["samples_us"]]

    return change


slower = timed(1.3)


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


def no_device(one: Record) -> None:
    one.update(status="not-run", executor=None, reason={"code": "no-device", "subject": "device", "detail": "none"})


def fewer_checks(one: Record) -> None:
    one["verdicts"] = [verdict for verdict in one["verdicts"] if verdict["check"] != "memory"]


def no_code(one: Record) -> None:
    del one["observed"]["code"]


def interpreted(one: Record) -> None:
    one["executor"] = "interpreter"


def compiled_slowly(one: Record) -> None:
    one["observed"]["compile_s"] = 2.5


def measured_thrice(one: Record) -> None:
    one["observed"]["run"]["samples_us"] = [10 * us for us in one["observed"]["run"]["samples_us"][:3]]


TIMES = {config: record(config=config)["observed"]["run"]["us"] for config in CONFIGS}
ONE = {"kernel": "mm", "target": "sm_90", "config": CONFIGS[1], "problem": PROBLEMS[0]}
KERNEL = {"kernel": "mm", "target": "sm_90"}  # 8 cases


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
        (wrong, ONE, {"NEW_FAIL": 1}, "numerics/transparent: FAIL exact/transparent wrong"),
        (nondeterministic, KERNEL, {"NONDETERMINISTIC": 8}, "repeat/randn: two runs differ in N elements"),
        (crash, KERNEL, {"NEW_CRASH": 8}, "crash: the worker died of signal N at HEX"),
        (other_instructions, KERNEL, {"OTHER_INSTRUCTIONS": 8}, "another mix of instructions on sm_90"),
        (other_bits, KERNEL, {"NUMERICS_DRIFT": 8}, "other bits, inside the bound"),
        (no_device, KERNEL, {"LOST_COVERAGE": 8}, "not-run no-device (device)"),
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
    assert (first.before, first.after) == ("240000 bytes of shared memory", "147456 bytes of shared memory")
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
        ("147456 bytes of shared memory", "240000 bytes of shared memory"),
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
            "240000 bytes of shared memory, 300 registers for each of 256 threads",
        ),
    ),
}


@pytest.mark.parametrize("which", CROSSED)
def test_a_crossed_limit_shows_the_figures_of_what_crossed_it(compared, which):
    """Whether the case is passed over, as for memory, or fails by the check of resources."""
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


def test_a_launch_beside_the_main_one_shows_no_figures_of_the_main_one(compared):
    text = "tensor memory: 768 columns, sm_90 has 512"
    (group,) = compared(changed(BASE, lambda one: fail(one, "resources/reduce", text), **KERNEL)).groups
    assert group.findings[0].before == "within the target's limits"


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
        one["observed"]["resources"]["registers"] = 255
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


def test_run_without_its_tail_is_not_safe(compared):
    comparison = compared(BASE[:-5], selected=len(BASE), wall_s=None)
    assert set(kinds(comparison)) == {"LOST_COVERAGE"}
    assert not comparison.safe
    assert sum(len(group.findings) for group in comparison.groups if group.cause == "not recorded") == 5
    assert any(finding.after == "the run did not end" for group in comparison.groups for finding in group.findings)


@pytest.mark.parametrize(
    "damage", [lambda file: file.unlink(), lambda file: file.write_text("{")], ids=["missing", "torn"]
)
def test_candidate_without_a_usable_run_json_is_not_safe(tmp_path, damage):
    before, after = (write_run(tmp_path / name, BASE) for name in "ab")
    damage(after / "run.json")
    comparison = compare(read_compared_run(before), read_compared_run(after))
    assert kinds(comparison) == {"LOST_COVERAGE": 1}
    assert "run.json" in comparison.groups[0].findings[0].after


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
    for check in ("repeat/randn", "memory/randn", "repeat/randn@64x64x64-s3-w4", "diagnosis"):
        assert kinds(compared(BASE, changed(BASE, failing(check, "it differs"), **KERNEL))) == {"FIXED": 8}, check
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


def test_tail_that_both_runs_lack_is_not_safe(compared):
    comparison = compared(BASE[:-5], BASE[:-5], selected=len(BASE))
    assert kinds(comparison) == {"LOST_COVERAGE": 1}
    assert "5 of 48 selected" in comparison.groups[0].findings[0].after


def test_candidate_with_torn_line_is_not_safe(compared, tmp_path):
    before = write_run(tmp_path / "a", BASE)
    after = write_run(tmp_path / "b", BASE)
    file = after / "records.jsonl"
    file.write_bytes(file.read_bytes()[:-100])
    comparison = compare(read_compared_run(before), read_compared_run(after))
    assert set(kinds(comparison)) == {"LOST_COVERAGE"}
    assert any("torn last line" in finding.after for group in comparison.groups for finding in group.findings)


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
    before = copy.deepcopy(BASE)
    for one in before:
        observing("code", instructions={"FFMA2": 1024, "FFMA": 64, "LDS": 182})(one)
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
    ],
    ids=str,
)
def test_other_synchronisation_has_its_name(compared, now, expected, cause):
    before = copy.deepcopy(BASE)
    for one in before:
        synchronising()(one)
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
        del one["observed"]["run"]
    comparison = compared(changed(before, moved, **KERNEL), before)
    assert kinds(comparison) == {"ACCUMULATOR_MOVED": 8}
    assert not comparison.safe


def test_loads_of_a_new_ping_pong_schedule_are_another_synchronisation_and_no_regression(compared):
    before = copy.deepcopy(BASE)
    for one in before:
        synchronising()(one)
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

    assert kinds(compared(changed(BASE, accepted, **KERNEL))) == {"NEW_EXPECTED_FAIL": 8}
    assert kinds(compared(changed(BASE, and_spills, **KERNEL))) == {"NEW_EXPECTED_FAIL": 8, "MORE_SPILLS": 8}


def test_wgmma_for_mma_is_a_gain(compared, tmp_path: Path):
    older = observing("code", features=["MMA", "POINTER_LOAD"])
    comparison = compared(BASE, changed(BASE, older, **KERNEL))
    assert kinds(comparison) == {Kind.FEATURE_GAINED.value: 24}  # TMA_LOAD, TMA_STORE, WGMMA
    assert comparison.safe


# --- what code costs: spills and occupancy ----------------------------------------------------------------------------

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


def untimed(one: Record) -> None:
    del one["observed"]["run"]


def measured_once(one: Record) -> None:
    run = one["observed"]["run"]
    run["samples_us"] = [run["us"]]


OTHER_GPU = {"stack": {**BASE[0]["stack"], "device": "NVIDIA H100"}}


def timed_elsewhere(one: Record) -> None:
    one["observed"]["run"]["device"] = "a1"


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
