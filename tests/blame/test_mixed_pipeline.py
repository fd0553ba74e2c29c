"""Triton's compiler makes the same code of its own text wherever it is entered, and says what it cannot take."""

from __future__ import annotations

import pytest

from conformance.blame.inquiry import STAGES, StackProcess, ask_case
from conformance.blame.mixed_pipeline import _respelled
from conformance.blame.stack_process import Server
from conformance.gate.stacks.environments import prepare
from conformance.gate.stacks.stack_file import parse
from conformance.targets import compile_targets
from tests.releases import EARLIER

CASE = "test_transposition.py::test_transposed_operands[{}-order=row.row-static=False-{}]"
CASES = {
    "sm_80": CASE.format("int_mm-int8-64x64x32-s2-w4", "sm_80"),
    "sm_90": CASE.format("int_mm-int8-64x64x32-s2-w4", "sm_90"),
    "gfx942": CASE.format("mm-bf16-32x32x16-s1-w2", "gfx942"),
}
CHAINED = (
    "test_dynamic_shapes.py::test_awkward_sizes[mm_chained-tf32-64x64x32-s3-w4-chain2-sizes=primes-static=False-sm_100]"
)


@pytest.fixture(scope="module")
def server():
    server = Server(120)
    yield server
    server.close()


@pytest.fixture(scope="module", params=CASES)
def compiled(request, server, tmp_path_factory):
    """A kernel that was compiled for a target with a trace of its TTGIR, the target's stages and a folder."""
    if request.param not in {target.id for target in compile_targets()}:
        pytest.skip(f"the installed Triton cannot compile for {request.param}")
    folder = tmp_path_factory.mktemp("compiled")
    assert server.answer({"do": "plan", "case": CASES[request.param]})["functions"] != []
    answer = server.answer({"do": "compile", "launch": 0, "folder": str(folder / "own"), "trace": "ttgir"})
    assert answer["error"] == ""
    return answer, STAGES["amdgcn" if request.param == "gfx942" else "ptx"], folder


def entry(answer, stages, place, **fields):
    metadata = {name: value for stage in stages[:place] for name, value in answer["metadata"].get(stage, {}).items()}
    files = {stage: answer["stages"][stage] for stage in stages[:place]}
    return {"stage": stages[place - 1], "files": files, "metadata": metadata, "module": None, "passes": 0, **fields}


def assert_same(answer, other):
    """Both hold the same machine code."""
    assert other["error"] == ""
    assert other["resources"] == answer["resources"]
    assert other["code"] == answer["code"]
    assert answer["code"]["sha256"]


@pytest.mark.parametrize("place", range(1, 6))
def test_a_compilation_is_entered_behind_each_stage(server, compiled, place):
    answer, stages, folder = compiled
    request = {"do": "compile", "launch": 0, "entry": entry(answer, stages, place)}
    other = server.answer({**request, "folder": str(folder / f"stage-{place}")})
    assert_same(answer, other)


def test_a_compilation_is_entered_between_passes(server, compiled, tmp_path):
    answer, stages, folder = compiled
    count = len(answer["passes"])
    assert count > 10
    for at in (1, count // 2, count):
        inner = entry(answer, stages, 2, module=str(folder / "own" / f"{at}.mlir"), passes=at)
        other = server.answer({"do": "compile", "launch": 0, "entry": inner, "folder": str(tmp_path / str(at))})
        assert_same(answer, other)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (
            "%a: !tt.tensordesc<tensor<64x32xbf16, #s>>) -> !tt.ptr<f32>",
            "%a: !tt.tensordesc<64x32xbf16, #s>) -> !tt.ptr<f32>",
        ),
        ("%b = make %p : <bf16>, <tensor<32x32xbf16>> loc(#l)", "%b = make %p : <bf16>, <32x32xbf16> loc(#l)"),
        ("%a: tensor<64x32xf32>", "%a: tensor<64x32xf32>"),
    ],
)
def test_descriptors_are_spelled_as_other_releases_do(text, other):
    assert _respelled(text) == other
    assert _respelled(other) == text


def test_text_that_is_not_parsed_is_said(server, compiled, tmp_path):
    answer, stages, _ = compiled
    wrong = tmp_path / "wrong.ttgir"
    wrong.write_text("this is no module")
    inner = entry(answer, stages, 3)
    inner["files"]["ttgir"] = str(wrong)
    other = server.answer({"do": "compile", "launch": 0, "entry": inner, "folder": str(tmp_path / "compiled")})
    assert other["status"] == "compile-error"
    assert "CannotEnter: wrong.ttgir of the other compiler is not parsed" in other["error"]


def test_a_case_that_is_not_there_is_said(server):
    answer = server.answer({"do": "plan", "case": CASES["sm_90"].replace("row.row", "row.raw")})
    assert answer["status"] == "compile-error"
    assert "there is no case" in answer["error"]


def test_a_process_plans_in_its_own_stack(tmp_path):
    process = StackProcess(prepare([parse("current")], tmp_path / "cache", True, print)[0], tmp_path / "process", 60)
    try:
        assert process.ask("plan", case=CASES["sm_90"])["functions"] == ["gemm_integer"]
    finally:
        process.close()


@pytest.mark.long(50)
@pytest.mark.skipif(not EARLIER.exists(), reason=f"needs a second Triton in {EARLIER}: make test installs it")
def test_a_known_defect_is_attributed(tmp_path):
    """https://github.com/triton-lang/triton/issues/10821: 3.6 to 3.8 read a sum before the last product is over, from
    TTGIR on."""
    good, bad = prepare([parse("current"), parse(f"site={EARLIER}")], tmp_path / "cache", True, print)
    (tmp_path / "compiled").mkdir()
    answer = ask_case(CHAINED, good, bad, tmp_path / "compiled", symptoms=("wrong in an order",))
    (launch,) = answer.launches
    (one,) = launch.attributions
    assert one.blame.span is not None
    assert launch.stages[one.blame.span.first - 1 : one.blame.span.last] == ("ttgir",)
    assert one.blame.agreed is True
    assert one.passes[0].bad == ("add_hoist_tmem_alloc",)
