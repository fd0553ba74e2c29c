"""The sweep holds what the heuristics list: nothing is dropped in silence, and a sample stands for its table."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import Counter

import pytest

from conformance.cases import config_space, kernel_answers, tier_rows
from conformance.cases.case_table import cases_of
from conformance.cases.config_space import covering_sample, space
from conformance.cases.cover import cover
from conformance.cases.scenarios import Scenario, every_kernel, where
from conformance.cases.selected_rows import selected
from conformance.execution.compile.kernel_figures import KernelResources
from conformance.families.examples import ROWS_REST, SHAPES, SPLITS, rest
from conformance.heuristics.configs import Config, accumulator_registers, shared_memory
from conformance.heuristics.lookup import CUDA, for_target
from conformance.judging import sweep
from conformance.kernels.catalogue import catalogue, get
from conformance.kernels.families.gemm import GemmFamily
from conformance.records import ReasonCode
from conformance.suites import test_config_space
from conformance.targets import compile_targets, find
from tests.cases.case_rows import rows

SCENE = cases_of(test_config_space.test_config_space)
HOPPER, BLACKWELL, AMD = find("sm_90"), find("sm_100"), find("gfx942")
TARGETS = (HOPPER, BLACKWELL, AMD)
NVIDIA = tuple(target for target in compile_targets() if target.vendor == "nvidia")
KERNELS = [name for name, kernel in catalogue().items() if kernel.offered]


def listed(kernel, target):
    """The rows that a target's tables list for a kernel, by what is written in the tables alone; the configs of a
    kernel without a table."""
    if kernel.table is None:
        return set(kernel.configs)
    tables = for_target(target).tables
    names = {"mixed_mm": ("mm", "mixed_mm")}.get(kernel.table, (kernel.table,))
    names += ("extra_mm",) if kernel.name == "mm" else ()
    return {config for name in names for config in tables[name]}


def swept(tier, targets=TARGETS, kernels=KERNELS):
    """(kernel, target, dtype, config, shape) of every case of the sweep."""
    return [(name, *row) for name in kernels for row in rows(SCENE, get(name), targets, tier)]


def dropped(cases, name, targets=TARGETS):
    """Returns what the full sweep should hold of one kernel and does not."""
    kernel, missing, held = get(name), [], set(cases)
    for target in targets:
        for dtype in kernel.dtype_names():
            expected = {(name, target, dtype, c, shape) for c in of_dtype(kernel, target, dtype) for shape in SHAPES}
            missing += expected - held
    return missing


def of_dtype(kernel, target, dtype):
    """The listed rows of a kernel that the target's own limits let it take with ``dtype``."""
    reasons = [(row, kernel.example_refusal(dtype, row, target)) for row in listed(kernel, target)]
    return [row for row, reason in reasons if reason is None or reason.code not in kernel_answers.ABOUT_THE_TARGET]


# The full tier


@pytest.mark.parametrize("name", KERNELS)
def test_full_holds_every_listed_row(name):
    cases = swept("full", kernels=[name])
    assert len(cases) == len(set(cases)) > 0
    assert dropped(cases, name) == []
    per_dtype = Counter((target, dtype) for _, target, dtype, _, _ in cases)
    for (target, dtype), count in per_dtype.items():
        assert count == len(of_dtype(get(name), target, dtype)) * len(SHAPES)


def test_every_table_is_swept():
    tables = {kernel.table for kernel in catalogue().values()} | {kernel.extra_table for kernel in catalogue().values()}
    assert set(CUDA.tables) - tables == set()


def refusal_codes(cases, target, *, estimated):
    """Returns the reasons why ``mm`` refuses cases of a sweep over ``target``, by case; those that it takes are left
    out."""
    reasons = {case: get("mm").example_refusals(case[2], case[3], (target,), estimated=estimated)[0] for case in cases}
    return {case: reason.code for case, reason in reasons.items() if reason is not None}


def test_refused_rows_are_cases(monkeypatch):
    refused = refusal_codes(swept("full", [AMD], ["mm"]), AMD, estimated=False)
    assert set(refused.values()) == {ReasonCode.CONFIG}
    monkeypatch.setattr(kernel_answers, "ABOUT_THE_TARGET", (*kernel_answers.ABOUT_THE_TARGET, ReasonCode.CONFIG))
    whole_sweep = swept("full", [AMD], ["mm"])
    monkeypatch.undo()
    assert set(dropped(whole_sweep, "mm", [AMD])) == set(refused), "the count sees rows that are left out"


@pytest.mark.parametrize("target", [HOPPER, AMD])
def test_rows_that_may_not_fit_are_cases_from_the_default_tier_on(target):
    for tier in ("default", "full"):
        cases = swept(tier, [target], ["mm"])
        unfit = refusal_codes(cases, target, estimated=True)
        assert ReasonCode.SHARED_MEMORY in unfit.values(), tier
    assert (
        ReasonCode.SHARED_MEMORY not in refusal_codes(swept("quick", [target], ["mm"]), target, estimated=True).values()
    )


def test_a_lost_row_is_seen(monkeypatch):
    whole = config_space.space
    monkeypatch.setattr(config_space, "space", lambda *arguments: whole(*arguments)[1:])
    lost = dropped(swept("full", [HOPPER], ["bmm"]), "bmm", [HOPPER])
    assert {case[3] for case in lost} == {CUDA.tables["bmm"][0]}
    assert {(case[2], case[4]) for case in lost} == {(d, s) for d in ("bf16", "fp16", "fp32", "tf32") for s in SHAPES}


def test_a_target_without_a_dtype_has_no_case_for_it():
    (ampere,) = (target for target in compile_targets() if target.id == "sm_80")
    assert {case[2] for case in swept("full", [ampere], ["scaled_mm"])} == {"e5m2"}
    assert swept("full", [AMD], ["mm_persistent_tma"]) == []


# Samples


def traits(configs, extents=False):
    """Tiles, or extents of tiles, stage and warp counts."""
    return {
        trait
        for config in configs
        for trait in (
            *(enumerate(config.tile) if extents else [("tile", config.tile)]),
            ("stages", config.num_stages),
            ("warps", config.num_warps),
        )
    }


def uncovered(targets):
    """Extents, stage and warp counts of a CUDA table that no quick case of a kernel with this table shows."""
    held = {}
    for name, _, _, config, _ in swept("quick", targets):
        held.setdefault(get(name).table, set()).add(config)
    held.setdefault("mm", set())
    tables = {name: table for name, table in CUDA.tables.items() if name in held}
    tables["mm"] += CUDA.tables["extra_mm"]
    tables["mixed_mm"] += CUDA.tables["mm"]
    unseen = {name: traits(table, extents=True) - traits(held[name], extents=True) for name, table in tables.items()}
    return {name: missing for name, missing in unseen.items() if missing}


#: Extents, stage and warp counts of tables with more rows than the budgets of their kernels, which no quick case shows.
UNSEEN = {
    "bmm": {("stages", 3), ("stages", 4)},
    "int8_mm": {("stages", 4), (0, 32), (2, 64)},
    "mixed_mm": {("stages", 3), ("stages", 4), (2, 128)},
    "mm_plus_mm": {("stages", 3), (2, 128), (0, 128), (1, 128)},
}


def test_quick_shows_each_extent_stage_and_warp_count():
    assert uncovered(compile_targets()) == UNSEEN


def test_rows_that_are_skipped_are_seen(monkeypatch):
    monkeypatch.setattr(tier_rows, "cover", lambda *args, **options: cover(*args, **options)[::2])
    assert len(uncovered(compile_targets())) > len(UNSEEN) + 3


def test_quick_shows_every_dtype_and_shape_of_a_heavy_kernel():
    cases = swept("quick", compile_targets(), ["mm", "scaled_mm"])
    for name in ("mm", "scaled_mm"):
        assert {case[2] for case in cases if case[0] == name} == set(get(name).dtype_names())
        assert {case[4] for case in cases if case[0] == name} == set(SHAPES)
    # no dtype belongs to one shape only
    shapes_of_dtype = Counter(dtype for dtype, _ in {(case[2], case[4]) for case in cases if case[0] == "scaled_mm"})
    assert len(shapes_of_dtype) == 2
    assert min(shapes_of_dtype.values()) > 1


def test_a_kernel_without_a_table_has_a_row_for_each_form_of_its_configs():
    kernel = get("int_mm_specialised")
    assert kernel.table is None
    shown = {
        part
        for *_, config, _ in swept("quick", compile_targets(), [kernel.name])
        for part in config_space._form(config)
    }
    assert shown == {part for config in kernel.configs for part in config_space._form(config)}


def lost_by_default(name):
    """Returns what the default sweep should hold of a kernel and does not. That is every config of a target's sample
    with each dtype that takes it and compiles within seconds. Kernels of weight 1 have one dtype of each size."""
    kernel, lost = get(name), []
    each = (lambda dtype: dtype) if kernel.weight > 1 else tier_rows.size_of
    cases = swept("default", kernels=[name])
    for target in TARGETS:
        held = {(each(dtype), config) for _, on, dtype, config, _ in cases if on == target}
        accepted = {(each(dtype), config) for dtype, config, _ in tier_rows._taken(SCENE, kernel, [target], "default")}
        lost += [(target, *pair) for pair in accepted - held]
    return lost


@pytest.mark.parametrize("name", KERNELS)
def test_default_takes_a_covering_sample(name):
    kernel = get(name)
    for target in TARGETS:
        sample = {*covering_sample(tuple(c for c in space(kernel, target, "full") if c in listed(kernel, target)))}
        selected = space(kernel, target, "default")
        if kernel.table is None:  # few rows
            assert set(selected) >= sample
        elif name != "mm":  # which takes a sample of each of two tables
            assert set(selected) == sample
        assert traits(selected) == traits(c for c in listed(kernel, target) if c in space(kernel, target, "full"))
    assert lost_by_default(name) == []


@pytest.mark.parametrize("name", ["mm", "bmm"])
def test_a_row_that_the_default_sweep_loses_is_seen(name, monkeypatch):
    monkeypatch.setattr(tier_rows, "cover", lambda *args, **options: cover(*args, **options)[2:])
    assert lost_by_default(name)


def test_exhaustive_adds_the_enumerated_space_less_what_cannot_fit():
    mm = get("mm")
    rows_taken, full = space(mm, HOPPER, "exhaustive"), set(space(mm, HOPPER, "full"))
    assert full < set(rows_taken)
    assert len(rows_taken) == len(set(rows_taken))
    added = [config for config in rows_taken if config not in full]
    limit = HOPPER.limits.shared_memory
    assert all(shared_memory(config, 2) <= limit and accumulator_registers(config) <= 255 for config in added)
    enumerated = CUDA.exhaustive("mm")
    pruned = [config for config in enumerated if config not in rows_taken and config not in full]
    assert pruned
    for config in pruned:
        fitting = dataclasses.replace(
            config, num_warps=min(config.num_warps, max(config.block_m * config.block_n // 256, 1))
        )
        assert fitting in rows_taken or shared_memory(config, 2) > limit or accumulator_registers(config) > 255
    attention = get("attention")
    assert set(space(attention, HOPPER, "exhaustive")) >= set(CUDA.exhaustive("flex_fwd"))
    conv = get("conv2d")
    assert space(conv, HOPPER, "exhaustive") == space(conv, HOPPER, "full"), "no space is enumerated"


# Parameters


def test_what_a_test_does_not_take_makes_no_row():
    scene = Scenario(where(any_order=True), {"letter": "ab"})
    assert len(rows(scene, get("mm"), compile_targets(), "quick", unused={"dtype", "config"})) == 2
    assert len(rows(scene, get("mm"), compile_targets(), "quick")) > 2
    full = rows(scene, get("mm"), TARGETS, "full", unused={"dtype", "config"})
    assert sorted(row[0].id for row in full) == sorted(2 * [target.id for target in TARGETS])


def test_a_parameter_by_tier_takes_that_many_numbers():
    scene = Scenario(every_kernel, {"drawn": {"quick": 1, "default": 3, "full": 5, "exhaustive": 7}})
    for tier, count in scene.parameters["drawn"].items():
        assert {number for *_, number in rows(scene, get("mm"), compile_targets(), tier)} == set(range(count))
    with pytest.raises(KeyError):
        rows(Scenario(every_kernel, {"drawn": {"quick": 1}}), get("mm"), (HOPPER,), "full")


# Examples


def taken(kernel, problem_of):
    """Returns True if ``kernel`` takes the problem made for some config of some target."""
    variant = kernel.example_variant()
    return any(
        kernel.refusal(kernel.draft(problem_of(config), config, target, variant)) is None
        for target in TARGETS
        for config in space(kernel, target, "full")
    )


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_takes_an_example_of_every_shape(name):
    kernel = get(name)
    for dtype in kernel.dtype_names():
        for shape in SHAPES:
            assert taken(kernel, lambda config, d=dtype, s=shape: kernel.example(d, config, s)), (dtype, shape)
        assert taken(kernel, lambda config, d=dtype: kernel.timed(d)), dtype


def test_a_kernel_that_refuses_its_examples_is_seen(monkeypatch):
    kernel = get("contiguous_mm")
    # it is then given a B that it has no business with
    monkeypatch.setattr(type(kernel), "problem", GemmFamily.problem)
    assert not taken(kernel, lambda config: kernel.example("fp16", config))
    assert not kernel.usable_on(HOPPER)


def sizes(kernel, dtype, config, shape):
    """Returns the faults in the sizes of an example of the GEMM family."""
    problem = kernel.example(dtype, config, shape)
    depth = problem.K // (SPLITS if kernel.family == "split-k" and not kernel.persistent else 1)
    return size_faults(kernel, config, shape, problem.M, problem.N, depth)


def _shows(block, shape):
    return block > 16 or shape == "several-tiles"


def size_faults(kernel, config, shape, m, n, k):
    step = config.block_k * getattr(config, "chain", 1)
    tiles = -(-m // config.block_m) * -(-n // config.block_n)
    blocks, deep = -(-k // step), kernel.operations == {"mm_plus_mm"}  # which takes no less than one k-block
    faults = {"M has no tail"} if m % config.block_m == 0 else set()
    # outside "several-tiles" N and K are multiples of 16: a block of 16 then has no tail
    faults |= {"K has no tail"} if k % step == 0 and _shows(step, shape) else set()
    if shape == "smaller-than-a-tile":
        smaller = m < config.block_m and n <= config.block_n and (deep or k <= step)
        return faults | (set() if smaller else {"not smaller"})
    faults |= {"N has no tail"} if n % config.block_n == 0 and _shows(config.block_n, shape) else set()
    if shape == "several-tiles":
        faults |= {"few tiles"} if tiles <= (kernel.example_variant().sms or 2) or min(m, n) < 0 else set()
        faults |= {"as many rows as columns"} if -(-m // config.block_m) == -(-n // config.block_n) else set()
    if shape == "many-k-blocks":
        faults |= {"few k-blocks"} if blocks <= config.num_stages else set()
    return faults


@pytest.mark.parametrize("name", [name for name in KERNELS if get(name).family in ("gemm", "split-k")])
def test_sizes_are_what_the_shape_says(name):
    kernel = get(name)
    faults = Counter(
        (shape, fault)
        for target in (HOPPER, AMD)
        for config in listed(kernel, target)
        for dtype in kernel.dtype_names()
        for shape in SHAPES
        for fault in sizes(kernel, dtype, config, shape)
    )
    assert not faults


def test_other_sizes_are_seen():
    mm, config = get("mm"), Config(64, 64, 32, 3, 4)
    assert size_faults(mm, config, "smaller-than-a-tile", 64, 40, 24) == {"M has no tail", "not smaller"}
    assert size_faults(mm, config, "ragged", 72, 128, 64) == {"K has no tail", "N has no tail"}
    assert size_faults(mm, config, "several-tiles", 72, 40, 40) == {"few tiles"}
    assert size_faults(mm, config, "several-tiles", 136, 136, 40) == {"as many rows as columns"}
    assert size_faults(mm, config, "many-k-blocks", 72, 72, 72) == {"few k-blocks"}


@pytest.mark.parametrize("name", KERNELS)
def test_examples_of_other_families_differ_by_shape(name):
    kernel = get(name)
    dtype, config = kernel.dtype_names()[0], kernel.configs[0]
    ids = {kernel.example(dtype, config, shape).id for shape in SHAPES}
    assert len(ids) == len(SHAPES)
    with pytest.raises(KeyError):
        kernel.example(dtype, config, "no such class")


def test_a_rest_is_ragged_and_keeps_rows_of_16_bytes():
    dtypes = ("fp16", "tf32", "fp16xint8", "e4m3", "int8")
    assert {rest(dtype, shape) for dtype in dtypes for shape in SHAPES if shape != "several-tiles"} == {16}
    assert [rest(dtype, "several-tiles") for dtype in dtypes] == [8, 8, 8, 16, 16]
    assert ROWS_REST % 16


# Spills


def test_only_declared_spills_pass(monkeypatch):
    mm, config = get("mm"), Config(128, 128, 64, 4, 8)
    none = KernelResources(200, 0, "bytes", 1024, 0, 256, "cubin")
    some = dataclasses.replace(none, spills=48)

    def verdict(resources, config=config, size=""):
        return sweep.spill_verdict(mm, "bf16", config, HOPPER, types.SimpleNamespace(resources=resources), size=size)

    monkeypatch.setattr(sweep, "_targets_with_declarations", lambda: frozenset({"sm_80"}))
    monkeypatch.setattr(sweep, "_declared", frozenset)
    with pytest.warns(sweep.SpillsNotDeclared, match="spills are not declared for target sm_90"):
        without_declarations = verdict(some)
    assert without_declarations.passed
    assert "spills are not declared for target sm_90" in without_declarations.text
    monkeypatch.setattr(sweep, "_targets_with_declarations", lambda: frozenset({"sm_90"}))
    undeclared = verdict(some)
    assert (undeclared.check, undeclared.passed) == ("spills", False)
    assert undeclared.text == "48 bytes per thread spilled, not declared"
    assert verdict(none).passed
    key = sweep.spill_key(mm, "bf16", config, HOPPER)
    assert key == "mm bf16 128x128x64-s4-w8 sm_90"
    monkeypatch.setattr(sweep, "_declared", lambda: frozenset({key}))
    assert verdict(some).passed
    assert verdict(some).text.endswith(", declared")
    unread = verdict(dataclasses.replace(none, registers=0, source="metadata"))
    assert (unread.passed, "not known" in unread.text) == (False, True)
    assert verdict(none).passed, "a declaration is no duty: another Triton may not spill"
    assert not verdict(some, Config(128, 128, 64, 3, 8)).passed, "another row is not declared"
    assert not verdict(some, size="17x64x48").passed, "nor is the same one for a problem that selects it"
    monkeypatch.setattr(sweep, "_declared", lambda: frozenset({"mm bf16 128x128x64-s4-w8@17x64x48 sm_90"}))
    assert verdict(some, size="17x64x48").passed
    assert not verdict(some).passed


def test_declared_lines_are_keys_of_the_sweep():
    """A line that names nothing would declare nothing, unnoticed."""

    @functools.cache
    def listed_ids(name, target):
        return {config.id for config in space(get(name), find(target), "exhaustive")}

    @functools.cache
    def selected_ids(name, dtype, target):
        return {f"{config.id}@{size}" for config, size in selected(get(name), dtype, find(target))}

    for line in sweep._declared():
        name, dtype, config, target = line.split(" ")
        assert dtype in get(name).dtype_names(), line
        assert config in listed_ids(name, target) or config in selected_ids(name, dtype, target), line


def test_a_target_has_the_declared_lines_of_all_its_kernels_or_none():
    """With lines of a few rows alone, each spill of the other rows would fail a whole sweep."""
    lines = [line.split(" ") for line in sweep._declared()]
    for target in sorted({line[-1] for line in lines}):
        kernels = {name for name, *_, of in lines if of == target}
        assert kernels >= {"mm", "mixed_mm", "grouped_mm", "attention", "attention_backward"}, target
