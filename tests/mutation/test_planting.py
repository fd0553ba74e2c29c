"""Functions found by their calls, faults in the place of functions, and the lines that a run reaches."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import conformance.kernels
from conformance.mutation.forked import told
from conformance.mutation.functions import device_function, reachable
from conformance.mutation.line_coverage import LineCoverage, unreached
from conformance.mutation.mutants import NotPlantable, mutants_of, plant

#: Stands for a module of device code: ``Jit`` is made as Triton makes its objects.
MODULE = '''
class Jit:
    def __init__(self, fn, kind):
        self.fn, self.kind, self.calls = fn, kind, self.fresh

    def fresh(self):
        return self

    def run(self):
        pass

    def __call__(self, *values):
        return self.fn(*values)


def jit(fn):
    return Jit(fn, kind="jit")


@jit
def capped(x):
    """At most 10."""
    y = x * 2
    if y > 10:
        y = 10
    return y


@jit
def twice(x):
    return capped(capped(x))


@jit
def alone(x):
    return x


def inner():
    @jit
    def nested(x):
        return x
    return nested
'''


@pytest.fixture
def device(tmp_path):
    """The module, imported."""
    path = tmp_path / "device_code.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("device_code", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["device_code"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["device_code"]


def test_functions_are_found_by_what_they_call(device):
    assert [function.name for function in reachable([device.twice])] == ["device_code.capped", "device_code.twice"]
    assert [function.name for function in reachable([device.alone])] == ["device_code.alone"]
    assert device_function(device.capped) is device_function(device.capped)


def test_a_fault_stands_where_the_function_stood(device):
    function = device_function(device.capped)
    mutant = next(each for each in mutants_of(function) if "    y = (x + 2)" in each.source.split("\n"))
    held = device.capped

    def faulty(tell):
        plant(mutant)
        tell((device.twice(1), held is device.capped, held.kind, held.calls() is held, held.fn.__module__))

    assert list(told(faulty, 10.0)) == [(5, True, "jit", True, "device_code")]
    assert device.twice(1) == 4


def test_a_nested_function_cannot_be_changed(device):
    function = device_function(device.inner())
    with pytest.raises(NotPlantable, match="nested is defined inside another function"):
        plant(next(mutants_of(function), None) or _mutant(function))


def _mutant(function):
    from conformance.mutation.mutants import Mutant

    return Mutant(function, "body0", "statement", 1, (1, 1), function.source)


def test_lines_that_ran_are_told(device):
    def runs(tell):
        coverage = LineCoverage(reachable([device.twice]))
        device.twice(1)
        tell(coverage.lines())
        coverage.forget()
        device.twice(6)
        tell(coverage.lines())

    small, large = told(runs, 10.0)
    assert small == {"device_code.twice": [3], "device_code.capped": [3, 4, 5, 7]}
    functions = reachable([device.twice])
    assert unreached(functions, [small]) == {"device_code.capped:body2.body0:unreached:1": "y = 10"}
    assert unreached(functions, [small, large]) == {}
    assert large == {"device_code.twice": [3], "device_code.capped": [3, 4, 5, 6, 7]}


def test_every_device_function_has_a_caller():
    """``conformance mutants --unreached`` names the statements of those that a kernel reaches."""
    kernels = "\n".join(path.read_text() for path in Path(conformance.kernels.__path__[0]).rglob("*.py"))
    names = re.findall(r"^@triton\.jit\ndef (\w+)\(", kernels, re.MULTILINE)
    assert len(names) > 80
    assert [name for name in names if len(re.findall(rf"\b{name}\b", kernels)) == 1] == []


def test_a_caller_that_was_hashed_is_another_kernel_with_the_fault():
    """Else Triton's cache would hand out the kernel without it."""
    from conformance.kernels.device.pointer import gemm_integer
    from conformance.kernels.device.tiles import store_pointers

    before = gemm_integer.cache_key
    function = next(each for each in reachable([gemm_integer]) if each.handle is store_pointers)
    mutant = next(mutants_of(function))

    def changed(tell):
        plant(mutant)
        tell(gemm_integer.cache_key)

    assert next(told(changed, 60.0)) != before == gemm_integer.cache_key
