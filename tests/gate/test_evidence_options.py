"""Which options leave a run whole, which make it partial and which no evidence may have."""

from __future__ import annotations

import pytest

from conformance.gate.evidence.options import Judged, judge_options
from conformance.plugin.options import _OPTIONS

WHOLE = [
    [],
    ["-q", "--tier", "quick", "-n", "auto", "--target=sm_90", "--run-dir=out", "--seed", "3", "--no-gpu"],
    ["-p", "conformance.plugin", "--pyargs", "conformance.suites", "-n4", "-vv", "-ra", "--tb=short"],
    ["--strict-markers", "--strict-config", "--dist=load", "--compile-only", "--case-timeout", "60", "--gpus=2"],
]
PARTIAL = [
    (["-k", "mm"], "-k mm"),
    (["-kmm"], "-k mm"),
    (["-m", "slow"], "-m slow"),
    (["--kernel", "mm"], "--kernel mm"),
    (["--suite=scaling"], "--suite scaling"),
    (["--conformance-case=x"], "--conformance-case x"),
    (["--deselect", "a::b"], "--deselect a::b"),
    (["--ignore=a"], "--ignore a"),
    (["-x"], "-x"),
    (["--maxfail=1"], "--maxfail 1"),
    (["--lf"], "--lf"),
    (["conformance/suites/test_scaling.py"], "only conformance/suites/test_scaling.py"),
    (["--", "-k"], "only -k"),
]
UNLISTED = [
    ["-p", "other_plugin"],
    ["-pother_plugin"],
    ["-o", "addopts="],
    ["--override-ini=xfail_strict=0"],
    ["-c", "mine.ini"],
    ["--rootdir=/"],
    ["--confcutdir=/"],
    ["--expected-failures=mine.toml"],
    ["--runxfail"],
    ["--reruns", "3"],
    ["--dist=loadfile"],
    ["--tie", "quick"],
    ["--tier"],
    ["-W", "ignore"],
]


@pytest.mark.parametrize("words", WHOLE, ids=" ".join)
def test_options_that_leave_nothing_out(words):
    found = judge_options(words, {})
    assert (found.partial, found.unlisted) == ((), ())


def test_the_last_tier_and_seed_count_whichever_way_they_are_spelt():
    found = judge_options(["--conformance-tier", "full", "--tier", "quick", "--seed=1", "--conformance-seed=007"], {})
    assert (found.tier, found.seed) == ("quick", 7)


@pytest.mark.parametrize(("words", "found"), PARTIAL)
def test_options_that_make_a_run_partial(words, found):
    assert judge_options(["--tier", "quick", *words], {}) == Judged((found,), (), "quick")


@pytest.mark.parametrize("words", UNLISTED, ids=" ".join)
def test_options_that_no_evidence_may_have(words):
    assert judge_options(["--tier", "quick", *words], {}).unlisted


@pytest.mark.parametrize(
    "name", ["TRITON_KERNEL_OVERRIDE", "TRITON_PLUGIN_PATHS", "LLVM_PASS_PLUGIN_PATH", "PYTHONOPTIMIZE"]
)
def test_variables_that_replace_what_is_tested(name):
    assert judge_options([], {name: "x"}).unlisted == (f"{name}=x",)
    assert judge_options([], {name: "0", "TRITON_CACHE_DIR": "/c"}).unlisted == ()


def test_every_option_of_the_plugin_has_been_thought_about():
    """A new option is unlisted until someone says here what it does to evidence."""
    values = {"tier": "quick", "seed": "1", "gpus": "1", "case-timeout": "9"}
    for name, attributes in _OPTIONS.items():
        word = [] if attributes.get("action") == "store_true" else [values.get(name, "x")]
        for spelt in (f"--{name}", f"--conformance-{name}"):
            judged = judge_options([spelt, *word], {})
            assert bool(judged.unlisted) == (name == "expected-failures"), spelt
            assert bool(judged.partial) == (name in ("kernel", "suite") or bool(judged.unlisted)), spelt
