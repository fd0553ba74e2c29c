"""Every config that a heuristic can pick for the sweep's own problems is a case of the full tier."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math

import pytest

from conformance.cases import selected_rows
from conformance.cases.case_table import Selection, cases_of
from conformance.cases.config_space import space
from conformance.cases.cover import cover
from conformance.cases.kernel_answers import ABOUT_THE_TARGET
from conformance.cases.scenarios import Scenario, every_kernel, shapes_of
from conformance.cases.selected_rows import SelectedRows, rows
from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import Conv
from conformance.families.examples import SHAPES, SPLITS
from conformance.families.gemm.problem import Gemm
from conformance.heuristics import lookup, rocm
from conformance.heuristics.configs import Config
from conformance.heuristics.device_class import DeviceClass, Symbolic
from conformance.heuristics.lookup import CPU, for_target
from conformance.kernels.catalogue import catalogue, get
from conformance.targets import Target, find
from tests.cases.case_rows import rows as listed_rows

LISTED = Scenario(every_kernel, {"shape": shapes_of}, every_config=True)
AMPERE, HOPPER, BLACKWELL, AMD = map(find, ("sm_80", "sm_90", "sm_100", "gfx942"))
TARGETS = (AMPERE, HOPPER, BLACKWELL, AMD)
#: Those with a table: no problem selects a row of another.
KERNELS = [name for name, kernel in catalogue().items() if kernel.offered and kernel.table is not None]
CAPABILITY = {AMPERE: (8, 0), HOPPER: (9, 0), BLACKWELL: (10, 0), AMD: (0, 0)}

#: Rows that are tried in addition to those of the kernel's own table.
TABLES = {"mm": ("mm", "extra_mm")}


def listed_cases(kernel, target):
    """(dtype, config, shape) of the full sweep over the listed rows of one kernel on one target."""
    return [case[1:4] for case in listed_rows(LISTED, kernel, [target], "full")]


def selected_cases(kernel, target, tier="full"):
    """(dtype, config, size) of the cases that problems select."""
    return [case[1:] for case in rows(kernel, [target], tier)]


def size(kernel, problem):
    """M, N, K of a problem of the sweep, as the heuristics are told them."""
    if isinstance(problem, Conv):
        return math.prod(problem.out_size), problem.out_channels, problem.channels
    if isinstance(problem, Gemm):
        return problem.M, problem.N, problem.K // (SPLITS if kernel.family == "split-k" else 1)
    return max(problem.sizes), problem.N, problem.K


def yielded(kernel, dtype, target):
    """Every (config, head dim) that the target's device class yields for the sweep's problems, by its tables alone.
    The head dim is None for products."""
    tables = for_target(target)
    if isinstance(kernel.example(dtype, kernel.configs[0]), Attention):
        name = {"flex_fwd": "flex_fwd_default", "flex_bwd": "flex_bwd_default", "flex_decode": "flex_decode_default"}
        default = getattr(tables, name[kernel.table])
        stored = "fp32" if dtype == "tf32" else dtype
        return {(default(dim, stored, CAPABILITY[target]), dim) for dim in (64, 96, 128, 256, 512)}
    problems = [kernel.example(dtype, config, shape) for config in space(kernel, target, "full") for shape in SHAPES]
    sizes = {size(kernel, problem) for problem in problems}
    hints = (None,)
    if isinstance(problems[0], Gemm):
        sizes |= {(17, 64, 48), (Symbolic(4096), 256, 256)}
        hints = (None, 64, 256, 4096)
    names = TABLES.get(kernel.name, (kernel.table,))
    return {
        (config, None)
        for name in names
        for sizes_of_one in sizes
        for hint in hints
        for config in tables.candidates(name, *sizes_of_one, hint=hint)
    }


def missing(kernel, target):
    """(dtype, config, head dim) that the target's device class yields and the full tier has no case for."""
    listed = {(dtype, config) for dtype, config, _ in listed_cases(kernel, target)}
    selected = {(dtype, config, size) for dtype, config, size in selected_cases(kernel, target)}
    any_size = {(dtype, config) for dtype, config, _ in selected}
    lost = set()
    for dtype in {dtype for dtype, _ in listed}:
        for config, dim in yielded(kernel, dtype, target):
            usual = (dtype, config) in listed and dim in (None, 64)
            own = (dtype, config, f"d{dim}") in selected if dim else (dtype, config) in any_size
            if not (usual or own):
                lost.add((dtype, config, dim))
    return lost


def test_the_suite_takes_these_cases():
    suite = importlib.import_module("conformance.suites.test_config_space")
    assert cases_of(suite.test_selected_rows) == SelectedRows()
    mm_plus_mm = Selection((HOPPER, AMD), "full", ("mm_plus_mm",))
    table = SelectedRows().table(mm_plus_mm, selected_rows.NAMES)
    assert list(table.rows) == [
        f"mm_plus_mm-{dtype}-32x32x128-s1-w4{options}-size=8x16x144-{target}"
        for dtype in ("bf16", "fp16", "fp32", "tf32")
        for target, options in (("sm_90", ""), ("gfx942", "-matrix_instr_nonkdim16-waves_per_eu0-kpack2"))
    ]
    assert {type(value) for value in next(iter(table.rows.values()))[1:]} == {Target, str, Config}
    assert {row[0].name for row in SelectedRows().table(Selection((HOPPER,), "default"), ()).rows.values()} > {"mm"}
    assert SelectedRows().table(Selection((HOPPER,), "quick"), ()).rows == {}


@pytest.mark.parametrize("name", KERNELS)
def test_full_holds_every_row_that_a_problem_selects(name):
    kernel = get(name)
    assert {target.id: missing(kernel, target) for target in TARGETS} == {target.id: set() for target in TARGETS}
    assert any(selected_cases(kernel, target) for target in TARGETS)


@pytest.mark.parametrize(
    ("name", "target", "size", "dtypes"),
    [
        ("mm", HOPPER, "17x64x48", ("bf16", "fp16", "fp32", "tf32")),
        ("attention", AMPERE, "d256", ("bf16", "fp16")),  # the two have one default
    ],
)
def test_a_row_that_is_left_out_is_missed(monkeypatch, name, target, size, dtypes):
    kernel = get(name)
    row = next(row for row in selected_rows.selected(kernel, "bf16", target) if row[1] == size)
    whole = selected_rows.selected
    monkeypatch.setattr(
        selected_rows,
        "selected",
        lambda *arguments: {other: problem for other, problem in whole(*arguments).items() if other != row},
    )
    lost = missing(kernel, target)
    dim = int(size[1:]) if name == "attention" else None
    assert {(config, dim) for _, config, dim in lost} == {(row[0], dim)}
    assert {dtype for dtype, _, _ in lost} == set(dtypes)


def test_a_small_product_has_all_its_rows():
    """Most of them stand in no table."""
    listed = {config for dtype, config, _ in listed_cases(get("mm"), HOPPER) if dtype == "bf16"}
    scaled = {config for dtype, config, _ in selected_cases(get("mm"), HOPPER) if dtype == "bf16"}
    offered = set(lookup.CUDA.candidates("mm", 17, 64, 48))
    assert (len(offered), len(offered - listed)) == (15, 13)
    assert offered <= listed | scaled


@pytest.mark.parametrize(
    ("target", "defaults"), [(HOPPER, lookup.H100), (AMPERE, lookup.A100), (AMD, rocm.FLEX_FWD_DEFAULTS)]
)
def test_every_measured_default_of_attention_is_a_case_with_its_head_dim(target, defaults):
    cases = {*selected_cases(get("attention"), target)}
    usual = {(dtype, config, "d64") for dtype, config, _ in listed_cases(get("attention"), target)}
    expected = {(dtype, config, f"d{dim}") for (dtype, dim), config in defaults.items()}
    expected |= {("tf32", config, size) for dtype, config, size in expected if dtype == "fp32"}
    assert expected <= cases | usual
    for dtype, config, size in cases:
        assert selected_rows.selected(get("attention"), dtype, target)[config, size].head_dim == int(size[1:])


@functools.cache
def candidates(target, table, sizes):
    """The configs that a heuristic offers for a product of these sizes."""
    return frozenset(for_target(target).candidates(table, *sizes))


@pytest.mark.parametrize("name", KERNELS)
def test_each_row_runs_on_a_problem_that_selects_it(name):
    kernel = get(name)
    variant = kernel.example_variant()
    for target in TARGETS:
        for dtype, config, text in selected_cases(kernel, target):
            problem = selected_rows.selected(kernel, dtype, target)[config, text]
            if not isinstance(problem, Attention):
                assert text == "x".join(map(str, size(kernel, problem)))
                names = TABLES.get(name, (kernel.table,))
                assert any(config in candidates(target, table, size(kernel, problem)) for table in names)
            reason = kernel.refusal(kernel.draft(problem, config, target, variant))
            assert reason is None or reason.code not in ABOUT_THE_TARGET


@pytest.mark.parametrize("name", KERNELS)
def test_default_takes_a_cover_and_quick_none(name):
    kernel = get(name)
    variant = kernel.example_variant()
    for target in TARGETS:
        assert selected_cases(kernel, target, "quick") == []
        full, default = (selected_cases(kernel, target, tier) for tier in ("full", "default"))
        assert set(default) <= set(full)
        assert len(full) == len(set(full))
        variant = kernel.example_variant()
        usable = [
            (dtype, config, size)
            for dtype, config, size in full
            if kernel.refusal(
                kernel.draft(selected_rows.selected(kernel, dtype, target)[config, size], config, target, variant)
            )
            is None
        ]
        assert values(default) == values(usable)
        assert len(default) <= 10
        assert not set(default) - set(usable)
        assert selected_cases(kernel, target, "exhaustive") == full


def values(cases):
    """Returns the values that a cover holds: dtypes, extents of blocks, stage and warp counts, and head dims."""
    return {
        value
        for dtype, config, text in cases
        for value in (
            ("dtype", dtype),
            ("stages", config.num_stages),
            ("warps", config.num_warps),
            *(("edge", place, edge) for place, edge in enumerate(config.tile)),
            *([text] if text.startswith("d") else []),
        )
    }


def test_a_cover_that_misses_a_value_is_seen():
    kernel = get("mm")
    full = selected_cases(kernel, HOPPER)
    assert values(full[:3]) != values(full)
    assert cover({"case": full}, shown={"case": lambda case: {case[0]}}) == [
        (next(case for case in full if case[0] == dtype),) for dtype in ("bf16", "fp16", "fp32", "tf32")
    ]


def test_several_targets_share_their_rows():
    kernel, targets = get("mm_plus_mm"), [HOPPER, BLACKWELL, AMD]
    cases = rows(kernel, targets, "full")
    assert [case[0] for case in cases[:2]] == [HOPPER, BLACKWELL]
    assert {target: [case[1:] for case in cases if case[0] == target] for target in targets} == {
        target: [case[1:] for case in rows(kernel, [target], "full")] for target in targets
    }


@dataclasses.dataclass(frozen=True)
class _Board(Target):
    @property
    def device_class(self):
        return DeviceClass("board", {"mm": (Config(256, 256, 64, 2, 8),)}, scale=CPU.scale, excluded=CPU.excluded)


def test_a_device_class_that_scales_and_excludes_is_asked_too():
    """Half the edge of 256 is 128: 128 x 128 elements are too many, so only products that scale it further are left."""
    configs = {config.tile for _, config, _ in selected_cases(get("mm"), _Board("cuda", 90, 32))}
    assert configs
    assert all(m * n <= 2**13 for m, n, _ in configs)


def test_kernels_that_heuristics_do_not_know_have_no_such_rows(monkeypatch):
    kernel = get("mm")
    monkeypatch.setattr(kernel, "table", None)
    selected_rows.selected.cache_clear()
    assert selected_rows.selected(kernel, "bf16", HOPPER) == {}
    monkeypatch.undo()
    selected_rows.selected.cache_clear()
    with pytest.raises(TypeError, match="a product or convolution is required"):
        selected_rows.size_of(kernel, get("attention").example("bf16", get("attention").configs[0]))
    assert kernel.problem("bf16", *selected_rows.SMALL).id in {
        problem.id for problem in selected_rows.selected(kernel, "bf16", HOPPER).values()
    }
