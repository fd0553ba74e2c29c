"""Short forms: whatever is written in one is read back as it was, and other values are written as they are."""

from __future__ import annotations

import json
import random
import string

import pytest

from conformance.record_forms import (
    PATTERNS,
    SHAPES,
    pack_artefacts,
    pack_mapping,
    pack_repro,
    pack_verdict,
    unpack_artefacts,
    unpack_mapping,
    unpack_repro,
    unpack_verdict,
)

ROW = {"id": "row", "order": "row", "pad": 0, "step": 1, "offset": 0, "batch": "outer", "batch_pad": 0}
PROBLEM = {"id": "p", "op": "mm", "M": 1, "N": 2, "K": 3, "dtype": "bf16", "out_dtype": None, "b_dtype": None}
PROBLEM |= {"precision": "ieee", "layout_a": ROW, "layout_b": {**ROW, "pad": 1}, "layout_out": ROW, "bias": None}
PROBLEM |= {"alpha": 1.0, "beta": 0.5, "scaling": None, "fast_accum": False, "batch": None, "fusion": None}
CONFIG = {"id": "c", "block_m": 1, "block_n": 2, "block_k": 3, "num_stages": 4, "num_warps": 5, "group_m": 8}
CONFIG |= {"vendor": []}
SHORT_ROW = {"=": 0, "id": "row", "order": "row"}


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (ROW, SHORT_ROW),
        ({**ROW, "step": 2}, {**SHORT_ROW, "step": 2}),
        ({**ROW, "step": 1.0}, {**SHORT_ROW, "step": 1.0}),
        ({**ROW, "step": True}, {**SHORT_ROW, "step": True}),
        ({**ROW, "more": 1}, {**ROW, "more": 1}),
        ({**CONFIG, "group_m": 1}, {"=": 2, **{key: CONFIG[key] for key in list(CONFIG)[:6]}, "group_m": 1}),
        ([{"a": ROW}], [{"a": SHORT_ROW}]),
        ({"=": 0, "id": "x"}, {"=": -1, "value": {"=": 0, "id": "x"}}),
        (dict(reversed(ROW.items())), dict(reversed(ROW.items()))),
        (None, None),
    ],
)
def test_mappings(value, packed):
    assert json.dumps(pack_mapping(value)) == json.dumps(packed)
    assert json.dumps(unpack_mapping(packed)) == json.dumps(value)


def test_a_problem_is_less_than_half_as_long():
    assert len(json.dumps(pack_mapping(PROBLEM))) < len(json.dumps(PROBLEM)) * 0.45
    assert json.dumps(unpack_mapping(pack_mapping(PROBLEM))) == json.dumps(PROBLEM)


def test_any_values_come_back():
    draw = random.Random(0)
    values = [None, 0, 1, 1.0, True, False, "", "row", "outer", "ieee", [], {}, ROW, {"=": 1}]
    keys = ["=", "value", "id", *ROW, *CONFIG]
    for _ in range(2000):
        value = {draw.choice(keys): draw.choice(values) for _ in range(draw.randrange(9))}
        value = draw.choice(
            [value, {**ROW, "pad": value}, {**dict(zip(SHAPES[1], draw.choices(values, k=99), strict=False))}]
        )
        assert json.dumps(unpack_mapping(json.loads(json.dumps(pack_mapping(value))))) == json.dumps(value)


@pytest.mark.parametrize(
    ("check", "text", "details", "figures"),
    [
        ("numerics/hot", "PASS bounded/hot seed 3: 42 elements", {"wrong": 0, "total": 42, "worst_ratio": 0.1},
         [1, 3, 42, 0.1]),
        ("numerics/wide-A@64x64", "PASS exact/wide-A seed 0: 42 elements", {"wrong": 0, "total": 42}, [0, 0, 42]),
        ("codegen/forbids/X", f"CHECK: {{{{{PATTERNS[1]}}}}} in ptx: no match", {"stage": "ptx"}, [3, 1, "ptx"]),
        ("codegen/requires/X", "CHECK: {{a{2}}} in ttir: matches line 7", {"stage": "ttir"}, [3, "a{2}", "ttir", 7]),
        ("memory", "operands and surroundings untouched in 12 runs", {}, [4, 12]),
        ("codegen/judged-is-launched", "judged 0af, launched 0af", {}, [5, "0af"]),
        ("resources", "within the target's limits", {}, [6]),
        ("grid", "grid (4,) ran", {"grid": [4]}, [7, 4]),
        ("grid", "grid (4, 1, 2) ran", {"grid": [4, 1, 2]}, [7, 4, 1, 2]),
    ],
)  # fmt: skip
def test_verdicts_in_a_standard_form(check, text, details, figures):
    assert pack_verdict(check, text, details) == figures
    assert unpack_verdict(check, json.loads(json.dumps(figures))) == (text, details)


@pytest.mark.parametrize(
    ("check", "text", "details"),
    [
        ("numerics/hot", "PASS bounded/randn seed 3: 42 elements", {"wrong": 0, "total": 42}),
        ("numerics/hot", "PASS bounded/hot seed 3: 42 elements", {"wrong": 1, "total": 42}),
        ("numerics/hot", "PASS bounded/hot seed 3: 42 elements", {"wrong": 0, "total": 42, "tiles": []}),
        ("numerics/hot", "PASS bounded/hot seed 03: 42 elements", {"wrong": 0, "total": 42}),
        ("numerics/hot", "PASS bounded/hot seed 3: 42 elements\n", {"wrong": 0, "total": 42}),
        ("numerics/hot", f"PASS bounded/hot seed 3: {'9' * 5000} elements", {"wrong": 0, "total": 42}),
        ("codegen/forbids/X", "CHECK: {{a}} in ptx: no match", {}),
        ("memory", "operands and surroundings untouched in 12 runs", {"runs": 12}),
        ("codegen/judged-is-launched", "judged 0af, launched 0ae", {}),
        ("grid", "grid (4,) ran, 3 programs", {"grid": [4]}),
        ("grid", "grid (4,) ran", {"grid": 4}),
        ("other", "", {}),
    ],
)
def test_verdicts_in_no_standard_form(check, text, details):
    assert pack_verdict(check, text, details) is None


def test_artefacts():
    one = {"source": "/cache/A/k.source", "ttir": "/cache/A/k.ttir", "json": "/cache/A/k.json"}
    assert pack_artefacts(one) == ["/cache/A/k.", "source ttir json"]
    assert unpack_artefacts(["/cache/A/k.", "source ttir json"]) == one
    for other in (
        {},
        {"a": "x.a"},
        {**one, "ptx": "/cache/B/k.ptx"},
        {"a b": "x.a b", "c": "x.c"},
        {"": "x.", "c": "x.c"},
    ):
        assert unpack_artefacts(pack_artefacts(other)) == other
        assert pack_artefacts(other) == other


def test_commands():
    case = "test_a.py::test_b[it's-x]"
    start = "python -m pytest --pyargs conformance.suites --conformance-case 'test_a.py::test_b[it'\"'\"'s-x]' "
    assert pack_repro(case, start + "--conformance-tier quick") == ["--conformance-tier quick"]
    for repro in ("", "other", start.strip(), start, start + "x\ny", "".join(string.printable)):
        assert unpack_repro(case, pack_repro(case, repro)) == repro
