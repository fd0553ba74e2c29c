"""Targets for which kernels are compiled or run: real devices, compile-only targets, and the capabilities of each.

To add a target, add a row to :data:`KNOWN`. What the rest of the package needs to know of it is a field of that row or
a capability. Architectures decide elsewhere only where this module is no help: in Inductor's own data
(:mod:`conformance.heuristics`) and in what a reproducer copies (:mod:`conformance.reproducers.copied`).

What a target can do has two sources, never a version string. One is the hardware's facts (the rows), the other what the
installed Triton offers: importable modules, backend options and the tools in its wheel. torch and triton are imported
when they are first asked, so importing this module is cheap.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import mmap
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.machine.entry_point_loading import OutsideError, taken, things
from conformance.records import Reason, ReasonCode

ENTRY_POINTS = "conformance.targets"


KIB = 1024


@dataclass(frozen=True)
class MatrixUnit:
    """The rule by which a matrix unit adds products: the figures that the error bounds of a product are computed from.

    ``alignment_bits``: bits that remain of each product when a step aligns them. ``products``: how many products one
    step adds, by bytes of an operand's element. ``fp8_bits``: bits that remain of an fp8 product, and of the sum of 32
    of them, where they are fewer. ``assumed``: neither a published model nor a measurement confirms these figures.
    """

    alignment_bits: int
    products: Mapping[int, int]
    fp8_bits: int | None = None
    assumed: bool = False


AMPERE = MatrixUnit(24, {4: 4, 2: 8, 1: 16})
ADA = replace(AMPERE, fp8_bits=13)
BLACKWELL = MatrixUnit(25, {4: 8, 2: 16, 1: 32})
HOPPER = replace(BLACKWELL, fp8_bits=13)
BLACKWELL_ASSUMED = replace(BLACKWELL, assumed=True)
AMD = MatrixUnit(24, {4: 8, 2: 8, 1: 8}, assumed=True)
#: Hardware without a row: the figures with the widest bounds.
UNKNOWN = MatrixUnit(24, {4: 4, 2: 8, 1: 8}, assumed=True)


#: Figures that a calibration given to this run measured, by target id.
CALIBRATED_UNITS: dict[str, MatrixUnit] = {}


@dataclass(frozen=True)
class Architecture:
    """A compile-only target that is looked for in the installed Triton, and facts of the product it is named after.

    ``shared_memory``: bytes (LDS) that one block may ask for. NVIDIA's are from the CUDA programming guide's technical
    specifications per compute capability. AMD's are from the CDNA3, CDNA4 and RDNA4 ISA guides, gfx1250's from LLVM's
    AMDGPU target. ``multiprocessors``: SMs or compute units of the product, which sets the grid of a persistent kernel.
    ``threads``: the most that one multiprocessor holds (CUDA programming guide; AMD: what HIP reports). ``claims``: the
    profiles of ``data/profiles.toml`` that it claims. ``inductor``: without a device, Inductor generates code for it
    although no target was asked for.
    """

    backend: str
    arch: int | str
    product: str
    shared_memory: int
    multiprocessors: int | None
    threads: int = 1536
    unit: MatrixUnit = UNKNOWN
    claims: tuple[str, ...] = ()
    inductor: bool = False


#: Order matters: a test that needs only one target uses the first.
KNOWN: tuple[Architecture, ...] = (
    Architecture("cuda", 90, "NVIDIA H100", 227 * KIB, 132, 2048, HOPPER, ("nvidia-hopper",), inductor=True),
    Architecture("cuda", 80, "NVIDIA A100", 163 * KIB, 108, 2048, AMPERE, ("nvidia-ampere",)),
    Architecture("cuda", 89, "NVIDIA L40S", 99 * KIB, 142, 1536, ADA, ("nvidia-ada",)),
    Architecture("cuda", 100, "NVIDIA B200", 227 * KIB, 148, 2048, BLACKWELL, ("nvidia-blackwell",), inductor=True),
    Architecture("cuda", 103, "NVIDIA B300", 227 * KIB, 148, 2048, BLACKWELL, ("nvidia-blackwell",)),
    Architecture("cuda", 120, "NVIDIA RTX 5090", 99 * KIB, 170, 1536, BLACKWELL_ASSUMED, ("nvidia-blackwell-rtx",)),
    Architecture("hip", "gfx942", "AMD MI300X", 64 * KIB, 304, 2048, AMD, ("amd-cdna3",), inductor=True),
    Architecture("hip", "gfx950", "AMD MI355X", 160 * KIB, 256, 2048, AMD, ("amd-cdna4",), inductor=True),
    Architecture("hip", "gfx1250", "AMD gfx1250", 320 * KIB, None, unit=AMD, claims=("amd-gfx1250",)),
    Architecture("hip", "gfx1201", "AMD RX 9070 XT", 64 * KIB, 64, unit=AMD, claims=("amd-rdna4",)),
    # No guide has the limits of sm_107 yet: those of sm_103 are assumed.
    Architecture("cuda", 107, "NVIDIA sm_107", 227 * KIB, None, 2048, BLACKWELL_ASSUMED, ("nvidia-blackwell",)),
)

#: The targets among which the quick tier shares its rows. A row of :data:`KNOWN` that is not named here moves no case.
SHARING = ("sm_90", "sm_80", "sm_89", "sm_100", "sm_103", "sm_120", "gfx942", "gfx950", "gfx1250", "gfx1201")

#: Shared memory of an architecture that has no row: every NVIDIA and AMD GPU has at least this.
LEAST_SHARED_MEMORY = 48 * KIB

#: Bytes of shared memory that the system takes from each block from sm_90 on. The limits per block do not include them
#: (CUDA programming guide, compute capability 9.0).
SYSTEM_SHARED_MEMORY = 1024


@dataclass(frozen=True)
class Capability:
    """The answer whether a target can do something, and ``why`` (a sentence that names the hardware or the missing
    API)."""

    name: str
    available: bool
    why: str


@dataclass(frozen=True)
class Limits:
    """The resources that one block may use. None means unknown or not limited in this way.

    ``shared_memory`` in bytes per block, ``registers`` per thread, ``block_registers`` per block (32-bit registers),
    ``tensor_memory`` in columns, ``multiprocessors`` of the whole device.
    """

    shared_memory: int
    registers: int | None = None
    block_registers: int | None = None
    tensor_memory: int | None = None
    multiprocessors: int | None = None


@dataclass(frozen=True)
class Target:
    """One place to compile for, and to run on if ``device_index`` is given.

    ``backend`` is Triton's name ("cuda", "hip"), ``arch`` an integer such as 90 or a text such as "gfx942".
    ``warp_size`` is the number of lanes of a warp, ``name`` is for people. ``shared_memory`` (bytes per block) and
    ``multiprocessors`` are what a device reported, kept here so that a process without it knows them. A vendor with a
    backend of its own may subclass this and override :meth:`capability`, :attr:`limits`, :attr:`architecture` and
    :attr:`device_class`; the subclass must be picklable.
    """

    backend: str
    arch: int | str
    warp_size: int
    device_index: int | None = None
    name: str = ""
    shared_memory: int | None = None
    multiprocessors: int | None = None

    def __post_init__(self) -> None:
        usual = {"cuda": int, "hip": str}.get(self.backend)
        if usual is not None and not isinstance(self.arch, usual):
            raise TypeError(
                f"target {self.backend}:{self.arch}: arch is {type(self.arch).__name__} and must be "
                f"{usual.__name__} for this backend, such as {'90' if usual is int else chr(39) + 'gfx942' + chr(39)}"
            )

    @property
    def id(self) -> str:
        """Stable text: "sm_90", "gfx942". A device has the id of its architecture, for the code is the same."""
        if self.backend == "cuda":
            return f"sm_{self.arch}"
        return str(self.arch) if self.backend == "hip" else f"{self.backend}_{self.arch}"

    @property
    def is_device(self) -> bool:
        """True if kernels can run here, and not only be compiled."""
        return self.device_index is not None

    @property
    def vendor(self) -> str:
        """Whose code this is: "nvidia", "amd", or the backend's own name."""
        return {"cuda": "nvidia", "hip": "amd"}.get(self.backend, self.backend)

    @property
    def architecture(self) -> Architecture:
        """The row of :data:`KNOWN` for this hardware; one that states the least, and claims nothing, if it has none."""
        for row in KNOWN:
            if (row.backend, row.arch) == (self.backend, self.arch):
                return row
        return Architecture(self.backend, self.arch, self.name, LEAST_SHARED_MEMORY, self.multiprocessors)

    @property
    def matrix_unit(self) -> MatrixUnit:
        """Returns the rule by which the hardware adds products: as a calibration of this run measured it, else as its
        row says."""
        return CALIBRATED_UNITS.get(self.id, self.architecture.unit)

    @property
    def system_shared_memory(self) -> int:
        """Bytes of each block's shared memory that a kernel cannot use and :attr:`limits` does not count."""
        return SYSTEM_SHARED_MEMORY if _arch(self) >= 90 else 0

    @property
    def limits(self) -> Limits:
        """Limits of one block: as the device reported them, else those of the architecture."""
        shared = self.shared_memory or self.architecture.shared_memory
        if self.vendor == "nvidia":
            tensor_memory = 512 if _has_tcgen05(self.arch) else None
            return Limits(shared, 255, 65536, tensor_memory, self.multiprocessors)
        return Limits(shared, multiprocessors=self.multiprocessors)

    @property
    def device_class(self) -> object | None:
        """Config tables of its own: a ``heuristics.device_class.DeviceClass``. None: those of its vendor."""
        return None

    def capability(self, name: str) -> Capability:
        """Returns whether the hardware has ``name`` and the installed Triton can use it, with the reason.

        Raises ValueError for a name that is not in :data:`CAPABILITIES`.
        """
        if name not in CAPABILITIES:
            raise ValueError(f"capability {name!r} is unknown: use one of {', '.join(CAPABILITIES)}")
        return _capability(self, name)


def compile_targets() -> tuple[Target, ...]:
    """Returns the known targets, and those of installed extensions, that the installed Triton can compile for."""
    extensions = tuple(target for target in _extension_targets() if not target.is_device)
    return tuple(target for target in (*known_targets(), *extensions) if why_not(target) is None)


def sharing_targets() -> tuple[Target, ...]:
    """The targets of :data:`SHARING` that the installed Triton can compile for."""
    return tuple(target for target in known_targets() if target.id in SHARING and why_not(target) is None)


def every_target() -> tuple[Target, ...]:
    """The known targets, and those of installed extensions, whether or not the installed Triton compiles for them."""
    return (*known_targets(), *_extension_targets())


def claims() -> dict[str, tuple[str, ...]]:
    """Target id -> the profiles that the target claims, for the known targets and those of installed extensions."""
    return {target.id: target.architecture.claims for target in every_target() if target.architecture.claims}


def unavailable_targets() -> dict[str, Reason]:
    """Target id -> why the installed Triton cannot compile for it: known targets, and those of installed extensions."""
    reasons = {target.id: why_not(target) for target in every_target()}
    return {name: Reason(ReasonCode.CAPABILITY, name, detail) for name, detail in reasons.items() if detail is not None}


def devices() -> tuple[Target, ...]:
    """Returns the GPUs that torch sees, and the devices of installed extensions, in torch's order."""
    return _torch_devices() + tuple(target for target in _extension_targets() if target.is_device)


def devices_seen_elsewhere() -> tuple[Target, ...]:
    """Returns the devices as another process sees them: this one does not start a GPU's runtime, after which forks of
    it cannot. Raises LookupError if there is none, saying why."""
    code = "import pickle, sys; from conformance import targets; pickle.dump(targets.devices(), sys.stdout.buffer)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise LookupError(f"no device can be used: {last}")
    present: tuple[Target, ...] = pickle.loads(done.stdout)
    if not present:
        raise LookupError("torch sees no GPU, and this machine has one: use --no-gpu, or another build of torch")
    return present


def find(spec: str) -> Target:
    """Returns the target that ``spec`` names: "sm_90", "cuda:90", "gfx942", "hip:gfx942", "device" or "device:1".
    "gfx1250:256" assumes 256 multiprocessors for a target whose number is not known.

    Raises LookupError when there is no such target, saying what exists and why this one does not.

    >>> find("sm_90").name
    'NVIDIA H100'
    >>> find("gfx942").capability("tma").why
    'gfx942: the hardware lacks a tensor memory accelerator (NVIDIA from sm_90 on)'
    """
    word, _, number = spec.partition(":")
    if word == "device":
        present = devices()
        index = int(number) if number.isdigit() else 0
        if (number and not number.isdigit()) or index >= len(present):
            raise LookupError(
                f"target {spec!r}: this machine has {len(present)} device(s); use 'device:<index>' below that"
            )
        return present[index]
    name = f"sm_{number}" if word == "cuda" else number if word == "hip" else word
    offered = compile_targets()
    for target in offered:
        if target.id == name:
            return target if word != name or not number else _assuming(target, spec, number)
    reason = unavailable_targets().get(name)
    why = f" ({reason.detail})" if reason else ""
    raise LookupError(
        f"target {spec!r} is not available{why}: use one of {', '.join(target.id for target in offered)}"
        " or 'device:<index>'"
    )


def _assuming(target: Target, spec: str, multiprocessors: str) -> Target:
    """``target`` with a number of multiprocessors that is only assumed."""
    if not multiprocessors.isdigit() or multiprocessors == "0":
        raise LookupError(f"target {spec!r}: a number of multiprocessors is required after the ':'")
    if target.multiprocessors is not None:
        raise LookupError(f"target {spec!r}: {target.id} has {target.multiprocessors} multiprocessors: leave ':' out")
    return replace(target, multiprocessors=int(multiprocessors))


# --- what exists ------------------------------------------------------------------------------------------------------


@functools.cache
def known_targets() -> tuple[Target, ...]:
    """The targets of :data:`KNOWN`, whether or not the installed Triton compiles for them."""
    return tuple(
        Target(a.backend, a.arch, _warp_size(a.backend, a.arch), None, a.product, a.shared_memory, a.multiprocessors)
        for a in KNOWN
    )


def _warp_size(backend: str, arch: int | str) -> int:
    """32 on NVIDIA and RDNA and from gfx12 on; 64 on CDNA (gfx9)."""
    return 64 if backend == "hip" and str(arch).startswith("gfx9") else 32


@functools.cache
def _torch_devices() -> tuple[Target, ...]:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return ()
    return tuple(_torch_device(torch, index) for index in range(torch.cuda.device_count()))


def _torch_device(torch: Any, index: int) -> Target:
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        arch: int | str = properties.gcnArchName.split(":")[0]
        return Target(
            "hip", arch, _warp_size("hip", arch), index, properties.name, None, properties.multi_processor_count
        )
    arch = properties.major * 10 + properties.minor
    shared = getattr(properties, "shared_memory_per_block_optin", None)
    return Target("cuda", arch, 32, index, properties.name, shared, properties.multi_processor_count)


@functools.cache
def _extension_targets() -> tuple[Target, ...]:
    targets: list[Target] = []
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        where = f"entry point {entry.value!r} of group {ENTRY_POINTS!r}"
        targets += taken(where, functools.partial(_targets_of, entry, where, tuple(targets))) or ()
    return tuple(targets)


def _targets_of(entry: Any, where: str, earlier: Sequence[Target]) -> list[Target]:
    """Returns the targets of an entry point. Raises OutsideError if one cannot be taken."""
    targets: list[Target] = []
    for target in things(entry.load(), Target):
        if not isinstance(target, Target):
            raise OutsideError(
                f"{where} returned {target!r}: it must return a conformance.targets.Target or an iterable of them"
            )
        used_ids = {one.id for one in (*known_targets(), *earlier, *targets) if not one.is_device}
        if target.id in used_ids and not target.is_device:
            raise OutsideError(f"{where} returned target {target.id}, and there is one already: two share their cases")
        targets.append(target)
    return targets


# --- what the installed Triton can compile for ------------------------------------------------------------------------


@functools.cache
def why_not(target: Target) -> str | None:
    """Returns the reason why the installed Triton cannot compile for ``target``; None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'triton-conformance[stack]'"
    backends = importlib.import_module("triton.backends").backends
    gpu_target = importlib.import_module("triton.backends.compiler").GPUTarget
    triton_target = gpu_target(target.backend, target.arch, target.warp_size)
    if not any(backend.compiler.supports_target(triton_target) for backend in backends.values()):
        name = {"cuda": "nvidia", "hip": "amd"}.get(target.backend, target.backend)
        return f"the installed Triton has no {name!r} backend, only {', '.join(sorted(backends))}"
    if target.backend not in ("cuda", "hip"):
        return None
    if target.backend == "cuda":
        return _ptxas_lacks(int(target.arch)) or _llvm_lacks(f"sm_{target.arch}a" if int(target.arch) > 100 else None)
    return _linker_lacks(backends["amd"].compiler) or _llvm_lacks(str(target.arch)) or _amd_lacks(str(target.arch))


def _ptxas_lacks(arch: int) -> str | None:
    path = assembler(arch)
    if path is None:
        return "no ptxas was found: the wheel carries none and TRITON_PTXAS_PATH names none"
    if f"sm_{arch}" not in _help_text(path):
        return f"{path} does not list sm_{arch}"
    return None


def assembler(arch: int) -> Path | None:
    """Returns the ptxas that the installed Triton calls for ``arch``: since 3.6 it brings two, and releases differ in
    which serves what."""
    compiler = importlib.import_module("triton.backends.nvidia.compiler")
    try:
        if not hasattr(compiler, "get_ptxas"):  # Triton 3.2 has one assembler for all
            return Path(compiler._path_to_binary("ptxas")[0])
        tool = compiler.get_ptxas(*[arch][: len(inspect.signature(compiler.get_ptxas).parameters)])
        return Path(tool.path if hasattr(tool, "path") else tool[0])
    except RuntimeError:  # there is none
        return None


@functools.cache
def _help_text(path: Path) -> str:
    return subprocess.run([str(path), "--help"], capture_output=True, text=True, timeout=60, check=False).stdout


def _linker_lacks(compiler: Any) -> str | None:
    """AMD's wheels of some releases carry no ld.lld; later ones link inside the process."""
    native = importlib.import_module("triton._C.libtriton")
    if hasattr(native.amd, "link_hsaco"):
        return None
    try:
        compiler.path_to_rocm_lld()
    except Exception as error:  # the backend raises a bare Exception here
        return f"the wheel carries no ROCm linker: {error}"
    return None


def _amd_lacks(arch: str) -> str | None:
    """A backend from before gfx1250's tensor data mover knows the name only. It emits no matrix instructions for it,
    and its code does not always link."""
    if arch == "gfx1250" and not hasattr(importlib.import_module("triton._C.libtriton").amd, "supports_tdm"):
        return "the installed Triton's AMD backend knows gfx1250 by name only: no matrix instructions, no descriptors"
    return None


@functools.cache
def _llvm_lacks(processor: str | None) -> str | None:
    """Returns True if the compiler's LLVM lacks ``processor``. LLVM ends the process when it is asked for an unknown
    one, and offers no query. So its table of processor names is looked up in the library itself."""
    if processor is None:
        return None
    package = importlib.util.find_spec("triton")
    if package is None or package.origin is None:
        return "Triton is not installed"
    root = Path(package.origin).parent
    libraries = [*(root / "_C").glob("libtriton*.so"), *(root / "backends" / "amd" / "lib").glob("*.so")]
    for library in libraries:
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(b"\0" + processor.encode() + b"\0") >= 0:
                return None
    return f"LLVM in the installed Triton does not know the processor {processor}"


# --- capabilities -----------------------------------------------------------------------------------------------------

_Predicate = Callable[[Target], tuple[bool, str]]


def _arch(target: Target) -> int:
    """NVIDIA's architecture as a number; -1 for any other vendor, so that every comparison with it is false."""
    return int(target.arch) if target.vendor == "nvidia" else -1


def _has_tcgen05(arch: int | str) -> bool:
    return isinstance(arch, int) and 100 <= arch < 120


@functools.cache
def _options(target: Target) -> Any:
    """Triton's default compile options for ``target``: what its backend says it supports."""
    make_backend = importlib.import_module("triton.compiler.compiler").make_backend
    gpu_target = importlib.import_module("triton.backends.compiler").GPUTarget
    return make_backend(gpu_target(target.backend, target.arch, target.warp_size)).parse_options({})


def _hardware(present: Callable[[Target], bool], yes: str) -> _Predicate:
    def predicate(target: Target) -> tuple[bool, str]:
        return (True, yes) if present(target) else (False, f"the hardware lacks {yes}")

    return predicate


def _listed(option: str, entry: str, present: Callable[[Target], bool] = lambda target: True) -> _Predicate:
    """Available if the backend's ``option`` lists ``entry`` and the hardware takes it."""

    def predicate(target: Target) -> tuple[bool, str]:
        listed = tuple(getattr(_options(target), option, ()))
        if not present(target):
            return False, f"the hardware has no {entry}"
        return entry in listed, f"Triton's {option} here: {', '.join(listed) or 'none'}"

    return predicate


def _importable(module: str, attribute: str) -> tuple[bool, str]:
    try:
        available = hasattr(importlib.import_module(module), attribute)
    except ImportError:
        available = False
    return available, f"the installed Triton has {'' if available else 'no '}{module}.{attribute}"


def _descriptor(module: str, attribute: str) -> _Predicate:
    """Available if ``module`` has ``attribute`` and Triton lowers descriptors for the target."""

    def predicate(target: Target) -> tuple[bool, str]:
        available, why = _importable(module, attribute)
        return _descriptor_lowering(target) if available else (False, why)

    return predicate


def _descriptor_lowering(target: Target) -> tuple[bool, str]:
    """Triton lowers descriptors to TMA where there is one and to pointers elsewhere. gfx1250 has its own unit, which
    takes a pass that gives descriptors a layout: releases without it fail to compile any kernel with a descriptor."""
    if target.arch == "gfx1250":
        passes = importlib.import_module("triton._C.libtriton").amd.passes.ttgpuir
        ready = hasattr(passes, "add_optimize_descriptor_encoding")
        return ready, f"Triton's AMD backend has {'' if ready else 'no '}lowering of descriptors for this hardware"
    return True, "lowered to TMA" if _arch(target) >= 90 else "rewritten to pointer loads and stores"


@functools.cache
def _parameters(name: str) -> list[str]:
    """Parameters of a function of ``triton.language``, or of the methods of a class. They are read from its source,
    because the interpreter of Triton up to 3.5 puts something else in its place."""
    source = ast.parse(inspect.getsource(importlib.import_module("triton.language.core")))
    named = [node for node in source.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name]
    return [each.arg for node in named for each in ast.walk(node) if isinstance(each, ast.arg)]


def _warp_specialization(target: Target) -> tuple[bool, str]:
    if "warp_specialize" not in _parameters("range"):
        return False, "the installed Triton's tl.range has no warp_specialize"
    return _arch(target) >= 90, "tl.range(warp_specialize=True) takes effect on NVIDIA from sm_90 on"


def _flat_loop(target: Target) -> tuple[bool, str]:
    has = "flatten" in _parameters("range")
    return has, f"the installed Triton's tl.range has {'' if has else 'no '}flatten"


def _constant_argument(target: Target) -> tuple[bool, str]:
    """Up to Triton 3.2 only a parameter that is annotated so can be a constant."""
    only_annotated = hasattr(importlib.import_module("triton.runtime.jit"), "compute_spec_key")
    takes = "no parameter but one annotated so" if only_annotated else "every parameter"
    return not only_annotated, f"in the installed Triton {takes} takes a tl.constexpr"


def _constant_item(target: Target) -> tuple[bool, str]:
    """Returns True if code can take one item of a tuple that is a constant."""
    has = hasattr(importlib.import_module("triton.language").constexpr, "__getitem__")
    return has, f"in the installed Triton a tl.constexpr has {'' if has else 'no '}items"


def _fp64_products(target: Target) -> tuple[bool, str]:
    """Up to Triton 3.4 ``tl.dot`` asserts that operands are narrower, and offers no query: its source says which."""
    semantic = importlib.import_module("triton.language.semantic")
    dot = getattr(getattr(semantic, "TritonSemantic", semantic), "dot", None)
    if dot is None or "float64" not in inspect.getsource(dot):
        return False, "the installed Triton's tl.dot takes no fp64 operands"
    return target.vendor != "nvidia" or _arch(target) >= 80, "fp64 products (NVIDIA from sm_80 on)"


def _scaled_packing(target: Target) -> tuple[bool, str]:
    """Returns True if ``tl.dot_scaled`` is told along which dimension two codes share a byte."""
    has = "lhs_k_pack" in _parameters("dot_scaled")
    return has, f"the installed Triton's tl.dot_scaled has {'' if has else 'no '}lhs_k_pack"


def _scaled_batch(target: Target) -> tuple[bool, str]:
    """Returns True if ``tl.dot_scaled`` takes operands of three dimensions. Triton 3.6 compares all dimensions of their
    scales with the last two of a product, and offers no query: its source says which it compares."""
    semantic = importlib.import_module("triton.language.semantic")
    check = getattr(getattr(semantic, "TritonSemantic", None), "verify_scaled_shape", None)
    takes = check is None or "_shape[-2:]" in inspect.getsource(check)
    return takes, f"the installed Triton's tl.dot_scaled takes {'' if takes else 'no '}scales of three dimensions"


_PREDICATES: dict[str, _Predicate] = {
    "fp64": _fp64_products,
    "fp16": _hardware(lambda t: True, "fp16 matrix products"),
    "bf16": _hardware(lambda t: t.vendor != "nvidia" or _arch(t) >= 80, "bf16 matrix products (NVIDIA from sm_80 on)"),
    "ieee": _listed("allowed_dot_input_precisions", "ieee"),
    "tf32": _listed("allowed_dot_input_precisions", "tf32", lambda t: t.vendor != "nvidia" or _arch(t) >= 80),
    **{
        name: _listed("allowed_dot_input_precisions", name, lambda t: t.vendor != "nvidia" or _arch(t) >= 80)
        for name in ("tf32x3", "bf16x3", "bf16x6")
    },
    "e4m3": _listed("supported_fp8_dtypes", "fp8e4nv"),
    "e5m2": _listed("supported_fp8_dtypes", "fp8e5"),
    # of CDNA3 alone: later matrix units have the formats of the OCP specification
    "e4m3fnuz": _listed("supported_fp8_dtypes", "fp8e4b8", lambda t: t.arch == "gfx942"),
    "e5m2fnuz": _listed("supported_fp8_dtypes", "fp8e5b16", lambda t: t.arch == "gfx942"),
    "tensor-descriptor": _descriptor("triton.language", "make_tensor_descriptor"),
    "descriptor-gather": _hardware(
        lambda t: _arch(t) != 90, "rows gathered by a descriptor (TMA from sm_100 on; pointers where there is no TMA)"
    ),
    "descriptor-scatter": _hardware(
        lambda t: _arch(t) < 90 or (t.vendor == "nvidia" and _has_tcgen05(t.arch)),
        "rows scattered by a descriptor (TMA of sm_100 to sm_110; pointers where there is no TMA)",
    ),
    "descriptor-reduce": _hardware(
        lambda t: t.arch != "gfx1250", "tiles added to memory by a descriptor (TMA; atomics where tiles are not moved)"
    ),
    "host-descriptor": _descriptor("triton.tools.tensor_descriptor", "TensorDescriptor"),
    "host-tensormap": lambda target: _importable("triton.language", "_experimental_descriptor_load"),
    "device-tensormap": lambda target: _importable(
        "triton.language.extra.cuda", "experimental_device_tensormap_create2d"
    ),
    "experimental-descriptor": lambda target: _importable("triton.language", "_experimental_make_tensor_descriptor"),
    "tma": _hardware(lambda t: _arch(t) >= 90, "a tensor memory accelerator (NVIDIA from sm_90 on)"),
    "wgmma": _hardware(lambda t: _arch(t) == 90, "wgmma (sm_90 only)"),
    "tcgen05": _hardware(lambda t: t.vendor == "nvidia" and _has_tcgen05(t.arch), "tcgen05 (sm_100 to sm_110)"),
    "mfma": _hardware(lambda t: t.vendor == "amd" and str(t.arch).startswith("gfx9"), "MFMA (AMD gfx9)"),
    "wmma": _hardware(lambda t: t.vendor == "amd" and str(t.arch)[:5] in ("gfx11", "gfx12"), "WMMA (gfx11, gfx12)"),
    "tdm": _hardware(lambda t: t.arch == "gfx1250", "a tensor data mover (AMD gfx1250)"),
    "warp-specialization": _warp_specialization,
    "flat-loop": _flat_loop,
    "constant-argument": _constant_argument,
    "constant-item": _constant_item,
    "scaled-packing": _scaled_packing,
    "scaled-batch": _scaled_batch,
}


@functools.cache
def _capability(target: Target, name: str) -> Capability:
    """Kept, because a large tier asks the same of a target a hundred thousand times."""
    available, why = _PREDICATES[name](target)
    return Capability(name, available, f"{target.id}: {why}")


#: What a target may be able to do.
CAPABILITIES = tuple(_PREDICATES)
