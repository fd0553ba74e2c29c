"""The quick tier: budgets by weight, one cover, one target a row; nothing else moves a case."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
from collections import Counter
from pathlib import Path

import pytest

from conformance import codegen_checks, suites, targets
from conformance.cases import scenarios, tier_rows
from conformance.cases.case_table import Selection, cases_of
from conformance.cases.cover import cover
from conformance.cases.lookup import case_ids
from conformance.cases.scenarios import Scenario, every_kernel, named, ragged, where
from conformance.codegen_checks import MFMA, MMA, TCGEN05, WGMMA, WMMA
from conformance.execution.compile.compilation import CompilePool, CompileRequest
from conformance.gate.mustpass.profiles import cases_by_kernel, read_profiles
from conformance.kernels.catalogue import catalogue, get
from conformance.targets import Target, claims, compile_targets, find, sharing_targets
from conformance.user_files.case_list import Ids
from conformance.user_files.expected_failures import read_expected_failures
from tests.cases.case_rows import rows
from tests.planted.cases import MM, Edit, Fault
from tests.planted.planted_kernels import planted

TARGETS = compile_targets()
OWN = {"order": "abcd", "static": [False, True]}
SCENE = Scenario(where(any_order=True, persistent=False), OWN, name="test_x.test_scene")
NAMES = [name for name, kernel in catalogue().items() if SCENE.kernels(kernel) and kernel.offered]
HEAVY, MIDDLE, LIGHT = ([name for name in NAMES if get(name).weight == weight] for weight in (3, 2, 1))
#: A further target, which is not among those that share the rows.
FURTHER = Target("cuda", 86, 32, name="a board")


def quick(scene, name, targets=sharing_targets()):  # noqa: B008
    """(target, dtype, config, *parameters) of each of a kernel's cases."""
    return rows(scene, get(name), targets, "quick")


# Budgets


def gaps(name, scene):
    """The values of a kernel's dtype, and the combinations of the test's own parameters, that the quick tier lacks."""
    cases = [dict(zip(("target", "dtype", "config", *OWN), row, strict=True)) for row in quick(scene, name)]
    required = {(dtype,) for dtype in scene.dtypes_of(get(name))}, set(itertools.product(*OWN.values()))
    shown = {(case["dtype"],) for case in cases}, {tuple(case[one] for one in OWN) for case in cases}
    return [every - some for every, some in zip(required, shown, strict=True) if every - some]


def test_a_kernel_of_weight_3_shows_every_two_values_together(monkeypatch):
    assert HEAVY
    plain = dataclasses.replace(SCENE, dtypes=("bf16",), configs=1)
    assert [name for scene in (SCENE, plain) for name in HEAVY if gaps(name, scene)] == []
    monkeypatch.setattr(tier_rows, "cover", lambda *args, **options: cover(*args, **{**options, "pairs": ()}))
    assert [name for name in HEAVY if gaps(name, plain)] == HEAVY
    monkeypatch.setattr(tier_rows, "cover", lambda *args, **options: cover(*args, **options)[:3])
    assert [name for name in HEAVY if gaps(name, SCENE)] == HEAVY


def test_another_kernel_has_as_many_rows_as_its_budget():
    assert MIDDLE
    assert {len(quick(SCENE, name)) for name in MIDDLE} == {tier_rows.ROWS[2]}
    assert {len(quick(SCENE, name)) for name in LIGHT} == {tier_rows.ROWS[1]} == {1}
    swept = dataclasses.replace(SCENE, every_config=True)
    assert all(len(quick(swept, name)) <= tier_rows.SWEPT_ROWS[get(name).weight] for name in NAMES)


def test_kernels_of_weight_1_begin_with_different_values():
    assert len({(order, static) for name in LIGHT for *_, order, static in quick(SCENE, name)}) > 4
    others = [dataclasses.replace(SCENE, name=f"test_x.test_{number}") for number in range(8)]
    assert len({quick(scene, LIGHT[0])[0][1:] for scene in others}) > 4


@pytest.mark.parametrize("name", [LIGHT[0], LIGHT[-1]])
def test_every_row_shows_every_value(name):
    chosen = quick(dataclasses.replace(SCENE, every_row=where(name=name)), name)
    assert {order for *_, order, _ in chosen} == set("abcd")


def test_a_test_names_the_kernels_of_weight_1_that_it_has():
    scene = dataclasses.replace(SCENE, quick=named(LIGHT[1]))
    assert [name for name in NAMES if quick(scene, name)] == [
        name for name in NAMES if name not in LIGHT or name == LIGHT[1]
    ]


def test_each_name_that_a_test_has_is_that_of_a_kernel():
    for test, scene in scenes_of_suites():
        chosen = [name for name, kernel in catalogue().items() if kernel.weight == 1 and scene.quick(kernel)]
        assert chosen, test


def test_each_row_is_on_one_target_and_many_are_used():
    cases = [row for name in NAMES for row in quick(SCENE, name)]
    counts = Counter(tuple(own) for _, *own in ((name, *row[1:]) for name in NAMES for row in quick(SCENE, name)))
    assert set(counts.values()) == {1}
    assert len({row[0] for row in cases}) >= len(sharing_targets()) - 1


# What moves no case


SOME = ("transposition", "matrix_units", "inductor_gemm")


def ids(targets=TARGETS, kernels=(), tier="quick", suites=SOME, asked=False):
    return set(case_ids(Selection(tuple(targets), tier, kernels, asked_for_targets=asked), suites))


@pytest.mark.parametrize("tier", ["quick", "default"])
def test_a_narrowed_run_has_a_part_of_the_cases(tier):
    whole = ids(tier=tier)
    for target in TARGETS:
        alone = ids([target], tier=tier, suites=("transposition", "matrix_units"), asked=True)
        assert alone == {case for case in whole if case.endswith(f"-{target.id}]") and "inductor" not in case}
    assert ids([find("sm_90")], tier=tier, asked=True) <= whole
    for name in ("mm", "mm_chained"):
        assert ids(kernels=(name,), tier=tier) == {case for case in whole if f"[{name}-" in case}
    assert ids(tier=tier, suites=SOME[:1]) == {case for case in whole if case.startswith(f"test_{SOME[0]}.py")}


@pytest.mark.parametrize("left_out", sorted({kernel.family for kernel in catalogue().values()}))
def test_a_family_moves_no_case_of_another(left_out, monkeypatch):
    chosen = ("config_space", "random_problems", "strided_operands", "alignment")
    others = {name: kernel for name, kernel in catalogue().items() if kernel.family != left_out}
    kept = tuple(
        name for name in others if name in ("mm", "addmm", "bmm", "int_mm", "attention", "conv2d", "grouped_mm")
    )
    whole = ids(kernels=kept, suites=chosen)
    monkeypatch.setattr(scenarios, "catalogue", lambda: others)
    assert ids(kernels=kept, suites=chosen) == whole


@pytest.mark.parametrize("left_out", catalogue())
def test_a_kernel_moves_no_case_of_another(left_out, monkeypatch):
    scene = Scenario(every_kernel, {"letter": "abc"}, configs=1, name="test_x.test_letters")
    arguments, selection = ["kernel", "target", "dtype", "config", "letter"], Selection(TARGETS, "quick")
    neighbours = {name: get(name) for name in ("mm", left_out, "bmm", "attention_packed")}
    whole = scene_table(scene, neighbours, monkeypatch, selection, arguments)
    del neighbours[left_out]
    rest = scene_table(scene, neighbours, monkeypatch, selection, arguments)
    assert rest == [case for case in whole if case.partition("-")[0] in neighbours]


def scene_table(scene, kernels, monkeypatch, selection, arguments):
    monkeypatch.setattr(scenarios, "catalogue", lambda: kernels)
    return list(scene.table(selection, arguments).rows)


def test_a_further_target_has_rows_of_its_own_and_moves_none():
    assert FURTHER not in sharing_targets()
    for name in ("mm", LIGHT[0]):
        before, after = quick(SCENE, name), quick(SCENE, name, (*sharing_targets(), FURTHER))
        assert [row for row in after if row[0] != FURTHER] == before
        assert gaps(name, SCENE) == [] or len(before) == 1
        assert [row for row in after if row[0] == FURTHER]


def test_a_built_in_target_that_shares_no_rows_has_some_and_moves_none(monkeypatch):
    """It has the rows for which its digest is larger than those of all targets that share."""
    new = find("sm_120")
    sharing = tuple(target for target in sharing_targets() if target != new)
    monkeypatch.setattr(targets, "SHARING", tuple(target.id for target in sharing))
    before = [row for name in HEAVY for row in quick(SCENE, name, sharing)]
    after = [row for name in HEAVY for row in quick(SCENE, name, (*sharing, new))]
    assert [row for row in after if row[0] != new] == before
    monkeypatch.setattr(tier_rows, "known_targets", tuple)
    own = [row for name in HEAVY for row in quick(SCENE, name, (new,))]
    assert 0 < len(after) - len(before) < len(own) / 3


@pytest.mark.parametrize("left_out", targets.SHARING)
def test_a_target_that_goes_leaves_its_rows_to_others(left_out, monkeypatch):
    before = {name: quick(SCENE, name) for name in (HEAVY[0], *LIGHT[:3])}
    monkeypatch.setattr(targets, "SHARING", tuple(name for name in targets.SHARING if name != left_out))
    rest = tuple(target for target in TARGETS if target.id != left_out)
    for name, cases in before.items():
        assert {row for row in cases if row[0].id != left_out} <= set(quick(SCENE, name, rest))


def test_targets_that_took_turns_would_be_seen(monkeypatch):
    """The choice of a target by its place in the list, and not by a digest."""
    places = {target.id: str(place) for place, target in enumerate(TARGETS)}
    monkeypatch.setattr(
        tier_rows, "digest", lambda *words: (len("".join(words[:-1])) + int(places.get(words[-1], 0))) % 7
    )
    before = quick(SCENE, HEAVY[0])
    places |= {target.id: str(place) for place, target in enumerate(TARGETS[1:])}
    monkeypatch.setattr(targets, "SHARING", targets.SHARING[1:])
    assert not {row for row in before if row[0] != TARGETS[0]} <= set(quick(SCENE, HEAVY[0], TARGETS[1:]))


# No kernel is lost


def scenes_of_suites():
    """The scenarios of all suites by name."""
    for file in sorted(Path(suites.__path__[0]).glob("test_*.py")):
        for name, test in vars(importlib.import_module(f"conformance.suites.{file.stem}")).items():
            if inspect.isfunction(test) and isinstance(cases_of(test), Scenario):
                yield f"{file.stem}.{name}", cases_of(test)


def without_case(scenes):
    """Returns (test, kernel, tier) of each kernel of which a sampled tier has no case. The test must select it, and it
    must take some dtype, config and values."""
    lacking = []
    for title, scene in scenes:
        names = [name for name, kernel in catalogue().items() if scene.kernels(kernel)]
        for name, tier in itertools.product(names, ("quick", "default")):
            kernel = get(name)
            values = [scene.values(parameter, kernel, tier) for parameter in scene.parameters]
            has_rows = all(values) and tier_rows._taken(scene, kernel, TARGETS, tier)
            stands_for = tier == "quick" and kernel.weight == 1 and not scene.quick(kernel)
            if has_rows and not stands_for and not rows(scene, kernel, TARGETS, tier):
                lacking.append((title, name, tier))
    return lacking


def test_each_test_has_its_kernels_in_the_sampled_tiers():
    scenes = list(scenes_of_suites())
    assert len(scenes) > 80
    assert without_case(scenes) == []
    with_own_size = Scenario(where(name="bmm"), {tier_rows.SIZE: ["small"]})  # a name that the cover has for itself
    assert without_case([("taken", with_own_size)]) == [("taken", "bmm", "default")]


@pytest.mark.parametrize(("name", "dtypes"), [("mm", ("fp16", "bf16")), ("bmm", ("bf16",)), ("scaled_mm", ("e5m2",))])
def test_every_target_appears_where_that_is_asked_for(name, dtypes):
    scene = Scenario(where(name=name), {}, dtypes=dtypes, configs=1, every_target=True)
    assert sorted(target.id for target, *_ in quick(scene, name, TARGETS)) == sorted(target.id for target in TARGETS)
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


# Expected failures

#: Expected failures, of a run without a device, that have no case in the quick tier. A longer list loses defects.
MOST_WITHOUT_CASE = 6


def test_expected_failures_have_quick_cases():
    ids = Ids(quick_cases())
    entries = [entry for entry in read_expected_failures().entries if entry.stack.get("device", "none") == "none"]
    without = [entry.id for entry in entries if not any(ids.matching(pattern) for pattern in entry.cases)]
    assert len(without) <= MOST_WITHOUT_CASE, without


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
    for target, dtype, config in quick(matrix_units, "mm", TARGETS):
        plan = get("mm").plan(get("mm").problem(dtype, *ragged(get("mm"), config, dtype, aligned=True)), config, target)
        assert dtype in claim.dtypes
        shown[target.id] = {f"codegen/requires/{unit.name}" for unit in get("mm").features(plan).required & UNITS}
    assert claiming <= set(shown)
    assert all(len(checks) == 1 and checks <= set(claim.evidence) for checks in shown.values())


WITHOUT = Fault(
    "sums_of_products",
    Edit(
        "device/tiles.py::swizzle,split_columns",
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
    (row,) = [row for row in quick(matrix_units, "mm", TARGETS) if row[0].id == target]
    _, dtype, config = row
    kernel, pool = idle
    failed = []
    for package, tested in (("conformance.kernels", get("mm")), (f"planted_{WITHOUT.name}", kernel)):
        plan = tested.plan(tested.problem(dtype, *ragged(tested, config, dtype, aligned=True)), config, find(target))
        request = CompileRequest(f"{package}.catalogue:meta_launch", plan, find(target))
        result = pool.submit(request).result()
        assert result.artefact is not None, result.error
        features = tested.features(plan)
        verdicts = codegen_checks.check(result.artefact, find(target), features.required, features.forbidden)
        failed.append([verdict.feature for verdict in verdicts if not verdict.passed])
    assert failed[0] == []
    assert len(failed[1]) == 1
    assert failed[1][0] in UNITS
