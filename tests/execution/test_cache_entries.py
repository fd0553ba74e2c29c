"""Damaged entries of Triton's cache are told from faults of the compiler, and nothing else is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conformance.execution.compile import cache_entries, cache_faults, compile_worker
from conformance.execution.compile.cache_entries import contents, contradiction, differing
from conformance.execution.compile.compilation import CompileRequest
from conformance.execution.compile.compile_worker import Compiler, suspicion
from conformance.judging.conform import CompiledPlan, cache_fault
from conformance.records import Status
from conformance.targets import Target
from tests.execution.sample_kernels import Sample

#: Triton's kernels cannot be destroyed if they could not be loaded.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SM90, SM100, GFX942 = Target("cuda", 90, 32), Target("cuda", 100, 32), Target("hip", "gfx942", 64)
STAGES = {
    SM90: ("ttir", "ttgir", "llir", "ptx", "cubin", "json"),
    GFX942: ("ttir", "ttgir", "llir", "amdgcn", "hsaco", "json"),
}


def request(target: Target, describe: str | None = None) -> CompileRequest:
    return CompileRequest("tests.execution.sample_kernels:launch", Sample("copy", offset=8), target)


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[Target, dict[str, bytes]]:
    """The files of one kernel for each target, as Triton makes them in a cache of this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        answers = {target: Compiler(None).answer(request(target)) for target in (*STAGES, SM100)}
    return {target: contents(answer.artefact.stages) for target, answer in answers.items() if answer.artefact}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Target], dict[str, Path]]:
    """Compiles the kernel for a target into a new cache and returns its files."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def compiled(target: Target) -> dict[str, Path]:
        answer = Compiler(None).answer(request(target))
        assert answer.artefact is not None
        assert not answer.artefact.cached
        return dict(answer.artefact.stages)

    return compiled


DAMAGES: dict[str, Callable[[bytes], bytes]] = {"empty": lambda content: b"", "no text": lambda content: b"\xff\xfe"}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("target", "stage"), [pytest.param(t, s, id=f"{t.id}-{s}") for t, stages in STAGES.items() for s in stages]
)
def test_a_damaged_file_is_a_fault_of_the_cache(
    cache: Callable[[Target], dict[str, Path]], target: Target, stage: str, damage: str
) -> None:
    files = cache(target)
    files[stage].write_bytes(DAMAGES[damage](files[stage].read_bytes()))
    answer = Compiler(None).answer(request(target))
    assert (answer.status, answer.artefact) == (Status.COMPILE_ERROR, None)
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.fault_class.value) == ("cache-suspect", "infrastructure")
    assert str(files[stage].parent) in answer.fault.text
    assert "delete that folder" in answer.fault.text


def test_a_kernel_of_another_target_in_its_place_is_seen(cache: Callable[[Target], dict[str, Path]]) -> None:
    mine, other = cache(SM90), cache(SM100)
    mine["cubin"].write_bytes(other["cubin"].read_bytes())
    mine["ptx"].write_bytes(other["ptx"].read_bytes())
    answer = Compiler(None).answer(request(SM90))
    assert answer.fault is not None
    assert "ptx is not for sm_90" in answer.fault.text


def test_metadata_of_another_entry_are_seen(cache: Callable[[Target], dict[str, Path]]) -> None:
    metadata = cache(SM90)["json"]
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"hash": "00" * 32}))
    answer = Compiler(None).answer(request(SM90))
    assert answer.fault is not None
    assert f"its metadata is of the entry {'A' * 52}" in answer.fault.text


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_file_that_is_gone_before_it_was_read_is_the_caches_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everywhere: bool
) -> None:
    """Another process empties the folder. A compiler that writes no file does so in an empty folder, too."""
    from triton.runtime.cache import FileCacheManager

    original = FileCacheManager.put_group

    def put_group(self: Any, name: str, group: dict[str, str]) -> Any:
        if everywhere or self.cache_dir.startswith(str(tmp_path)):
            next(Path(file) for file in group.values() if file.endswith(".json")).unlink()
        return original(self, name, group)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(FileCacheManager, "put_group", put_group)
    answer = Compiler(None).answer(request(SM90))
    assert answer.status is Status.COMPILE_ERROR
    assert "FileNotFoundError" in answer.error
    assert (answer.fault.kind if answer.fault else None) == (None if everywhere else "cache-suspect")


def test_a_file_that_is_removed_after_the_compilation_is_the_caches_fault(
    cache: Callable[[Target], dict[str, Path]],
) -> None:
    files = cache(SM90)
    compiled: Any = CompiledPlan(cast(Any, SimpleNamespace(stages=files)), {})
    files["ptx"].unlink()
    fault = cache_fault(cast(Any, None), cast(Any, None), compiled)
    assert fault is not None
    assert fault.text.startswith(f"{files['ptx']} was removed after it had been compiled")


def test_a_process_that_compiles_again_goes_on_with_other_targets(cache: Callable[[Target], dict[str, Path]]) -> None:
    """Triton keeps the target of each device's index for ever."""
    compiler = Compiler(None)
    for target in (SM100, SM90):
        cache(target)["json"].write_text("")
        assert compiler.answer(request(target)).fault is not None
    cached = Compiler(None).answer(request(GFX942))
    assert cached.artefact is not None
    assert suspicion((request(GFX942), cached.artefact.stages), GFX942) == ""


def test_a_compiler_that_makes_such_files_everywhere_is_to_blame(
    cache: Callable[[Target], dict[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache(SM90)
    monkeypatch.setattr("conformance.execution.compile.cache_entries.contradiction", lambda *_: "planted")
    answer = Compiler(None).answer(request(SM90))
    assert (answer.status, answer.fault) == (Status.PASS, None)


@pytest.mark.parametrize("stage", ["ttir", "ttgir", "llir", "ptx", "json"])
def test_a_text_that_the_compiler_does_not_make_is_suspect(
    cache: Callable[[Target], dict[str, Path]], stage: str
) -> None:
    files = cache(SM90)
    assert suspicion((request(SM90), files), SM90) == ""
    if stage == "json":
        files[stage].write_text(json.dumps(json.loads(files[stage].read_text()) | {"shared": 77}))
    else:
        files[stage].write_text(files[stage].read_text().replace("128", "256"))
    text = suspicion((request(SM90), files), SM90)
    assert text == f"{files[stage].parent} has another {stage} than two compilations in an empty folder"


def test_a_compiler_that_gives_nothing_twice_alike_is_no_fault_of_the_cache(
    cache: Callable[[Target], dict[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cache(SM90)
    numbers = iter(range(99))
    monkeypatch.setattr(compile_worker, "contents", lambda stages: {"ptx": b"%d" % next(numbers)})
    assert suspicion((request(SM90), files), SM90) == ""


@pytest.mark.parametrize(
    ("stage", "old", "new", "text"),
    [
        ("ptx", b".reqntid 128", b".reqntid 256", "ptx is for 256 threads, the metadata says 128"),
        ("ptx", b".target sm_90a", b".target sm_100a", "ptx is not for sm_90"),
        ("ttgir", b'"cuda:90"', b'"cuda:80"', "ttgir is not for sm_90"),
        ("llir", b"@tma_store_wgmma_tcgen05(", b"@other(", "llir has no kernel tma_store_wgmma_tcgen05"),
        ("cubin", b"tma_store_wgmma_tcgen05", b"tma_store_wgmma_tcgen06", "the binary has no kernel"),
        ("json", b'"num_warps": 4', b'"num_warps": 8', "ptx is for 128 threads, the metadata says 256"),
        ("json", b'"arch": 90', b'"arch": 80', "its metadata is for"),
        ("json", b'"name"', b'"nome"', "its metadata cannot be read"),
    ],
)
def test_metadata_and_code_are_compared(
    entries: dict[Target, dict[str, bytes]], stage: str, old: bytes, new: bytes, text: str
) -> None:
    files = entries[SM90]
    assert old in files[stage], "else nothing is planted"
    assert contradiction(files, SM90) == ""
    assert text in contradiction({**files, stage: files[stage].replace(old, new)}, SM90)


@pytest.mark.parametrize("target", [SM90, GFX942], ids=["nvidia", "amd"])
def test_a_binary_that_is_cut_off_is_seen_wherever(entries: dict[Target, dict[str, bytes]], target: Target) -> None:
    files, stage = entries[target], STAGES[target][-2]
    for part in range(1, 10):
        cut = files[stage][: len(files[stage]) * part // 10]
        assert "the binary" in contradiction({**files, stage: cut}, target)


def test_only_a_binary_is_enough_where_triton_stores_nothing_else(entries: dict[Target, dict[str, bytes]]) -> None:
    files = {stage: entries[SM90][stage] for stage in ("cubin", "json")}
    assert contradiction(files, SM90) == ""


@pytest.mark.parametrize("target", [SM90, GFX942], ids=["nvidia", "amd"])
def test_the_paths_of_another_machine_make_no_difference(
    entries: dict[Target, dict[str, bytes]], target: Target
) -> None:
    files = entries[target]
    root = str(Path(__file__).parents[2]).encode()
    moved = {stage: content.replace(root, b"/elsewhere") for stage, content in files.items() if stage[-2:] == "ir"}
    assert moved["ttir"] != files["ttir"], "else nothing is planted"
    assert differing(files, {**files, **moved}) == []
    assert differing(files, {**files, "ttir": b"", "json": b"{"}) == ["json", "ttir"]


def test_the_suite_of_damages_fails_if_the_harness_does_not_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {verdict.check: verdict.passed for verdict in cache_faults.damaged("empty", SM90).verdicts}
    assert all(seen.values())
    assert seen.keys() == {f"seen/{stage}" for stage in ("source", "group", *STAGES[SM90])}
    monkeypatch.setattr(cache_entries, "reads_noted", lambda: contextlib.nullcontext([]))
    blind = {verdict.check: verdict.passed for verdict in cache_faults.damaged("empty", SM90).verdicts}
    assert not blind["seen/json"]
    assert blind["seen/ttir"], "its text differs"


def test_the_suite_of_writers_fails_if_an_entry_is_of_two_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(writers: int, target: Target, pauses: object) -> list[int]:
        mine, others = cache_faults._files(4, target), cache_faults._files(8, target)
        mine["cubin"].write_bytes(others["cubin"].read_bytes())
        return [0, -9, 1]

    monkeypatch.setattr(cache_faults, "_compiled_by", pair)
    verdicts = cache_faults.written_at_once(False, SM90).verdicts
    assert [(verdict.check, verdict.passed) for verdict in verdicts] == [("whole/0", False), ("writers/0", False)]
    assert "different: cubin" in verdicts[0].text
