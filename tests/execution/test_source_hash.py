"""A kernel has one hash, whatever the process has hashed before."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.execution.compile.specialisation import source_hash

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="an interpreted function has no hash")

HELPERS = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(2.0)

@triton.jit
def scaled(x):
    return x * FACTOR
"""

KERNELS = """
import helpers_of_source_hash as helpers
import triton
import triton.language as tl

@triton.jit
def first(x):
    tl.sum(helpers.scaled(x), 0)

@triton.jit
def second(x):
    tl.max(helpers.scaled(x), 0)
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes new copies of two kernels that call one function, which uses a constant of its module."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "helpers_of_source_hash.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(tmp_path)

    def load() -> Any:
        for name in ("helpers_of_source_hash", "kernels"):
            spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, name, module)
            spec.loader.exec_module(module)
        return module

    return load


def test_the_order_does_not_count(kernels: Any) -> None:
    one, other = kernels(), kernels()
    assert one.first is not other.first
    hashes = [source_hash(one.first), source_hash(one.second)]
    assert hashes[0] != hashes[1]
    assert [source_hash(other.second), source_hash(other.first)] == hashes[::-1]


def test_callees_are_hashed_first(kernels: Any) -> None:
    """Else a release of Triton without an order of its own keeps the constant out of the kernel's hash."""
    kernel = kernels().first
    source_hash(kernel)
    assert [str(value) for (name, _), (value, _) in kernel.used_global_vals.items() if name == "FACTOR"] == [
        "constexpr[2.0]"
    ]


def test_what_is_no_function_of_triton_has_none() -> None:
    assert source_hash(len) is None
    assert source_hash(16) is None


def test_constants_of_one_name_are_hashed_in_an_order_of_their_own(tmp_path: Path) -> None:
    """Triton takes them by the addresses of their modules, which the order of imports moves."""
    for number, name in enumerate(("one", "two"), 2):
        text = HELPERS.replace("2.0", f"{number}.0").replace("scaled", f"scaled_{name}")
        (tmp_path / f"{name}.py").write_text(text)
    head = "import triton\nimport triton.language as tl\nfrom one import scaled_one\nfrom two import scaled_two\n"
    kernel = "@triton.jit\ndef both(x):\n    tl.sum(scaled_one(scaled_two(x)), 0)\n"
    (tmp_path / "both.py").write_text(head + kernel)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    hashes = set()
    for order in ("one, two", "two, one"):
        code = f"import triton, {order}\nfrom both import both\n"
        code += "from conformance.execution.compile.specialisation import source_hash\nprint(source_hash(both))"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        hashes.add(done.stdout)
    assert len(hashes) == 1
