"""A third-party kernel needs the base of its family alone: every suite has a table for it, and it takes examples."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

from conformance import suites
from conformance.cases import config_space
from conformance.cases.case_table import Selection, cases_of
from conformance.cases.kernel_answers import takers
from conformance.cases.scenarios import Scenario, named, where
from conformance.cases.unrolled import UNROLLED
from conformance.kernels.catalogue import catalogue
from conformance.kernels.families.attention import AttentionFamily
from conformance.kernels.families.conv import ConvFamily
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.families.grouped import GroupedFamily
from conformance.targets import compile_targets
from tests.cases.case_rows import rows

FAMILIES = {
    "mm": GemmFamily,
    "attention": AttentionFamily,
    "attention_decode": AttentionFamily,
    "conv2d": ConvFamily,
    "grouped_mm": GroupedFamily,
}


def vendor_kernel(base, ours):
    """A kernel with no base but the family's, which does what the kernel ``ours`` of the catalogue does."""
    kernel = catalogue()[ours]

    def asked(method):
        return lambda self, plan, *rest: getattr(kernel, method)(dataclasses.replace(plan, kernel=ours), *rest)

    members = {name: asked(name) for name in ("refusal", "grid", "launch", "contract", "features")}
    members |= {name: getattr(kernel, name) for name in ("operations", "dtypes", "configs")}
    members |= {"operation": kernel.operation} if base is AttentionFamily else {}
    return type("Vendor", (base,), {**members, "name": f"vendor_{ours}", "table": None})()


@pytest.fixture(params=FAMILIES)
def vendor(request, monkeypatch):
    kernel = vendor_kernel(FAMILIES[request.param], request.param)
    monkeypatch.setitem(catalogue(), kernel.name, kernel)
    return kernel


def suite_tests():
    modules = [
        importlib.import_module(f"{suites.__name__}.{module.name}") for module in pkgutil.iter_modules(suites.__path__)
    ]
    return [test for module in modules for name, test in vars(module).items() if name.startswith("test_")]


@pytest.mark.parametrize("tier", ["quick", "default"])
def test_every_suite_has_a_table(vendor, tier):
    selection = Selection(compile_targets()[:3], tier, kernels=(vendor.name,))
    counts = {}
    for test in suite_tests():
        if cases_of(test) is not None:
            arguments = list(inspect.signature(test).parameters)
            table = cases_of(test).table(selection, arguments)
            counts[test.__name__] = sum(case.startswith(vendor.name) for case in table.rows)
    assert counts["test_config_space"] > 0
    assert sum(count > 0 for count in counts.values()) >= 3, counts


def test_the_quick_tier_has_a_third_party_kernel_in_each_test_and_all_that_its_configs_show(vendor):
    """Other kernels stand for none of a package, and no budget ends its sweep."""
    target = compile_targets()[0]
    others = Scenario(where(family=vendor.family), {}, configs=1, quick=named("mm_chained"), name="test_x.test_others")
    assert rows(others, vendor, (target,), "quick")
    sweep = Scenario(where(family=vendor.family), {}, every_config=True, name="test_x.test_sweep")
    usable = {
        (dtype, config)
        for dtype in set(vendor.dtype_names()) - {UNROLLED}  # fp32 has only what compiles soon
        for config in vendor.configs
        if takers(vendor, dtype, config, (target,))
    }
    shown = {(dtype, config) for _, dtype, config in rows(sweep, vendor, (target,), "quick")}
    assert {dtype for dtype, _ in usable} <= {dtype for dtype, _ in shown}
    assert traits_of(usable) <= traits_of(shown)


def traits_of(rows):
    """The extents, stages, warps and forms of the configs of rows of a dtype and a config."""
    return {trait for _, config in rows for trait in config_space.traits(config)}


def test_examples_are_taken(vendor):
    (target,) = compile_targets()[:1]
    config = next(c for c in vendor.configs if vendor.example_refusal("bf16", c, target) is None)
    plan = vendor.plan(vendor.example("bf16", config), config, target, vendor.example_variant())
    assert plan.kernel == vendor.name
    assert plan.grid
