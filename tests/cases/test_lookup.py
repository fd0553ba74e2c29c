"""The call behind a case id is the one that pytest would make."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import pkgutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import suites
from conformance.cases import tier_rows
from conformance.cases.case_table import Selection, cases_of
from conformance.cases.lookup import CaseLookup, near_case, smallest_tier
from conformance.cases.lookup import test_function as function_of
from conformance.kernels.catalogue import catalogue
from conformance.suites import test_config_space, test_inductor_gemm, test_scaling
from conformance.targets import compile_targets
from tests.forked_python import executable

TARGETS = compile_targets()
SELECTION = Selection(TARGETS, "default")
#: Tests for gfx1250 alone, whose number of compute units is given by option.
WITHOUT_CASES = {"test_persistent_tdm"}


def scenarios_of(module):
    return [test for name, test in vars(module).items() if name.startswith("test_") and cases_of(test)]


@pytest.mark.parametrize("module", [test_scaling, test_inductor_gemm], ids=lambda module: module.__name__)
def test_each_case_of_a_suite_is_a_call_with_the_values_of_its_row(module):
    look_up, file = CaseLookup(TARGETS), module.__name__.rpartition(".")[2] + ".py"
    for test in scenarios_of(module):
        table = cases_of(test).table(SELECTION, list(inspect.signature(test).parameters))
        assert bool(table.rows) != (test.__name__ in WITHOUT_CASES)
        for case, row in table.rows.items():
            call = look_up(f"{file}::{test.__name__}[{case}]")
            assert (call.test, call.values) == (test, dict(zip(table.names, row, strict=True)))


@pytest.mark.parametrize("module", [test_scaling, test_inductor_gemm], ids=lambda module: module.__name__)
def test_a_table_that_finds_rows_has_those_of_the_whole_table(module):
    look_up = CaseLookup(TARGETS)
    for test in scenarios_of(module):
        arguments = list(inspect.signature(test).parameters)
        whole, finding = cases_of(test).table(SELECTION, arguments), look_up.table(test, arguments)
        assert {text: finding.rows[text] for text in whole.rows} == whole.rows
        assert list(finding.rows) == []
        with pytest.raises(KeyError):
            finding.rows["mm-bf16-sm_1"]


def test_one_of_the_full_tier_is_found_without_a_list(monkeypatch):
    """Nor does it matter which targets are asked for, or which cases a tier has."""
    cases = [
        "test_config_space.py::test_config_space[mm-tf32-32x32x16-s1-w2-shape=many-k-blocks-sm_103]",
        "test_random_problems.py::test_random_problem[mm-drawn=199-sm_90]",
        "test_fusion.py::test_epilogue[fused_mm-bf16-64x64x32-s2-w4-epilogue=-out_dtype=None-sm_90]",
    ]
    monkeypatch.setattr(tier_rows, "groups", None)
    for case in cases:
        call = CaseLookup(TARGETS[:1])(case)
        assert case.split("[")[1].startswith(call.values["kernel"].name)
        assert call.values["target"].id == case[:-1].rpartition("-")[2]


def test_each_case_of_the_quick_tier_is_found_as_its_table_has_it():
    quick, count = replace(SELECTION, tier="quick"), 0
    for module in pkgutil.iter_modules(suites.__path__):
        for test in scenarios_of(importlib.import_module(f"{suites.__name__}.{module.name}")):
            arguments = list(inspect.signature(test).parameters)
            table, finding = cases_of(test).table(quick, arguments), CaseLookup(TARGETS).table(test, arguments)
            assert table.names == finding.names
            assert {text: finding.rows[text] for text in table.rows} == table.rows
            count += 1
    assert count > 50


def test_a_selected_row_is_found():
    table = cases_of(test_config_space.test_selected_rows).table(SELECTION, ())
    case, row = next(iter(table.rows.items()))
    call = CaseLookup(TARGETS)(f"test_config_space.py::test_selected_rows[{case}]")
    assert tuple(call.values.values()) == row


def test_a_kernel_without_a_target_on_a_device_is_found_there():
    """A lookup also knows targets that can only be compiled for, which take the kernel."""
    device = replace(TARGETS[0], device_index=0)
    test = test_config_space.test_each_kernel_has_a_target
    ids = cases_of(test).table(Selection((device,), "quick"), ["kernel"]).rows
    assert ids
    for text in ids:
        case = CaseLookup((device,))(f"test_config_space.py::{test.__name__}[{text}]")
        assert case.values == {"kernel": catalogue()[text]}


def test_a_test_that_is_no_scenario_has_no_call():
    assert CaseLookup(TARGETS)("test_config_space.py::test_refusals_of_examples[gemm]") is None


@pytest.mark.parametrize(
    "case",
    [
        "test_scaling.py::test_nothing[mm]",
        "test_nothing.py::test_a[mm]",
        "test_transposition.py::test_transposed_operands[mm-bf16-sm_90]",
        "test_transposition.py::test_transposed_operands[nothing-bf16-sm_90]",
    ],
)
def test_what_is_not_there_is_a_key_error(case):
    with pytest.raises(KeyError):
        CaseLookup(TARGETS)(case)


def test_no_name_of_a_kernel_holds_what_ends_it_in_an_id():
    assert not [name for name in catalogue() if "-" in name]


def test_a_selection_of_equal_targets_has_the_same_cases():
    """A compile process gets a selection with each task, and what it has kept is of the one before."""
    test = test_scaling.test_scales
    arguments = list(inspect.signature(test).parameters)
    first = cases_of(test).table(SELECTION, arguments).rows
    again = pickle.loads(pickle.dumps(SELECTION))
    assert again.targets[0] is not SELECTION.targets[0]
    assert cases_of(test).table(again, arguments).rows == first


def test_an_id_that_no_case_has_comes_with_advice():
    quick, arguments = replace(SELECTION, tier="quick"), list(inspect.signature(test_scaling.test_scales).parameters)
    few, more = (
        list(cases_of(test_scaling.test_scales).table(chosen, arguments).rows) for chosen in (quick, SELECTION)
    )
    name = "test_scaling.py::test_scales"
    misspelt = few[-1].replace(few[-1].split("-")[1], "bf61", 1)
    assert near_case(f"{name}[{misspelt}]", quick).startswith(f"did you mean {name}[{few[-1].split('-')[0]}-")
    assert smallest_tier(f"{name}[{few[0]}]", quick) == "quick"
    assert smallest_tier(f"{name}[{next(case for case in more if case not in few)}]", quick) == "default"
    assert near_case(f"{name}[nothing]", quick) == near_case("test_scaling.py::test_none[x]", quick) == ""


def test_a_command_takes_cases_of_any_tier_and_target_by_their_ids(tmp_path):
    """Three ways to name them. Only cases of the full tier are named, in a run of the quick tier."""
    test = "test_transposition.py::test_column_major_weight"
    cases = [
        f"{test}[scaled_mm-e5m2-16x64x32-s5-w2-static=False-scaling=tensor-fast_accum=False-sm_{arch}]"
        for arch in (80, 103)
    ]
    (tmp_path / "ids.txt").write_text("\n".join(cases))
    quick = cases_of(function_of(test)).table(replace(SELECTION, tier="quick"), ["kernel", "target"]).rows
    assert quick.keys().isdisjoint(cases)
    root = Path(suites.__path__[0])
    environment = {**os.environ, "PYTHONPATH": str(root.parents[1])}

    def collected(*words):
        command = [executable(), "-m", *words, "--tier", "quick", "--no-gpu"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        return [line for line in done.stdout.splitlines() if "::" in line], done.stderr

    assert collected("conformance", "list", "--target", "sm_90", "--cases", "ids.txt")[0] == sorted(cases)
    assert collected("conformance", "list", f"--conformance-case={cases[0]}")[0] == cases[:1]
    pytest_words = ["pytest", "-p", "conformance.plugin", "-q", "--collect-only", "-p", "no:cacheprovider"]
    assert [line.rpartition("/")[2] for line in collected(*pytest_words, f"{root}/{cases[1]}")[0]] == cases[1:]
    for words in (["conformance", "list"], ["conformance", "run", "-q"]):
        lines, errors = collected(*words, "--suite", "alignment", "--kernel", "mm", "--target", "sm_90")
        assert not lines
        assert "the quick tier has each row on one target, and --tier default on each" in errors
    lines, errors = collected("conformance", "list", f"--conformance-case={cases[0].replace('e5m2', 'e5m3')}")
    assert not lines
    assert "no case matches" in errors
