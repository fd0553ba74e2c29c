"""Plants faults in a cache of Triton's, and says what Triton and this harness make of each.

A compile process calls these functions. Each uses a new folder as the cache.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
import triton.language as tl

from conformance.execution.compile.cache_entries import contents, differing, empty_cache
from conformance.execution.compile.compilation import CompileRequest
from conformance.execution.compile.compile_worker import Compiler, by_triton, stage_files
from conformance.faults import FaultKind
from conformance.kernels.launch import Launch
from conformance.records import Verdict
from conformance.targets import Target

#: Processes that compile one kernel at the same time.
WRITERS = 4
#: How often some of them are killed while they write.
ROUNDS = 4


@triton.jit
def _doubled(x_ptr, y_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)


def launch(warps: int, target: Target) -> Launch:
    """Returns the launch of a small kernel."""
    x, y = (torch.empty(1024, dtype=torch.float16, device="meta") for _ in range(2))
    return Launch(_doubled, (8,), {"x_ptr": x, "y_ptr": y, "BLOCK": 128}, {"num_warps": warps})


@dataclass(frozen=True)
class Outcome:
    """Has the verdicts on one kind of fault, and by stage what Triton did."""

    verdicts: tuple[Verdict, ...]
    triton: Mapping[str, str]


def _flipped(content: bytes, other: bytes) -> bytes:
    """Returns ``content`` with a bit changed in every sixteenth part of it, so that one is in what counts."""
    changed = bytearray(content)
    for place in range(len(content) // 32, len(content), max(1, len(content) // 16)):
        changed[place] ^= 1
    return bytes(changed)


#: What becomes of a file, given its content and that of the same kernel with more warps.
DAMAGES: dict[str, Callable[[bytes, bytes], bytes | None]] = {
    "flipped": _flipped,
    "cut-off": lambda content, other: content[: len(content) // 2],
    "empty": lambda content, other: b"",
    "missing": lambda content, other: None,
    "swapped": lambda content, other: other,
}


def damaged(damage: str, target: Target) -> Outcome:
    """Damages, as a ``Task``, each file of an entry in turn and has Triton, then the harness, take the entry."""
    verdicts, seen = [], {}
    with empty_cache():
        paths = _files(4, target)
        right, others = contents(paths), contents(_files(8, target))
        group = paths["json"].with_name(f"__grp__{paths['json'].name}")
        files, whole = {**paths, "group": group}, {**right, "group": group.read_bytes()}
        for stage, path in files.items():
            wrong = DAMAGES[damage](whole[stage], others.get(stage, b"{}"))
            _write(path, wrong)
            seen[stage], served = _taken(target)
            _write(path, wrong)  # Triton may have compiled it again
            named = _named(target, right)
            safe = not differing(right, served) if served is not None else False
            text = f"Triton {seen[stage]}; the harness {named or 'takes it'}"
            verdicts.append(Verdict(f"seen/{stage}", bool(named) or safe, text))
            for restored, content in whole.items():
                _write(files[restored], content)
    return Outcome(tuple(verdicts), seen)


def _write(path: Path, content: bytes | None) -> None:
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)


def _taken(target: Target) -> tuple[str, dict[str, bytes] | None]:
    """Says what Triton makes of the entry, with the files that it takes."""
    before = time.time()
    try:
        files = _files(4, target)
    except Exception as error:  # whatever a damaged file makes it raise
        return f"raises {type(error).__name__}", None
    again = files["json"].stat().st_mtime >= before
    return "compiles it again" if again else "takes it", contents(files)


def _files(warps: int, target: Target) -> dict[str, Path]:
    """Returns the file of each stage of the kernel with so many warps, as Triton gives them."""
    return {Path(path).suffix[1:]: Path(path) for path in stage_files(by_triton(launch(warps, target), target))}


def _named(target: Target, right: Mapping[str, bytes]) -> str:
    """Says how the harness names the entry; empty if it takes it as right."""
    answer = Compiler(None).answer(CompileRequest(f"{__name__}:launch", 4, target))
    if answer.fault is not None and answer.fault.kind == FaultKind.CACHE_SUSPECT.value:
        return "calls the cache suspect at once"
    if answer.artefact is None:
        return ""
    stages = differing(contents(answer.artefact.stages), right)
    return f"calls the cache suspect if a case fails: another {', '.join(stages)}" if stages else ""


def written_at_once(killed: bool, target: Target) -> Outcome:
    """Has, as a ``Task``, several processes compile one kernel into an empty cache at once. Some are killed if
    ``killed``. Triton must take a right kernel from it afterwards."""
    with empty_cache():
        right = contents(_files(4, target))
    with empty_cache():  # without what a first compilation imports
        started = time.monotonic()
        _files(4, target)
        seconds = time.monotonic() - started
    draws, verdicts, seen = random.Random(0), [], {}
    for number in range(ROUNDS if killed else 1):
        with empty_cache():
            endings = _compiled_by(WRITERS, target, [draws.uniform(0, seconds) for _ in range(1, WRITERS) if killed])
            seen[f"round {number}"], served = _taken(target)
            left = sum(1 for path in Path(os.environ["TRITON_CACHE_DIR"]).rglob("tmp.pid_*"))
        stages = differing(right, served) if served is not None else ["everything"]
        wrong = [code for code in endings if code not in (0, *([-signal.SIGKILL] if killed else []))]
        text = f"afterwards Triton {seen[f'round {number}']}; {left} unfinished files stay"
        verdicts.append(Verdict(f"whole/{number}", not stages, f"{text}; different: {', '.join(stages) or 'nothing'}"))
        verdicts.append(Verdict(f"writers/{number}", not wrong, f"ended with {endings}"))
    return Outcome(tuple(verdicts), seen)


def _compiled_by(writers: int, target: Target, pauses: Sequence[float]) -> list[int]:
    """Forks processes that compile at once, and kills some of them, each after one of ``pauses``, in seconds. Returns
    how they ended."""
    with _pipe() as (begin, go):
        processes = [_forked(begin, target) for _ in range(writers)]
        os.write(go, b"x" * writers)
    started = time.monotonic()
    for process, pause in zip(processes[1:], sorted(pauses), strict=False):
        time.sleep(max(0.0, started + pause - time.monotonic()))
        os.kill(process, signal.SIGKILL)  # one that has ended waits to be asked how
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def _forked(begin: int, target: Target) -> int:
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.read(begin, 1)
            by_triton(launch(4, target), target)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)
