"""Faults of the harness itself are chosen by a seed, planted by source, and tried with the tests that are near."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.harness_faults import HarnessFault, Trials, choose, faulty_sources, near_tests, plant

SOURCE = '''
def larger(a: int, b: int) -> bool:
    """True if a is larger."""
    if a > b:
        return True
    return False
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one function and its test."""
    for folder in ("conformance/gate", "conformance/plugin", "tests/gate"):
        (tmp_path / folder).mkdir(parents=True)
    for package in ("conformance", "conformance/gate", "conformance/plugin"):  # pytest loads the plugin from here
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "conformance/gate/sizes.py").write_text(SOURCE)
    (tmp_path / "tests/gate/test_sizes.py").write_text(
        "from conformance.gate.sizes import larger\n\n\ndef test_larger():\n    assert larger(2, 1)\n"
    )
    (tmp_path / "tests/test_other.py").write_text("def test_other():\n    pass\n")
    return tmp_path


def test_faults_exchange_negate_shift_and_delete():
    function = ast.parse("def f(a, b):\n    c = 1\n    if a < b:\n        return True\n    return c").body[0]
    assert isinstance(function, ast.FunctionDef)
    sources = faulty_sources(function)
    assert len(sources) == len(set(sources)) == 6
    for part in ("a <= b", "not a < b", "c = 2", "return False", "    pass\n    if", "c = 1\n    pass"):
        assert any(part in text for text in sources), part


def test_a_seed_chooses_the_same_faults_and_another_tree_must_have_the_function(tree, tmp_path):
    assert choose(3, 0, tree) == choose(3, 0, tree)
    (tmp_path / "empty" / "conformance").mkdir(parents=True)
    assert choose(3, 0, tree, [tmp_path / "empty"]) == []


def test_a_fault_is_found_by_its_source_wherever_it_is(tree):
    fault = choose(1, 0, tree)[0]
    moved = tree / "conformance/gate/moved.py"
    (tree / "conformance/gate/sizes.py").rename(moved)
    assert plant(fault, tree) == moved
    assert fault.faulty in moved.read_text()
    with pytest.raises(LookupError, match="no function larger"):
        plant(fault, tree)


def test_the_tests_that_name_the_module_come_first(tree):
    assert near_tests(tree / "conformance/gate/sizes.py", tree) == [
        ["tests/gate/test_sizes.py"],
        ["tests/test_other.py"],
    ]


@pytest.mark.parametrize(("before", "after", "how"), [("a > b", "a < b", "caught"), ("a > b", "a >= b", "missed")])
def test_a_trial_says_which_test_fails(tree, before, after, how):
    function = next(node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.FunctionDef))
    function.body = function.body[1:]
    source = ast.unparse(function)
    fault = HarnessFault("conformance.gate.sizes", "larger", source, source.replace(before, after))
    result = Trials(tree, 60).first_failure(fault)
    assert (result["how"], result["failed"]) == (
        how,
        "tests/gate/test_sizes.py::test_larger" if how == "caught" else "",
    )


def test_a_tree_in_which_no_test_can_run_caught_nothing(tree):
    fault = choose(1, 0, tree)[0]
    (tree / "conformance/plugin/__init__.py").write_text("raise ImportError")
    assert Trials(tree, 60).first_failure(fault)["how"] == "no test could run"
