"""The quick tier's sample: pairs of values, on targets that share them, and the matrix units of every target."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import itertools
import math
from collections import Counter
from pathlib import Path

import pytest

from conformance import codegen_checks, suites
from conformance.cases import scenarios
from conformance.cases.case_table import Selection, cases_of
from conformance.cases.config_space import covering_sample
from conformance.cases.cover import cover
from conformance.cases.scenarios import TURNS, Scenario, every_kernel, ragged, rows, where
from conformance.codegen_checks import MFMA, MMA, TCGEN05, WGMMA, WMMA
from conformance.execution.compile.compilation import CompilePool, CompileRequest
from conformance.gate.mustpass.profiles import cases_by_kernel, read_profiles
from conformance.kernels.catalogue import catalogue, get, own_kernels
from conformance.targets import claims, compile_targets, find
from tests.planted.cases import MM, Edit, Fault
from tests.planted.planted_kernels import planted

TARGETS = compile_targets()
HOPPER = TARGETS[0]
SCENE = Scenario(where(any_order=True, persistent=False), {"order": "abcd", "static": [False, True]})
CORE = [name for name, kernel in catalogue().items() if SCENE.kernels(kernel) and kernel.core]
BEYOND = [name for name, kernel in catalogue().items() if SCENE.kernels(kernel) and not kernel.core]
#: A test with three parameters of its own.
THREE = Scenario(
    where(name="mm"), {"order": "abcd", "static": [False, True], "store": [False, True]}, dtypes=("bf16",), configs=1
)


def quick(scene, name, targets=TARGETS):
    """(target, dtype, config, *parameters) of each of a kernel's cases."""
    return rows(scene, get(name), targets, "quick")


# Targets


def faults():
    """What is wrong with the way in which :data:`SCENE` is covered."""
    cases = {name: quick(SCENE, name) for name in CORE}
    gaps = []
    for name in CORE:
        shown = [tuple(combination) for _, _, _, *combination in cases[name]]
        gaps += [f"{name} shows {len(set(shown))} of 8 combinations"] if len(set(shown)) != 8 else []
        targets = Counter(target for target, *_ in cases[name])
        gaps += [f"{name} uses {len(targets)} targets"] if len(targets) < len(TARGETS) - 2 else []
        dtypes = {dtype for _, dtype, *_ in cases[name]}
        gaps += [f"{name} has dtypes {dtypes}"] if dtypes != set(get(name).dtype_names()) else []
        configs = {config for _, _, config, *_ in cases[name]}
        gaps += [f"{name} has {len(configs)} configs"] if configs != set(covering_sample(get(name).configs)) else []
        pairs = {(dtype, static) for _, dtype, _, _, static in cases[name]}
        gaps += [f"{name} keeps dtype and static in step"] if len(pairs) < 2 * len(dtypes) - 1 else []
    return gaps


def test_each_value_appears_on_targets_in_turn():
    assert len(CORE) == 2
    assert faults() == []


def unpaired():
    """Pairs of values of two parameters of :data:`THREE` that no case has."""
    cases = [dict(zip(THREE.parameters, own, strict=True)) for _, _, _, *own in quick(THREE, "mm")]
    return {
        (first, one, second, other)
        for first, second in itertools.combinations(THREE.parameters, 2)
        for one, other in itertools.product(THREE.parameters[first], THREE.parameters[second])
        if not any(case[first] == one and case[second] == other for case in cases)
    }


def test_every_two_values_of_two_parameters_appear_together(monkeypatch):
    assert unpaired() == set()
    assert len(quick(THREE, "mm")) == 8
    monkeypatch.setattr(scenarios, "cover", lambda *args, **options: cover(*args, **{**options, "pairs": ()}))
    assert unpaired()


@pytest.mark.parametrize(
    "chosen",
    [
        lambda rows: rows[1:],
        lambda rows: [(*row[:-1], rows[0][-1]) for row in rows],
        lambda rows: [row for row in rows if row[2] != "fp16"],
    ],
    ids=["a row is lost", "one target only", "a dtype is lost"],
)
def test_another_choice_is_seen(chosen, monkeypatch):
    monkeypatch.setattr(scenarios, "cover", lambda *args, **options: chosen(cover(*args, **options)))
    assert faults()


def test_one_target_alone_has_every_combination_with_every_kernel():
    for name in CORE:
        assert {tuple(combination) for _, _, _, *combination in quick(SCENE, name, (HOPPER,))} == {
            (order, static) for order in "abcd" for static in (False, True)
        }


@pytest.mark.parametrize("name", ["addmm", "addmm_persistent_tma"])
def test_a_kernel_with_the_loop_of_another_has_one_case_where_that_one_shows_it(name):
    assert get(get(name).same_loop_as).core
    both, alone = (where(operation=operations) for operations in ({"mm", "addmm"}, {"addmm"}))
    for kernels, any_epilogue, cases in ((both, True, 1), (both, False, 4), (alone, True, 4)):
        scene = Scenario(kernels, {"order": "abcd"}, dtypes=("bf16",), configs=1, any_epilogue=any_epilogue)
        assert len(quick(scene, name)) == cases
    assert len(quick(Scenario(every_kernel, {}, every_config=True, any_epilogue=True), name)) > 1


def test_a_kernel_beyond_the_core_is_on_one_target_unless_every_row_is_asked_for():
    names = [
        name for name, kernel in catalogue().items() if not kernel.core and SCENE.kernels(kernel) and quick(SCENE, name)
    ]
    assert names
    assert all(len(quick(SCENE, name)) == 1 for name in names)
    assert len({target for name in names for target, *_ in quick(SCENE, name)}) > 1
    for name in names:
        whole = dataclasses.replace(SCENE, every_row=where(name=name))
        assert {order for _, _, _, order, *_ in quick(whole, name)} == set("abcd")


def taking_turns(number):
    """Of kernels beyond the core those with a case in the test with this ``number`` of a file."""
    scene = dataclasses.replace(SCENE, taking_turns=True, number=number)
    assert all(quick(scene, name) == quick(dataclasses.replace(SCENE, number=number), name) for name in CORE)
    return [name for name in BEYOND if quick(scene, name)]


def test_kernels_beyond_the_core_take_turns():
    every = [name for name in BEYOND if quick(SCENE, name)]
    parts = [taking_turns(number) for number in range(TURNS)]
    assert max(map(len, parts)) <= math.ceil(len(every) / TURNS) < len(every)
    assert sorted(itertools.chain.from_iterable(parts)) == sorted(every)
    targets = {quick(dataclasses.replace(SCENE, taking_turns=True), name)[0][0] for name in parts[0]}
    assert len(targets) == len(parts[0])


def swept():
    """By kernel beyond the core, the sweep's rows in the quick tier."""
    sweep = cases_of(importlib.import_module("conformance.suites.test_config_space").test_config_space)
    names = [name for name, kernel in catalogue().items() if not kernel.core and kernel.offered]
    return sweep, {name: quick(sweep, name) for name in names}


def lost():
    """The configs of the sweep that kernels beyond the core have no case of, by kernel."""
    sweep, chosen = swept()
    listed = {name: {row[1] for row in scenarios._taken(sweep, get(name), TARGETS, "quick")} for name in chosen}
    missing = {name: listed[name] - {config for _, _, config, _ in rows} for name, rows in chosen.items()}
    return {name: configs for name, configs in missing.items() if configs or not listed[name]}


def test_no_kernel_is_lost(monkeypatch):
    assert lost() == {}
    monkeypatch.setattr(scenarios, "cover", lambda *args, **options: cover(*args, **options)[1:])
    assert lost().keys() >= {"mm_gather", "bmm"}


def test_dtypes_and_shapes_take_turns_in_the_sweep_beyond_the_core():
    _, chosen = swept()
    assert all(len(rows) == len({config for _, _, config, _ in rows}) for rows in chosen.values())
    rows = list(itertools.chain.from_iterable(chosen.values()))
    shapes = [shape for *_, shape in rows]
    assert set(shapes) >= {"several-tiles", "smaller-than-a-tile"}
    assert all(shapes.count(shape) > len(rows) // 3 for shape in ("several-tiles", "smaller-than-a-tile"))
    mains = [dtype == get(name).dtype_names()[0] for name, rows in chosen.items() for _, dtype, *_ in rows]
    assert len(rows) // 6 < sum(mains) < len(rows) // 2
    assert {scenarios._size(dtype) for _, dtype, *_ in rows} >= {1, 2, 4}


@pytest.mark.parametrize("ours", ["attention", "conv2d"])
def test_the_sweep_has_every_dtype_and_both_shapes_of_a_kernel_from_elsewhere(ours, monkeypatch):
    theirs = copy.copy(get(ours))
    theirs.name = f"vendor_{ours}"
    sweep, _ = swept()

    def shown():
        rows = scenarios.rows(sweep, theirs, TARGETS, "quick")
        return {dtype for _, dtype, *_ in rows}, {shape for *_, shape in rows}, {config for _, _, config, _ in rows}

    dtypes, shapes, configs = shown()
    assert not theirs.core
    assert dtypes == set(theirs.dtype_names())
    assert shapes == {"several-tiles", "smaller-than-a-tile"}
    assert len(configs) > 1
    monkeypatch.setitem(own_kernels(), theirs.name, theirs)  # as one of ours it has fewer rows
    assert sum(map(len, shown())) < sum(map(len, (dtypes, shapes, configs)))


def without_case(scenes):
    """(test, kernel, tier) of each kernel that a test selects, and takes with some dtype, config and values, of which a
    sampled tier has no case."""
    lacking = []
    for title, scene in scenes:
        names = [name for name, kernel in catalogue().items() if scene.kernels(kernel)]
        for name, tier in itertools.product(names, ("quick", "default")):
            values = [scenarios._values(values, get(name), tier) for values in scene.parameters.values()]
            asked = all(values) and scenarios._taken(scene.in_tier(tier), get(name), TARGETS, tier)
            in_turn = tier == "quick" and scene.taking_turns and not get(name).core
            if asked and not in_turn and not rows(scene, get(name), TARGETS, tier):
                lacking.append((title, name, tier))
    return lacking


def test_each_test_has_its_kernels_in_the_sampled_tiers():
    scenes = []
    for file in sorted(Path(suites.__path__[0]).glob("test_*.py")):
        tests = vars(importlib.import_module(f"conformance.suites.{file.stem}"))
        scenes += [(name, cases_of(test)) for name, test in tests.items() if inspect.isfunction(test)]
    scenes = [(name, scene) for name, scene in scenes if isinstance(scene, Scenario) and not scene.every_config]
    assert len(scenes) > 80
    assert without_case(scenes) == []
    taken = Scenario(where(name="bmm"), {scenarios.SIZE: ["small"]})  # a name that the cover has for itself
    assert without_case([("taken", taken)]) == [("taken", "bmm", "default")]


@pytest.mark.parametrize(("name", "dtypes"), [("mm", ("fp16", "bf16")), ("bmm", ("bf16",)), ("scaled_mm", ("e5m2",))])
def test_every_target_appears_where_that_is_asked_for(name, dtypes):
    scene = Scenario(where(name=name), {}, dtypes=dtypes, configs=1, every_target=True)
    assert sorted(target.id for target, *_ in quick(scene, name)) == sorted(target.id for target in TARGETS)
    assert len(quick(Scenario(where(name=name), {}, configs=1), name)) < len(TARGETS)


# Claims


def quick_cases():
    """The ids of the quick tier's scenarios, as pytest would make them."""
    ids = []
    for file in sorted(Path(suites.__path__[0]).glob("test_*.py")):
        module = importlib.import_module(f"conformance.suites.{file.stem}")
        for name, test in vars(module).items():
            cases = cases_of(test) if inspect.isfunction(test) else None
            if cases is not None:
                table = cases.table(Selection(TARGETS, "quick"), list(inspect.signature(test).parameters))
                ids += [f"{file.name}::{name}[{case}]" for case in table.rows]
    return ids


def unproven(ids):
    """(target, profile) of the claims of which no case is in ``ids``, of targets that can be compiled for."""
    profiles = read_profiles(own_claims=claims())
    claiming = [target.id for target in TARGETS if target.id in profiles.claims]
    by_target = {target: cases_by_kernel(case for case in ids if case.endswith(f"-{target}]")) for target in claiming}
    return [
        (target, profile.id)
        for target in claiming
        for profile in profiles.claimed(target)
        if not profile.chosen(by_target[target])
    ]


def test_the_quick_tier_has_a_case_of_every_claim():
    ids = quick_cases()
    assert len(ids) > 800
    assert {target.id for target in TARGETS if sum(case.endswith(f"-{target.id}]") for case in ids) < 20} == set()
    assert unproven(ids) == []
    assert unproven([case for case in ids if "grouped_mm" not in case]) == [("sm_90", "grouped")]


# Matrix units

UNITS = {MMA, WGMMA, TCGEN05, MFMA, WMMA}


@pytest.fixture
def matrix_units():
    """The scenario of the suite."""
    return cases_of(importlib.import_module("conformance.suites.test_matrix_units").test_matrix_units)


def test_the_quick_sample_shows_the_matrix_unit_of_every_target_that_claims_it(matrix_units):
    profiles = read_profiles(own_claims=claims())
    (claim,) = [profile for profile in profiles.profiles.values() if profile.id == "tensor-core"]
    claiming = {target.id for target in TARGETS if claim in profiles.claimed(target.id)}
    shown = {}
    for target, dtype, config in quick(matrix_units, "mm"):
        plan = get("mm").plan(get("mm").problem(dtype, *ragged(get("mm"), config, dtype, aligned=True)), config, target)
        assert dtype in claim.dtypes
        shown[target.id] = {f"codegen/requires/{unit.name}" for unit in get("mm").features(plan).required & UNITS}
    assert claiming <= set(shown)
    assert all(len(checks) == 1 and checks <= set(claim.evidence) for checks in shown.values())


WITHOUT = Fault(
    "sums_of_products",
    Edit(
        "device/tiles.py",
        "acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE)\n        a_tile",
        # without the addition the compiler would see the product of two matrices in it
        "acc += tl.sum(a.to(tl.float32)[:, :, None] * b.to(tl.float32)[None, :, :] + 0.0, 1)\n        a_tile",
    ),
    MM,
)


@pytest.fixture(scope="module")
def idle():
    """The kernel with the fault, and a pool whose process can import it."""
    with planted(WITHOUT) as kernel, CompilePool(1, 240) as pool:
        yield kernel, pool


@pytest.mark.parametrize("target", ["sm_90", "gfx950", "gfx1201", "gfx1250"])
def test_a_kernel_that_leaves_the_matrix_unit_idle_is_caught(matrix_units, idle, target):
    """The products are summed without it: the numbers would be right."""
    (row,) = [row for row in quick(matrix_units, "mm") if row[0].id == target]
    _, dtype, config = row
    kernel, pool = idle
    failed = []
    for package, known in (("conformance.kernels", get("mm")), (f"planted_{WITHOUT.name}", kernel)):
        plan = known.plan(known.problem(dtype, *ragged(known, config, dtype, aligned=True)), config, find(target))
        request = CompileRequest(f"{package}.catalogue:meta_launch", plan, find(target))
        result = pool.submit(request).result()
        assert result.artefact is not None, result.error
        features = known.features(plan)
        verdicts = codegen_checks.check(result.artefact, find(target), features.required, features.forbidden)
        failed.append([verdict.feature for verdict in verdicts if not verdict.passed])
    assert failed[0] == []
    assert len(failed[1]) == 1
    assert failed[1][0] in UNITS
