"""Some options leave a run whole, some make it partial, and some no evidence may have."""

from __future__ import annotations

import pytest

from conformance.gate.evidence.options import OptionCheck, check_options
from conformance.plugin.options import add_options, add_short_names
from conformance.user_files.run_options import OPTIONS, Effect, RunOption

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
REFUSED = [
    ["-p", "other_plugin"],
    ["-pother_plugin"],
    ["-o", "addopts="],
    ["--override-ini=xfail_strict=0"],
    ["-c", "mine.ini"],
    ["--rootdir=/"],
    ["--confcutdir=/"],
    ["--expected-failures=mine.toml"],
    ["--calibration=mine.json"],
    ["--runxfail"],
    ["--reruns", "3"],
    ["--dist=loadfile"],
    ["--tie", "quick"],
    ["--tier"],
    ["-W", "ignore"],
]


@pytest.mark.parametrize("words", WHOLE, ids=" ".join)
def test_options_that_leave_nothing_out(words):
    checked = check_options(words, {})
    assert (checked.narrowing, checked.refused) == ((), ())


def test_the_last_tier_and_seed_count_whichever_way_they_are_spelt():
    checked = check_options(["--conformance-tier", "full", "--tier", "quick", "--seed=1", "--conformance-seed=007"], {})
    assert (checked.tier, checked.seed) == ("quick", 7)


@pytest.mark.parametrize(("words", "shown"), PARTIAL)
def test_options_that_make_a_run_partial(words, shown):
    assert check_options(["--tier", "quick", *words], {}) == OptionCheck((shown,), (), "quick")


def test_the_order_of_narrowing_options_is_that_of_signed_statements():
    words = ["--lf", "-x", "--kernel", "mm", "-k", "b", "--kernel", "addmm", "-x", "-k", "a", "test_scaling.py"]
    in_order = ("-k b", "-k a", "--kernel mm", "--kernel addmm", "-x", "--lf", "only test_scaling.py")
    assert check_options(words, {}).narrowing == in_order


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_options_that_no_evidence_may_have(words):
    assert check_options(["--tier", "quick", *words], {}).refused


@pytest.mark.parametrize(
    "name", ["TRITON_KERNEL_OVERRIDE", "TRITON_PLUGIN_PATHS", "LLVM_PASS_PLUGIN_PATH", "PYTHONOPTIMIZE"]
)
def test_variables_that_replace_what_is_tested(name):
    assert check_options([], {name: "x"}).refused == (f"{name}=x",)
    assert check_options([], {name: "0", "TRITON_CACHE_DIR": "/c"}).refused == ()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_of_this_harness_has_the_effect_that_its_declaration_says(option):
    """So a new option has one place that says what it does to evidence."""
    value = {"tier": "quick", "seed": "1", "gpus": "1", "case-timeout": "9"}.get(option.name, "x")
    for spelling in filter(None, (option.short, option.long)):
        checked = check_options([spelling] if option.is_flag else [spelling, value], {})
        if option.effect is Effect.REFUSED:
            assert checked.refused == (spelling,)
        elif option.effect is Effect.NARROWS:
            assert checked.narrowing == (f"{option.short or option.long} {value}",)
        else:
            assert (checked.narrowing, checked.refused) == ((), ())


def test_an_option_must_say_what_it_does_to_evidence():
    with pytest.raises(TypeError, match="effect"):
        RunOption(name="shuffle", attributes={"action": "store_true"})


def test_the_plugin_has_no_option_beside_the_declared_ones():
    class Group:
        def __init__(self):
            self.options = []

        def addoption(self, name, **attributes):
            self.options.append(name)

    class Parser:
        def __init__(self):
            self.groups = {}

        def getgroup(self, name, *_):
            return self.groups.setdefault(name, Group())

        def addini(self, *_, **__):
            pass

    parser = Parser()
    add_options(parser)
    add_short_names(parser)
    add_short_names(parser)  # again is harmless
    added = [name for group in parser.groups.values() for name in group.options]
    assert sorted(added) == sorted(name for option in OPTIONS for name in (option.long, option.short) if name)
