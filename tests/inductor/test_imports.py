"""What collecting the suites imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

COLLECT = """
import sys
import pytest

options = ["--collect-only", "-q", "--tier", "quick", "--no-gpu", "-n", "0", "-p", "no:cacheprovider"]
status = pytest.main([*options, *(f"conformance/suites/{suite}.py" for suite in sys.argv[1:])])
print(int(status), sorted({"torch._dynamo", "torch._inductor"} & set(sys.modules)))
"""


def test_collecting_the_suites_imports_no_compiler() -> None:
    """torch's compiler takes seconds to import, and a worker needs it only for cases of Inductor's."""
    suites = sorted(path.stem for path in ROOT.glob("conformance/suites/test_inductor_*.py"))
    child = subprocess.run(
        [sys.executable, "-c", COLLECT, *suites], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert child.stdout.splitlines()[-1:] == ["0 []"], child.stdout[-2000:] + child.stderr[-2000:]
