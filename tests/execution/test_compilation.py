"""The compile pool: every way in which a compiler can end is the result of one request, and nothing ever waits."""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from conformance import targets
from conformance.execution.compile import compilation
from conformance.execution.compile.compilation import (
    CompilePool,
    CompilePools,
    CompileRequest,
    CompileResult,
    Task,
    child_environment,
    process_group,
)
from conformance.execution.compile.compile_worker import processor_seconds
from conformance.execution.compile.fork_server import ForkServer
from conformance.execution.compile.specialisation import specialisation
from conformance.gate.runs.failure_causes import compiler_cause
from conformance.records import FaultClass, FaultKind, Reason, ReasonCode, Status
from conformance.targets import Target, find
from tests.execution.sample_kernels import Sample, compiled, launch, pool, submit

SAMPLES = "tests.execution.sample_kernels"
COPY = Sample("copy")
#: Seconds: a loaded machine compiles a sample in less.
DEADLINE = 5.0
SM80, SM90 = Target("cuda", 80, 32), Target("cuda", 90, 32)


def request(function: str, payload: object, target: Target = SM80) -> CompileRequest:
    return CompileRequest(f"{SAMPLES}:{function}", payload, target)


def ask(where: CompilePool, function: str, payload: object) -> CompileResult:
    return where.submit(request(function, payload)).result(timeout=120)


def gone(pid: int, seconds: float = 20) -> bool:
    """Returns True if process ``pid`` ends within ``seconds``, or is a zombie whose status was not collected."""
    for _ in range(int(seconds * 20)):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def faulty() -> Iterator[CompilePool]:
    """One worker with a short deadline, for the requests that go wrong."""
    with CompilePool(1, deadline=DEADLINE) as workers:
        yield workers


@pytest.fixture(scope="module")
def single() -> Iterator[CompilePool]:
    """One worker, so that all its requests are served by one process."""
    with CompilePool(1) as workers:
        yield workers


# What comes back


def test_two_targets_in_one_process_get_their_own_code(single: CompilePool) -> None:
    samples = (Sample("copy", offset=3), SM90), (Sample("copy", offset=3), SM80), (Sample("copy", offset=5), SM90)
    artefacts = [single.submit(request("launch", *sample)).result().artefact for sample in samples]
    assert [artefact.target_id for artefact in artefacts] == ["sm_90", "sm_80", "sm_90"]
    assert [artefact.metadata["target"]["arch"] for artefact in artefacts] == [90, 80, 90]
    assert ".target sm_90a" in artefacts[0].text("ptx")
    assert ".target sm_80" in artefacts[1].text("ptx")


@pytest.mark.parametrize(
    ("target", "stages"),
    [
        ("sm_90", {"source", "ttir", "ttgir", "llir", "ptx", "cubin", "json"}),
        ("gfx942", {"source", "ttir", "ttgir", "llir", "amdgcn", "hsaco", "json"}),
    ],
)
def test_stages_are_files(target: str, stages: set[str]) -> None:
    artefact = compiled(COPY, find(target))
    assert stages <= set(artefact.stages)
    assert all(path.stat().st_size for path in artefact.stages.values())
    assert artefact.metadata["name"] == artefact.kernel_name == "tma_store_wgmma_tcgen05"
    with pytest.raises(KeyError, match="has no stage 'wasm'"):
        artefact.text("wasm")


def test_host_descriptors_compile_without_memory() -> None:
    assert "tt.descriptor_load" in compiled(Sample("host"), SM90).text("ttir")


def test_alignment_comes_from_the_offset_of_a_tensor_without_memory() -> None:
    aligned, shifted = compiled(COPY, SM90), compiled(Sample("copy", offset=1), SM90)
    assert aligned.key != shifted.key
    assert aligned.text("ttir").count("tt.divisibility") == shifted.text("ttir").count("tt.divisibility") + 1


def test_equal_requests_and_equal_specialisations_are_compiled_once(single: CompilePool) -> None:
    assert submit(COPY, SM90) is submit(Sample("copy"), SM90)
    first, second = (single.submit(request("launch", Sample("copy", size=n), SM90)).result() for n in (256, 512))
    assert first.artefact is not None
    assert first.artefact == second.artefact


def test_as_many_compilations_as_specialisations_predict() -> None:
    samples = [Sample("copy", size=n, offset=o) for n in (1, 17, 33, 48, 64, 96) for o in (0, 1, 8)]
    handles = [submit(sample, SM90) for sample in samples]
    artefacts = [handle.result().artefact for handle in handles]
    predicted = {specialisation(launch(sample, SM90), SM90).key for sample in samples}
    assert {artefact.key for artefact in artefacts if artefact} == predicted
    assert len({artefact.metadata["hash"] for artefact in artefacts if artefact}) == len(predicted) == 6


def test_a_task_returns_a_value(single: CompilePool) -> None:
    result = single.submit(Task(f"{SAMPLES}:described", (1, 2), SM90)).result()
    assert (result.status, result.value, result.artefact, result.reason) == (Status.PASS, ("sm_90", (1, 2)), None, None)
    assert single.submit(Task(f"{SAMPLES}:described", (1, 2), SM80)).result().value == ("sm_80", (1, 2))


# What goes wrong


def test_a_reason_comes_back_with_its_error(single: CompilePool) -> None:
    result = single.submit(Task(f"{SAMPLES}:refused", "planted", SM90)).result()
    assert (result.status, result.value) == (Status.COMPILE_ERROR, None)
    assert result.reason == Reason(ReasonCode.CAPABILITY, "planted", "it is not there")
    assert "NotApplicable" in result.error


def test_a_value_that_cannot_be_pickled_is_an_error(single: CompilePool) -> None:
    result = single.submit(Task(f"{SAMPLES}:unpicklable", None, SM90)).result()
    assert (result.status, "pickle" in result.error) == (Status.COMPILE_ERROR, True)


def test_a_compile_error_says_what_and_where() -> None:
    result = submit(Sample("broken"), SM90).result()
    assert (result.status, result.artefact) == (Status.COMPILE_ERROR, None)
    assert "no_such_name" in result.error
    assert result.fault is None
    assert compiler_cause(result.error) == "CompilationError: NameError('no_such_name is not defined')"


def test_what_the_compiler_wrote_is_in_the_error() -> None:
    # 32 registers are too few for the instruction that sm_90 must use; only the assembler's output says so
    result = submit(Sample("pointer", block=(128, 128, 64), maxnreg=32), SM90).result()
    assert result.status is Status.COMPILE_ERROR
    assert "register" in result.error.lower()
    assert str(compiler_cause(result.error)).startswith("ptxas: ")


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
def test_a_crash_is_one_requests_result(faulty: CompilePool, number: signal.Signals) -> None:
    result = ask(faulty, "die", int(number))
    assert (result.status, result.artefact) == (Status.CRASH, None)
    assert number.name in result.error
    assert result.fault is None, "the compiler did that itself"
    assert "LLVM ERROR: planted" in result.error
    assert compiler_cause(result.error) == "LLVM ERROR: planted"
    assert ask(faulty, "launch", COPY).status is Status.PASS


ENDINGS = {
    "exit": (Status.CRASH, "exit status 0"),
    "SystemExit": (Status.CRASH, "exit status 0"),
    "KeyboardInterrupt": (Status.CRASH, "the compiler died"),
    "the lock": (Status.TIMEOUT, f"did not end within {DEADLINE:g} s"),
    "a long message": (Status.COMPILE_ERROR, "planted"),
    "no memory": (Status.OOM, "planted"),
    "no memory for a process": (Status.OOM, "planted"),
    "no memory, said by the code generator": (Status.OOM, "planted"),
    "no memory for the assembler": (Status.OOM, "planted"),
    "no memory for LLVM": (Status.OOM, "planted"),
    "a lone surrogate": (Status.COMPILE_ERROR, "planted \udc80"),
    "output": (Status.PASS, ""),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_every_ending_of_a_compiler_is_one_requests_result(faulty: CompilePool, how: str) -> None:
    status, text = ENDINGS[how]
    result = ask(faulty, "leave", how)
    assert result.status is status
    assert text in result.error
    assert ask(faulty, "launch", COPY).status is Status.PASS


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/proc/no-cache")
    with CompilePool(1) as workers:
        result = ask(workers, "launch", COPY)
    assert result.status is Status.COMPILE_ERROR
    assert "/proc/no-cache" in result.error
    assert result.fault is not None
    assert (result.fault.fault_class, result.fault.kind) == (FaultClass.INFRASTRUCTURE, FaultKind.FILES.value)


def test_a_cache_whose_files_were_cut_short_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        with CompilePool(1) as workers:
            assert ask(workers, "launch", COPY).status is Status.PASS
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert files
        for file in files:
            os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("garbage", [b"what a library prints\n", b"\0\0\0\3abc", b"\xff" * 8, bytes(64)])
def test_garbage_in_the_pipe_of_answers_ends_the_request_at_once(garbage: bytes) -> None:
    with CompilePool(1, deadline=50.0) as workers:
        started = time.monotonic()
        result = ask(workers, "garble", garbage)
        assert time.monotonic() - started < 30
        assert result.status is Status.CRASH
        assert f"something wrote {garbage[:8]!r} into the pipe of the compiler's answers" in result.error
        assert ask(workers, "described", COPY).status is not Status.CRASH  # the process was replaced


def test_a_hang_ends_at_its_deadline_with_the_processes_it_started(faulty: CompilePool, tmp_path: Path) -> None:
    started = time.monotonic()
    result = ask(faulty, "hang", str(tmp_path / "pid"))
    assert result.status is Status.TIMEOUT
    assert time.monotonic() - started < 20
    assert f"did not end within {DEADLINE:g} s" in result.error
    assert "in hang" in result.error  # the Python stack
    assert gone(int((tmp_path / "pid").read_text()))
    assert ask(faulty, "launch", Sample("copy", offset=2)).status is Status.PASS


def test_a_compiler_that_takes_too_much_memory_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 2**30
    monkeypatch.setattr(compilation, "MEMORY_LIMIT", limit)
    with CompilePool(1, deadline=120.0) as pool:
        result = ask(pool, "hungry", 2 * limit)
        assert (result.status, result.artefact) == (Status.OOM, None)
        assert "GiB of memory, 1.0 GiB are allowed" in result.error
        assert ask(pool, "launch", COPY).status is Status.PASS


def test_a_compiler_that_the_system_kills_ran_out_of_memory(faulty: CompilePool) -> None:
    result = ask(faulty, "die", int(signal.SIGKILL))
    assert result.status is Status.OOM
    assert "killed from outside" in result.error
    assert result.fault is not None
    assert result.fault.kind == FaultKind.KILLED.value


def test_slow_is_not_late(faulty: CompilePool) -> None:
    assert ask(faulty, "stubborn", 0.5).status is Status.PASS


def test_a_pause_of_all_processes_is_no_time_of_the_compiler(faulty: CompilePool) -> None:
    assert ask(faulty, "paused", os.getpid()).status is Status.PASS


@pytest.mark.parametrize(
    ("factory", "text"),
    [("no.such.module:launch", "No module named"), (f"{SAMPLES}:no_such_function", "no_such_function")],
)
def test_a_factory_that_is_not_there(factory: str, text: str) -> None:
    result = pool().submit(CompileRequest(factory, COPY, SM80)).result()
    assert (result.status, text in result.error) == (Status.COMPILE_ERROR, True)


def test_a_child_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ForkServer(child_environment())
    monkeypatch.setattr(compilation, "fork_server", lambda preloaded: server)
    with CompilePool(1) as broken:
        with monkeypatch.context() as planted:
            planted.setattr(sys, "path", ["/nowhere"])
            result = broken.submit(CompileRequest("a:b", 1, SM80)).result(timeout=60)
        assert result.status is Status.CRASH
        assert "did not start" in result.error
        assert result.fault is not None
        assert result.fault.kind == FaultKind.PROCESS.value
        assert "No module named" in result.error
        assert broken.submit(request("launch", COPY)).result().status is Status.PASS, "a lost server is replaced"


def test_what_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pool().submit(request("launch", lambda: None))


@pytest.mark.parametrize(("workers", "deadline"), [(0, 1.0), (1, 0.0)])
def test_a_pool_needs_workers_and_time(workers: int, deadline: float) -> None:
    with pytest.raises(ValueError, match="must be above zero"):
        CompilePool(workers, deadline)


# The process


def test_another_pool_finds_what_was_compiled_never_interprets_and_sees_no_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = compiled(COPY, SM90)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in child_environment()
    with CompilePool(1, artefact_dir=tmp_path) as other:
        reused = other.submit(request("launch", COPY, SM90)).result().artefact
        error = other.submit(request("environment", ("TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"))).result().error
    assert reused is not None
    assert reused.cached
    assert {path.relative_to(tmp_path).parts[0] for path in reused.stages.values()} == {"sm_90"}
    assert (reused.key, reused.resources, reused.text("ptx")) == (first.key, first.resources, first.text("ptx"))
    assert "{'TRITON_INTERPRET': None, 'CUDA_VISIBLE_DEVICES': ''} interpret=False cuda=False" in error


def test_close_ends_what_runs_and_cancels_what_waits(tmp_path: Path) -> None:
    one = CompilePool(1, deadline=300)
    running = one.submit(request("hang", str(tmp_path / "pid")))
    waiting = one.submit(request("launch", COPY))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.05)
    started = time.monotonic()
    one.close()
    assert time.monotonic() - started < 5
    for handle in (running, waiting):
        with pytest.raises(concurrent.futures.CancelledError):
            handle.result(timeout=5)
    assert gone(int((tmp_path / "pid").read_text()))
    one.close()
    with pytest.raises(RuntimeError, match="closed"):
        one.submit(request("launch", COPY))


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import os, time
        from conformance.execution.compile.compilation import CompilePool, CompileRequest
        from conformance.targets import Target
        pool = CompilePool(1, deadline=300)
        pool.submit(CompileRequest("{SAMPLES}:hang", {str(tmp_path / "pid")!r}, Target("cuda", 80, 32)))
        while not os.path.exists({str(tmp_path / "pid")!r}):
            time.sleep(0.05)
        time.sleep(0.2)
        child = next(iter(pool._workers))._child.process.pid
        print(child, flush=True)
        os._exit(1)
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert gone(int(done.stdout)), done.stderr
    assert gone(int((tmp_path / "pid").read_text()))


def test_results_can_be_pickled() -> None:
    result = submit(COPY, SM90).result()
    assert pickle.loads(pickle.dumps(result)) == result


def test_waiting_is_no_compile_time():
    started = processor_seconds()
    time.sleep(0.3)
    assert processor_seconds() - started < 0.2
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert processor_seconds() - started >= 0.3, "an assembler is a child"


def test_architectures_with_and_without_fp8_never_share_a_process():
    """Up to Triton 3.6 the conversions of the first one compiled for would be used for the others."""
    groups = {name: process_group(targets.Target("cuda", name, 32)) for name in (75, 80, 86, 89, 90, 100, 120)}
    assert groups[75] == groups[80] == groups[86] != groups[89] != groups[90] == groups[100] == groups[120]
    assert groups[75] != groups[90]
    others = {process_group(targets.Target("hip", name, 64)) for name in ("gfx942", "gfx950", "gfx1201")}
    assert len(others) == 3
    assert not others & set(groups.values())


@pytest.mark.parametrize("specs", [("sm_90", "sm_80"), ("gfx950", "gfx942", "gfx1201")])
def test_pools_compile_fp8_for_one_architecture_after_the_other(specs):
    pools = CompilePools(1, 120.0)
    try:
        for spec in specs:
            sample = Sample("widened", torch.float8_e5m2)
            request = CompileRequest("tests.execution.sample_kernels:launch", sample, targets.find(spec))
            result = pools.submit(request).result()
            assert result.status is Status.PASS, result.error
    finally:
        pools.close()
