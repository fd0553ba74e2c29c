"""A new target needs only its row, or an entry point."""

from __future__ import annotations

import importlib.metadata
import subprocess
import types
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from conformance import targets
from conformance.cases.generated_cases import generated_for
from conformance.execution.compile.kernel_figures import KernelResources
from conformance.gate.mustpass.profiles import read_profiles
from conformance.judging import sweep
from conformance.kernels.catalogue import get
from conformance.targets import KIB, Architecture, Target, claims, compile_targets, find
from tests.forked_python import executable

ROW = Architecture("cuda", 110, "made up", 227 * KIB, 20, claims=("nvidia-blackwell",), inductor=True)


@dataclass(frozen=True)
class FromOutside(Target):
    """As a vendor's package would define it."""

    @property
    def architecture(self) -> Architecture:
        return ROW


OUTSIDE = FromOutside("cuda", 110, 32, name="made up", multiprocessors=20)


@pytest.fixture(params=["a row", "an entry point"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    caches = (targets.known_targets, targets._extension_targets)
    if request.param == "a row":
        monkeypatch.setattr(targets, "KNOWN", (*targets.KNOWN, ROW))
    else:
        entry = types.SimpleNamespace(value="vendor:targets", load=lambda: lambda: OUTSIDE)
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    for cache in caches:
        cache.cache_clear()
    yield find("sm_110")
    for cache in caches:
        cache.cache_clear()


def test_it_is_a_target_that_inductor_generates_code_for(target: Target) -> None:
    assert target in compile_targets()
    assert target.capability("tcgen05").available
    assert target.limits.multiprocessors == 20
    assert target in generated_for(compile_targets(), all_of_them=False)


def test_its_profiles_are_claimed(target: Target) -> None:
    assert "tma" in {profile.id for profile in read_profiles(own_claims=claims()).claimed(target.id)}


def test_its_arithmetic_is_assumed(target: Target) -> None:
    mm = get("mm")
    (config, *_) = mm.configs
    plan = mm.plan(mm.example("bf16", config, "ragged"), config, target)
    assert mm.contract(plan, "device").accumulator.assumed


def test_its_spills_are_no_fault_and_that_is_said(target: Target) -> None:
    mm = get("mm")
    artefact = types.SimpleNamespace(resources=KernelResources(200, 48, "bytes", 1024, 0, 256, "cubin"))
    with pytest.warns(sweep.SpillsNotDeclared, match="not declared for target sm_110"):
        verdict = sweep.spill_verdict(mm, "bf16", mm.configs[0], target, artefact)  # type: ignore[arg-type]
    assert verdict.passed
    assert "not declared for target sm_110" in verdict.text


def test_the_quick_tier_has_cases_on_it() -> None:
    script = (
        "import sys; from conformance import cli, targets\n"
        f"targets.KNOWN += (targets.Architecture('cuda', 110, 'made up', {ROW.shared_memory}, 20, inductor=True),)\n"
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    options = ["list", "--tier", "quick", "--no-gpu", "--suite", "transposition", "--suite", "inductor_gemm"]
    done = subprocess.run([executable(), "-c", script, *options], capture_output=True, text=True, check=True)
    cases = [line for line in done.stdout.splitlines() if line.rstrip().endswith("sm_110]")]
    assert {case.partition("::")[0].rpartition("/")[2] for case in cases} == {
        "test_transposition.py",
        "test_inductor_gemm.py",
    }, done.stdout[-2000:]
