"""The default tier's sample: what must appear together does, and tests other than the sweep share the usual configs."""

from __future__ import annotations

import importlib
import inspect
import itertools
from pathlib import Path

import pytest

from conformance import suites
from conformance.cases import tier_rows
from conformance.cases.case_table import Selection, cases_of
from conformance.cases.cover import cover
from conformance.cases.scenarios import Scenario, where
from conformance.cases.tier_rows import USUAL_CONFIGS, size_of
from conformance.kernels.catalogue import catalogue, get
from conformance.targets import find
from tests.cases.case_rows import rows

TARGETS = tuple(map(find, ("sm_90", "sm_120", "gfx942")))
OWN = {"order": "abcd", "static": [False, True], "store": [1, 2]}
SCENE = Scenario(where(any_order=True, persistent=False), OWN, rotate={"where": ["device", "host"], "flat": [0, 1, 2]})
HEAVY = [name for name, kernel in catalogue().items() if SCENE.kernels(kernel) and kernel.weight > 1]
LIGHT = [
    name for name, kernel in catalogue().items() if SCENE.kernels(kernel) and kernel.weight == 1 and kernel.offered
]
NAMES = ("dtype", "config", *OWN, "where", "flat")


def gaps(name):
    """Returns what the default tier lacks of a kernel on one of :data:`TARGETS`."""
    kernel, lacking = get(name), []
    cases = rows(SCENE, kernel, TARGETS, "default")
    for target in TARGETS:
        shown = [dict(zip(NAMES, row, strict=True)) for on, *row in cases if on == target]
        usable = [d for d in kernel.dtype_names() if any(t == target and d == row for t, row, *_ in full(kernel))]
        lacking += missing(target, shown, {("dtype",): [(dtype,) for dtype in usable]})
        combinations, sizes = list(itertools.product(*OWN.values())), list(dict.fromkeys(map(size_of, usable)))
        for row in shown:
            row["size"] = size_of(row["dtype"])
        if kernel.weight > 1:
            required = {("dtype", *OWN): [(d, *c) for d in usable for c in combinations]}
            required |= {("dtype", one): list(itertools.product(usable, more)) for one, more in SCENE.rotate.items()}
        else:
            required = {pair: list(itertools.product(*map(OWN.get, pair))) for pair in itertools.combinations(OWN, 2)}
            required |= {("size",): [(size,) for size in sizes]}
            required |= {(one,): [(value,) for value in more] for one, more in SCENE.rotate.items()}
        lacking += missing(target, shown, required)
    return lacking


def missing(target, shown, required):
    return [
        (target.id, names, values)
        for names, every in required.items()
        for values in set(every) - {tuple(row[name] for name in names) for row in shown}
    ]


def full(kernel):
    return rows(Scenario(SCENE.kernels, {}), kernel, TARGETS, "full")


@pytest.mark.parametrize("name", [*HEAVY, *LIGHT])
def test_what_must_appear_together_does(name):
    assert gaps(name) == []


@pytest.mark.parametrize("name", [HEAVY[0], LIGHT[0]])
@pytest.mark.parametrize(
    "chosen",
    [
        lambda args, options: cover(*args, **options)[1:],
        lambda args, options: cover(*args, **{**options, "pairs": []}),
        lambda args, options: cover(*args, **{**options, "pairs": options["pairs"][1:]}),
    ],
    ids=["a row is lost", "nothing is paired", "the first pair is not asked for"],
)
def test_another_choice_is_seen(name, chosen, monkeypatch):
    monkeypatch.setattr(tier_rows, "cover", lambda *args, **options: chosen(args, options))
    assert gaps(name)


def pairs_of(kernel, target):
    """The (dtype, config) with which tests take a kernel, the sweep aside."""
    pairs = set()
    for file in sorted(Path(suites.__path__[0]).glob("test_*.py")):
        module = importlib.import_module(f"conformance.suites.{file.stem}")
        for test in filter(inspect.isfunction, list(vars(module).values())):
            cases = cases_of(test)
            if isinstance(cases, Scenario) and not cases.every_config:
                table = cases.table(
                    Selection((target,), "default", (kernel,)), list(inspect.signature(test).parameters)
                )
                names = {name: place for place, name in enumerate(table.names)}
                if {"dtype", "config"} <= names.keys():
                    pairs |= {(row[names["dtype"]], row[names["config"]]) for row in table.rows.values()}
    return pairs


@pytest.mark.parametrize("name", ["mm", "scaled_mm", "mm_persistent_tma", "bmm", "attention"])
def test_tests_share_the_usual_configs_of_a_dtype(name, monkeypatch):
    most = USUAL_CONFIGS[get(name).weight]
    pairs = pairs_of(name, TARGETS[0])
    dtypes = {dtype for dtype, _ in pairs}
    assert dtypes
    assert len(pairs) <= most * len(dtypes)
    if name in ("mm", "bmm"):  # from several of one table, the dtypes have different ones
        assert len({config for _, config in pairs}) > most
    monkeypatch.setattr(tier_rows, "_usual", lambda kernel, pairs: pairs)
    assert len(pairs_of(name, TARGETS[0])) > most * len(dtypes)


def test_a_target_has_the_same_cases_whatever_others_there_are():
    for target in TARGETS:
        alone = rows(SCENE, get("mm"), (target,), "default")
        assert [row for row in rows(SCENE, get("mm"), TARGETS, "default") if row[0] == target] == alone
