"""The table of the faults that the self-test plants: what is planted, and how an ordinary run must report it.

A fault is in the kernel's source (``edits``), in its host code (``host``), or in the processes of the run (``run``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from conformance.faults import FaultKind
from conformance.records import Status

TILES, POINTER, TMA = "tiles", "pointer", "persistent_tma"

#: The statuses of a case whose kernel fails a check, or takes its process down.
FAIL, CRASH, TIMEOUT, OOM = ((status.value,) for status in (Status.FAIL, Status.CRASH, Status.TIMEOUT, Status.OOM))
NUMERICS, MEMORY, REPEAT = ("numerics/",), ("memory/",), ("repeat/",)


@dataclass(frozen=True)
class Edit:
    """Replaces ``old`` by ``new`` in a module of device functions, where it must occur exactly once."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class PlantedFault:
    """A fault, with a sentence that says what is ``planted``. The case of its kernel must end with one of ``statuses``.
    If it fails, the first check that failed must begin with one of ``checks``. Its diagnosis must hold ``words``.
    ``kinds`` are the kinds of the machine's fault of which the record must name one; "" stands for none.

    ``kernel`` is the kernel of the catalogue that has the fault, ``entry`` the name of its device function if an edit
    renames it. ``host`` names an action of :mod:`conformance.selftest.host_faults`, ``run`` those on the run itself.
    Each leaves a mark when it acts. ``device``: the fault needs a GPU. ``second_run``: it is planted in the second run.
    """

    name: str
    planted: str
    statuses: tuple[str, ...]
    checks: tuple[str, ...] = ()
    words: str = ""
    kinds: tuple[str, ...] = ("",)
    kernel: str = "mm"
    edits: tuple[Edit, ...] = ()
    entry: str = ""
    host: str = ""
    run: tuple[str, ...] = ()
    device: bool = False
    second_run: bool = False

    @property
    def planted_kernel(self) -> str:
        """The name of the kernel with the fault."""
        return f"planted_{self.name.replace('-', '_')}"

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks that the fault leaves when it acts. A fault that is only in the source leaves none."""
        return tuple(name for name in (self.host, *self.run) if name)

    @property
    def expected(self) -> str:
        """Returns a text such as "fail by numerics/" for the table."""
        kind = f" ({' or '.join(filter(None, self.kinds))})" if any(self.kinds) else ""
        by = f" by {' or '.join(self.checks)}" if self.checks else ""
        return f"{' or '.join(self.statuses)}{by}{kind}"

    @property
    def unplanted(self) -> PlantedFault:
        """The same without the fault: the self-test must report it."""
        return replace(self, edits=(), entry="", host="", run=())


_STORE = "inside = (rm < M)[:, None] & (rn < N)[None, :]\n    target = c_ptr"
_TARGET = "target = c_ptr + rm[:, None] * stride_cm"
_VALUES = "tl.store(target, values.to(c_ptr.dtype.element_ty), mask=inside)"
_CALL = (
    "    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)\n\n\n@triton.jit\ndef gemm_batched("
)


def _stored(old: str, new: str) -> tuple[Edit, ...]:
    return (Edit(TILES, _STORE, _STORE.replace(old, new)),)


def _before_store(line: str) -> tuple[Edit, ...]:
    return (Edit(POINTER, _CALL, f"    {line}\n{_CALL}"),)


def _renamed(name: str) -> tuple[Edit, ...]:
    return (Edit(POINTER, "def gemm_pointer(", f"def {name}("),)


FAULTS: tuple[PlantedFault, ...] = (
    PlantedFault(
        "wrong-tile",
        "each tile of the result is stored where the tile of the mirrored row belongs",
        FAIL,
        NUMERICS,
        edits=_before_store("rm = (tl.cdiv(M, BLOCK_M) - 1 - tile_m) * BLOCK_M + tl.arange(0, BLOCK_M)"),
    ),
    PlantedFault(
        "stale-buffer",
        "the second block of k is multiplied with the block of A that the first one had",
        FAIL,
        NUMERICS,
        edits=(
            Edit(
                TILES,
                "        a_tile += step * stride_ak\n        b_tile += step * stride_bk\n    return acc",
                "        a_tile += tl.where(k == 0, 0, step) * stride_ak\n"
                "        b_tile += step * stride_bk\n    return acc",
            ),
        ),
    ),
    PlantedFault(
        "unwritten-output",
        "the last row of the result is not stored",
        FAIL,
        NUMERICS,
        "not written",
        edits=_stored("rm < M", "rm < M - 1"),
    ),
    PlantedFault(
        "write-out-of-bounds",
        "one row more than the result has is stored",
        FAIL,
        MEMORY,
        edits=_stored("rm < M", "rm <= M"),
    ),
    PlantedFault(
        "read-beyond-page",
        "rows of A are loaded past the last one, which lies at the end of a mapped page",
        (*FAIL, *CRASH),
        MEMORY,
        edits=(
            Edit(
                TILES,
                "    a_mask = (rm < M)[:, None]\n    b_mask = (rn < N)[None, :]\n    acc = tl.zeros",
                "    a_mask = (rm >= 0)[:, None]\n    b_mask = (rn < N)[None, :]\n    acc = tl.zeros",
            ),
        ),
    ),
    PlantedFault(
        "illegal-address",
        "the result is stored terabytes away from its memory",
        (*FAIL, *CRASH),
        MEMORY,
        edits=(Edit(TILES, _TARGET, _TARGET.replace("c_ptr", "c_ptr + (rm[:, None] >= 0).to(tl.int64) * (1 << 40)")),),
    ),
    PlantedFault(
        "misaligned-descriptor",
        "the descriptor of A begins 18 bytes after A, and a multiple of 16 is required",
        (*FAIL, *CRASH),
        (*NUMERICS, *MEMORY),
        kernel="mm_persistent_tma",
        edits=(
            Edit(
                TMA,
                "a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])",
                "a_desc = tl.make_tensor_descriptor(a_ptr + 9, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])",
            ),
        ),
        device=True,
    ),
    PlantedFault(
        "infinite-kernel-loop",
        "each program of the kernel waits for ever before it stores",
        TIMEOUT,
        words="past its deadline",
        second_run=True,
        edits=_before_store("while tile_m >= 0:\n        tl.debug_barrier()"),
    ),
    PlantedFault(
        "compiler-abort",
        "the compiler aborts while it compiles the kernel",
        CRASH,
        words="the compiler died",
        edits=_renamed("compiler_abort"),
        entry="compiler_abort",
        host="abort_compiler",
    ),
    PlantedFault(
        "compiler-hang",
        "the compiler does not end while it compiles the kernel",
        TIMEOUT,
        words="compilation did not end",
        edits=_renamed("compiler_hang"),
        entry="compiler_hang",
        host="hang_compiler",
    ),
    PlantedFault(
        "host-segfault",
        "the host code of the kernel reads address 0",
        CRASH,
        words="process died",
        host="segfault",
    ),
    PlantedFault(
        "out-of-memory",
        "the host code of the kernel asks for 2**50 bytes",
        OOM,
        kinds=("", FaultKind.LIMIT.value),
        host="exhaust_memory",
    ),
    PlantedFault(
        "swallowed-error",
        "the host code of the kernel catches an error of its launch, and launches nothing",
        FAIL,
        NUMERICS,
        "not written",
        host="swallow_error",
    ),
    PlantedFault(
        "swallowed-device-error",
        "the host code of the kernel causes an illegal access, catches the error and goes on",
        (*FAIL, *CRASH),
        MEMORY,
        host="swallow_device_error",
        device=True,
    ),
    PlantedFault(
        "nondeterministic-kernel",
        "each second launch of the kernel gives slightly larger numbers",
        FAIL,
        REPEAT,
        edits=_before_store("acc = acc * (1 + beta / 256)"),
        host="alternate",
    ),
    PlantedFault(
        "one-changed-bit",
        "the lowest bit of the first element of the result is inverted",
        FAIL,
        NUMERICS,
        edits=(
            Edit(
                TILES,
                _VALUES,
                "values = values.to(c_ptr.dtype.element_ty)\n"
                "    inverted = (values.to(tl.int16, bitcast=True) ^ 1).to(c_ptr.dtype.element_ty, bitcast=True)\n"
                "    first = (rm == 0)[:, None] & (rn == 0)[None, :]\n"
                "    tl.store(target, tl.where(first, inverted, values), mask=inside)",
            ),
        ),
    ),
    PlantedFault(
        "killed-worker",
        "the worker that runs the case gets SIGKILL, as from a system that is out of memory",
        CRASH,
        kinds=(FaultKind.KILLED.value,),
        host="kill_worker",
        second_run=True,
    ),
    PlantedFault(
        "worker-killed-at-start",
        "a worker gets SIGKILL before its first message, at the start of the run and when it replaces one that died",
        CRASH,
        kinds=(FaultKind.KILLED.value,),
        host="kill_worker",
        run=("kill_first_start", "kill_replacement"),
        second_run=True,
    ),
    PlantedFault(
        "damaged-cache",
        "each file of the kernel in Triton's cache is cut to half its length, as by a writer that was killed",
        (Status.COMPILE_ERROR.value, *FAIL, *CRASH),
        kinds=(FaultKind.CACHE_SUSPECT.value,),
        edits=_renamed("damaged_cache"),
        entry="damaged_cache",
        run=("damage_cache",),
        second_run=True,
    ),
)
