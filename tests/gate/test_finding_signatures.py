"""A signature is the same for one cause, whatever its sizes and places are, and another one for another cause."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from conformance.commands.shared.comparison_output import to_json
from conformance.gate.verdict.known_findings import signature, stable_cause
from conformance.user_files.expected_failures import read_expected_failures
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Side

#: Texts of one cause in each line.
ALIKE = [
    (
        "numerics/transparent: 1024 of 95040 elements are wrong",
        "numerics/transparent: 7 of 12 elements are wrong",
    ),
    ("numerics/3: 1 element is wrong", "numerics/0: 12 elements is wrong"),
    (
        "compile-error: Assertion `idx < size()' failed at SmallVector.h:292",
        "compile-error: Assertion `idx < size()' failed at SmallVector.h:301",
    ),
    (
        "crash: SIGSEGV at 0x7ffe1234 in /home/a/.cache/site/triton/_C/libtriton.so:12",
        "crash: SIGSEGV at 0xdeadbeef01 in /opt/b/triton/_C/libtriton.so",
    ),
    ("error: 'tensor<128x64xbf16, #blocked1>' has 4 users", "error: 'tensor<16x256xbf16, #blocked>' has 11 users"),
    ("error: 'memdesc<64xf32>' at %arg3", "error: 'memdesc<4096xf32>' at %17"),
    ("tmpab3_x9zq/kernel.ptx: fatal", "tmpq81zzzz0/kernel.ptx: fatal"),
    (
        "timeout: test_scaling.py::test_scale[mm-bf16-sm_90] after 300 s",
        "timeout: test_fusion.py::test_two[addmm-fp16-sm_90] after 12.5s",
    ),
    ("flex table: 2 rows gained, 1 lost", "flex table: 1 row gained, 14 lost"),
    ("wgmma.mma_async.m64n128k16.f32 vanished", "wgmma.mma_async.m64n256k16.f32 vanished"),
    ("worker gw0 died, pid 17", "worker gw13 died, pid 4711"),
    ("triton_poi_fused_mm_0 of kernel_0d1d2de", "triton_poi_fused_mm_12 of kernel_0d1d2d3d4d"),
    ("at 2026-11-19T08:00:01.123+00:00 the driver reset", "at 2026-11-26T21:05:39Z the driver reset"),
    ("Triton 3.8.0 with ptxas 12.8.93 refuses", "Triton 3.8.1 with ptxas 13.0 refuses"),
    ("GPU 8c1a2b3c-1111-2222-3333-0123456789ab fell off", "GPU 0c1a2b3c-aaaa-2222-3333-0123456789ab fell off"),
    ("indices [1, 2] and (3, 4, 5)", "indices [7] and (0, 0)"),
    ("of a build 0a1b2c3d4e5f", "of a build ffeedd1c2b3a"),
    ("shared memory: 240000 bytes per block, sm_90 has 232448", "shared memory: 1B per block, sm_90 has 9"),
]
#: Causes that must not be taken for each other. The first ones are those of comparisons that were published or tried.
DIFFERENT = [
    *("less occupancy for shared memory on gfx950", "less occupancy for shared memory on gfx942"),
    *("less occupancy for registers on gfx950", "more spills on sm_90", "more spills on sm_100"),
    *("ASYNC_COPY lost on gfx950", "SCALED_MMA lost on sm_120", "WGMMA lost on sm_90", "TMA_LOAD lost on sm_90"),
    *("packed FFMA2 became scalar instructions on sm_100", "past the limit of shared memory on sm_90"),
    *("past the limit of tensor memory on sm_100", "numerics/transparent: the K tail is not masked"),
    *("numerics/transparent: rows of A are permuted", "numerics/wide-A: rows of A are permuted"),
    *("memory: guard bytes after C were written", "repeat: two runs differ", "executed/ttgir: tmem_load reads early"),
    *("no longer checked: codegen/requires/WGMMA", "no longer checked: codegen/requires/TMA_LOAD"),
    *("slower on sm_90", "run by: device before, interpreter now", "run by: executed before, interpreter now"),
    *("https://github.com/triton-lang/triton/issues/11733", "https://github.com/triton-lang/triton/issues/11526"),
    *("see #11733", "see #11526", "triton issue 11262", "triton issue 11624", "pull 9087", "pull 9088"),
    *("known-defect (a-11733)", "known-defect (a-11526)", "known-defect (sm_100-ws)", "known-defect (sm_120-ws)"),
    *("tf32x3 is inexact", "bf16x3 is inexact", "bf16x6 is inexact", "e4m3fnuz is inexact", "e4m3 is inexact"),
    *("compile-error: SIGABRT", "compile-error: SIGSEGV", "timeout", "oom", "crash"),
]


@pytest.mark.parametrize("texts", ALIKE, ids=lambda texts: re.sub(r"\W+", "-", texts[0])[:40])
def test_one_cause_has_one_signature(texts):
    first, second = (signature(Kind.NEW_FAIL, text) for text in texts)
    assert first == second, (stable_cause(texts[0]), stable_cause(texts[1]))
    assert re.fullmatch(r"NEW_FAIL-[0-9a-f]{12}", first)


def test_different_causes_and_kinds_have_different_signatures():
    seen: dict[str, str] = {}
    for text in (*DIFFERENT, *(texts[0] for texts in ALIKE)):
        assert seen.setdefault(signature(Kind.NEW_FAIL, text), text) == text
    assert signature(Kind.NEW_FAIL, "timeout") != signature(Kind.NEW_CRASH, "timeout")
    assert signature(Kind.NEW_FAIL, "timeout") == signature("NEW_FAIL", "timeout")


def test_the_known_defects_have_different_signatures():
    entries = read_expected_failures().entries
    for texts in ({str(entry.seen) for entry in entries}, {f"known-defect ({entry.id})" for entry in entries}):
        assert len(texts) > 50
        assert len({signature(Kind.NEW_FAIL, text) for text in texts}) == len(texts)


def test_a_new_known_defect_is_its_entry_and_link():
    causes = [f"wrong numbers: mm-{number}, https://example.org/a.py" for number in (11733, 11526)]
    assert len({signature(Kind.NEW_KNOWN_DEFECT, cause) for cause in causes}) == 2


def test_a_cause_may_hold_anything():
    texts = ["", "\0", "\0\ue000", "\ud800", "https://x \0\ue000 #123", "#1234 " * 3000]
    assert len({signature(Kind.NEW_FAIL, text) for text in texts}) >= len(texts) - 1
    assert all(one != other for one, other in itertools.pairwise(map(stable_cause, texts[1:4])))


def test_the_json_names_the_signature_of_each_group():
    side = Side("a", {}, "quick", 0, 1, {})
    group = Group(Kind.NEW_FAIL, "cause 17", (Finding(Kind.NEW_FAIL, "x", "mm", "sm_90", "cause 17", "", ""),))
    data = json.loads(to_json(Comparison(side, side, (group,), 1, 0)))
    assert data["groups"][0]["signature"] == signature(Kind.NEW_FAIL, "cause 17")
