"""Collecting the suites imports neither torch's compiler nor Inductor."""

from __future__ import annotations

from tests.inductor.planted_code import ROOT, child

COLLECT = """
import sys
import pytest

options = ["--collect-only", "-q", "--tier", "quick", "--no-gpu", "-n", "0", "-p", "no:cacheprovider"]
status = pytest.main([*options, *{suites}])
print(int(status), sorted({{"torch._dynamo", "torch._inductor"}} & set(sys.modules)))
"""


def test_collecting_the_suites_imports_no_compiler() -> None:
    """torch's compiler takes seconds to import, and a worker needs it only for cases of Inductor's."""
    suites = sorted(map(str, ROOT.glob("conformance/suites/test_inductor_*.py")))
    assert child(COLLECT.format(suites=suites)).splitlines()[-1] == "0 []"
