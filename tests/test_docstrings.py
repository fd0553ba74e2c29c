"""The examples in docstrings are true, and many public functions have one."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: The fewest public functions whose docstring has an example.
FEWEST = 60


def modules_with_examples(folder: Path) -> list[str]:
    """Returns the dotted names of the modules below ``folder`` that have an example, sorted."""
    files = (file for file in folder.rglob("*.py") if ">>> " in file.read_text())
    return sorted(".".join(file.relative_to(folder.parent).with_suffix("").parts) for file in files)


def examples_of(module: str) -> list[doctest.DocTest]:
    """Returns the examples of ``module`` and of what it defines, a test for each docstring that has some."""
    return [test for test in doctest.DocTestFinder().find(importlib.import_module(module)) if test.examples]


def wrong_examples(module: str) -> list[str]:
    """Returns the report of each example of ``module`` that gives another answer than its docstring says."""
    reports: list[str] = []
    for test in examples_of(module):
        doctest.DocTestRunner(verbose=False).run(test, out=reports.append)
    return reports


MODULES = modules_with_examples(ROOT / "conformance")


@pytest.mark.parametrize("module", MODULES)
def test_every_example_is_true(module):
    assert wrong_examples(module) == []


def test_many_public_functions_have_an_example():
    names = {test.name for module in MODULES for test in examples_of(module) if test.name != module}
    public = [name for name in names if "._" not in name]
    assert len(public) >= FEWEST


def test_a_wrong_example_is_reported(tmp_path, monkeypatch):
    package = tmp_path / "planted_examples"
    package.mkdir()
    (package / "sums.py").write_text(
        'def add(a, b):\n    """Returns a + b.\n\n    >>> add(1, 2)\n    4\n    """\n    return a + b\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted_examples.sums", raising=False)
    assert modules_with_examples(package) == ["planted_examples.sums"]
    (report,) = wrong_examples("planted_examples.sums")
    assert "Expected:\n    4\nGot:\n    3\n" in report
