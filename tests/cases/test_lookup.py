"""The call behind a case id is the one that pytest would make."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from dataclasses import replace

import pytest

from conformance import suites
from conformance.cases.case_table import Selection, cases_of
from conformance.cases.lookup import CaseLookup, near_case
from conformance.kernels.catalogue import catalogue
from conformance.suites import test_config_space, test_inductor_gemm, test_scaling
from conformance.targets import compile_targets

SELECTION = Selection(compile_targets(), "default")
#: Tests for gfx1250 alone, whose number of compute units is given by option.
WITHOUT_CASES = {"test_persistent_tdm"}


def scenarios_of(module):
    return [test for name, test in vars(module).items() if name.startswith("test_") and cases_of(test)]


@pytest.mark.parametrize("module", [test_scaling, test_inductor_gemm], ids=lambda module: module.__name__)
def test_each_case_of_a_suite_is_a_call_with_the_values_of_its_row(module):
    look_up, file = CaseLookup(SELECTION), module.__name__.rpartition(".")[2] + ".py"
    for test in scenarios_of(module):
        table = cases_of(test).table(SELECTION, list(inspect.signature(test).parameters))
        assert bool(table.rows) != (test.__name__ in WITHOUT_CASES)
        for case, row in table.rows.items():
            call = look_up(f"{file}::{test.__name__}[{case}]")
            assert (call.test, call.values) == (test, dict(zip(table.names, row, strict=True)))


@pytest.mark.parametrize("module", [test_scaling, test_inductor_gemm], ids=lambda module: module.__name__)
def test_a_table_that_finds_rows_has_those_of_the_whole_table(module):
    look_up = CaseLookup(SELECTION)
    for test in scenarios_of(module):
        arguments = list(inspect.signature(test).parameters)
        whole, finding = cases_of(test).table(SELECTION, arguments), look_up.table(test, arguments)
        assert {text: finding.rows[text] for text in whole.rows} == whole.rows
        assert list(finding.rows) == []
        with pytest.raises(KeyError):
            finding.rows["mm-bf16-sm_1"]


def test_each_test_has_the_same_arguments_without_a_target():
    """A table that finds rows knows them from there."""
    quick, count = replace(SELECTION, tier="quick"), 0
    for module in pkgutil.iter_modules(suites.__path__):
        for test in scenarios_of(importlib.import_module(f"{suites.__name__}.{module.name}")):
            arguments = list(inspect.signature(test).parameters)
            assert CaseLookup(quick).table(test, arguments).names == cases_of(test).table(quick, arguments).names
            count += 1
    assert count > 50


def test_a_selected_row_is_found():
    table = cases_of(test_config_space.test_selected_rows).table(SELECTION, ())
    case, row = next(iter(table.rows.items()))
    call = CaseLookup(SELECTION)(f"test_config_space.py::test_selected_rows[{case}]")
    assert tuple(call.values.values()) == row


def test_a_test_that_is_no_scenario_has_no_call():
    assert CaseLookup(SELECTION)("test_config_space.py::test_refusals_of_examples[gemm]") is None


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
        CaseLookup(SELECTION)(case)


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
    assert (
        near_case(f"{name}[{next(case for case in more if case not in few)}]", quick)
        == "it is a case of --tier default"
    )
    assert near_case(f"{name}[nothing]", quick) == near_case("test_scaling.py::test_none[x]", quick) == ""
