"""Symptoms are figures of compilations, and the worst differences come first."""

from __future__ import annotations

from conformance.blame.symptoms import COMPILES, ORDERS, alike, chosen, differing, shown, unknown

RESOURCES = {
    "registers": 128,
    "spills": 0,
    "spill_unit": "bytes",
    "shared_memory": 32768,
    "tensor_memory": 0,
    "threads": 128,
}
CODE = {"features": ["MMA", "ASYNC_COPY"], "bytes": 1000, "sync": {"barrier": 4}, "instructions": {"FFMA2": 8}}
GOOD = {"status": "pass", "error": "", "resources": RESOURCES, "code": CODE, "checks": {}}


def changed(**fields):
    return {**GOOD, **fields}


def test_the_same_code_shows_no_difference():
    assert differing(shown(GOOD, "sm_90"), shown(GOOD, "sm_90")) == []


def test_what_got_worse_comes_before_what_got_better():
    code = {**CODE, "features": ["MMA", "TMA_LOAD"], "sync": {"barrier": 3}, "bytes": 900}
    after = shown(changed(code=code, resources={**RESOURCES, "spills": 64, "registers": 100}), "sm_90")
    names = differing(shown(GOOD, "sm_90"), after)
    assert names[:3] == ["feature ASYNC_COPY", "spills", "sync barrier"]
    assert set(names[3:]) == {"feature TMA_LOAD", "registers", "code bytes"}


def test_a_packed_instruction_that_is_gone_is_a_figure():
    after = shown(changed(code={**CODE, "instructions": {}}), "sm_100")
    assert differing(shown(GOOD, "sm_100"), after) == ["packed FFMA2"]


def test_a_failing_check_has_its_text():
    after = shown(changed(checks={"codegen/products": "mm multiplies f16"}), "sm_90")
    (name,) = differing(shown(GOOD, "sm_90"), after)
    assert after.texts[name] == "mm multiplies f16"


def test_of_code_that_is_not_compiled_nothing_else_is_known():
    error = "ptxas fatal   : Unsupported .version 9.4; current version is '8.7'"
    after = shown({"status": "compile-error", "error": error}, "sm_90")
    assert differing(shown(GOOD, "sm_90"), after) == [COMPILES]
    assert "Unsupported .version" in after.texts[COMPILES]
    assert after.value("spills") is None


def test_an_assertion_on_another_line_is_the_same_failure():
    assert alike("crash: SmallVector.h:297: `idx < size()' failed", "crash: SmallVector.h:300: `idx < size()' failed")
    assert not alike("crash: SmallVector.h:297: `idx < size()' failed", "crash: SmallVector.h:297: `!empty()' failed")


def test_what_was_not_tried_has_no_value():
    assert unknown("the text was refused").value("spills") is None
    assert shown(GOOD, "sm_90").value(ORDERS) is None


def test_symptoms_are_chosen_by_name_and_by_beginning():
    names = ["spills", "sync barrier", "sync fence", "feature MMA"]
    assert chosen(names, ()) == names
    assert chosen(names, ("sync",)) == ["sync barrier", "sync fence"]
    assert chosen(names, ("feature MMA", "spills")) == ["spills", "feature MMA"]
    assert chosen(names, ("spill",)) == []


def test_paths_of_this_machine_are_no_part_of_a_message():
    error = 'loc("/tmp/x1/compiled/bad/1/gemm.ttir":58:94): error: expected non-function type'
    after = shown({"status": "compile-error", "error": error}, "sm_90")
    assert after.texts[COMPILES] == 'compile-error: loc("gemm.ttir":58:94): error: expected non-function type'
