"""Named features that compiled code must contain, each with FileCheck directives per stage and vendor.

A spelling is a property of a Triton release, so every one of them is in :data:`EVIDENCE` and nowhere else. If a feature
is required, all its evidence must be there. A descriptor store in TTIR that is no bulk tensor copy in PTX is lost. If
it is forbidden, no evidence that proves its presence may be there.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from conformance import filecheck as filecheck_module
from conformance.filecheck import FileCheckResult, filecheck
from conformance.machine.kept_answers import kept_answer, source_digest
from conformance.machine.versions import nvidia_tool
from conformance.targets import Target


class SpillFigures(Protocol):
    """The attributes of a kernel's resources that this module reads. They are those of
    :class:`conformance.execution.compile.kernel_figures.KernelResources`."""

    @property
    def registers(self) -> int: ...
    @property
    def spills(self) -> int: ...
    @property
    def spill_unit(self) -> str: ...
    @property
    def source(self) -> str: ...


class CompiledCode(Protocol):
    """The attributes of a compiled kernel that this module reads. They are those of
    :class:`conformance.execution.compile.compilation.Artefact`."""

    @property
    def target_id(self) -> str: ...
    @property
    def kernel_name(self) -> str: ...
    @property
    def stages(self) -> Mapping[str, Path]: ...
    @property
    def resources(self) -> SpillFigures: ...


@dataclass(frozen=True)
class Feature:
    """A property of compiled code. ``meaning`` completes the sentence "the kernel ...". A third-party feature brings
    its own ``evidence``, the strongest first, by vendor (see :func:`register_feature`)."""

    name: str
    meaning: str
    evidence: Mapping[str, tuple[Evidence, ...]] = dataclasses.field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return self.name


TMA_LOAD = Feature("TMA_LOAD", "loads tiles by the tensor copy unit (NVIDIA's TMA, AMD's tensor data mover)")
TMA_STORE = Feature("TMA_STORE", "stores tiles by the tensor copy unit")
POINTER_LOAD = Feature("POINTER_LOAD", "loads through pointers")
POINTER_STORE = Feature("POINTER_STORE", "stores through pointers")
TENSOR_DESCRIPTOR = Feature("TENSOR_DESCRIPTOR", "keeps tensor descriptors, made on the host or on the device")
ASYNC_COPY = Feature("ASYNC_COPY", "copies asynchronously from global to shared memory, through pointers")
MMA = Feature("MMA", "multiplies with mma.sync")
WGMMA = Feature("WGMMA", "multiplies with wgmma")
TCGEN05 = Feature("TCGEN05", "multiplies with tcgen05.mma")
MFMA = Feature("MFMA", "multiplies with AMD's MFMA")
WMMA = Feature("WMMA", "multiplies with AMD's WMMA")
SCALED_MMA = Feature("SCALED_MMA", "multiplies block-scaled operands with their scales in the matrix unit")
WARP_SPECIALIZED = Feature("WARP_SPECIALIZED", "gives warps different work")
SPILL = Feature("SPILL", "spills registers to memory")

#: Every feature, in the order in which it is defined above; then those of :func:`register_feature`.
FEATURES = [value for value in globals().values() if isinstance(value, Feature)]


@dataclass(frozen=True)
class Evidence:
    """One directive on one stage. ``proves_absence`` is False where a match does not show that the feature is there. A
    global load in PTX may be a scale or a bias and not an operand. Directives see code only (see :func:`code`)."""

    stage: str
    directive: str
    proves_absence: bool = True


#: Vendor -> feature -> evidence, the strongest first. A feature that a vendor cannot have is not listed for it.
#: SPILL has none: it is read from the binary's resources.
EVIDENCE: dict[str, dict[Feature, tuple[Evidence, ...]]] = {
    "nvidia": {
        TMA_LOAD: (
            # shared::cluster up to Triton 3.6, shared::cta later
            Evidence("ptx", r"CHECK: {{^cp\.async\.bulk\.tensor\.[1-5]d\.shared::(cluster|cta)\.global\b}}"),
            Evidence("ttir", r"CHECK: {{\btt\.(experimental_)?descriptor_(load|gather)\b}}"),
        ),
        TMA_STORE: (
            Evidence("ptx", r"CHECK: {{^cp\.async\.bulk\.tensor\.[1-5]d\.global\.shared::cta\b}}"),
            Evidence("ttir", r"CHECK: {{\btt\.(experimental_)?descriptor_(store|scatter)\b}}"),
        ),
        POINTER_LOAD: (
            Evidence("ttir", r"CHECK: {{\btt\.load\b}}"),
            Evidence("ptx", r"CHECK: {{^(ld\.global|cp\.async\.c[ag]\.shared)\b}}", proves_absence=False),
        ),
        POINTER_STORE: (
            Evidence("ptx", r"CHECK: {{^st\.global\b}}"),
            Evidence("ttir", r"CHECK: {{\btt\.store\b}}"),
        ),
        TENSOR_DESCRIPTOR: (Evidence("ttir", r"CHECK: {{!tt\.tensordesc<}}"),),
        ASYNC_COPY: (
            Evidence("ptx", r"CHECK: {{^cp\.async\.c[ag]\.shared\b}}"),
            Evidence("ttgir", r"CHECK: {{\b(ttg|triton_gpu)\.async_copy_global_to_local\b}}"),
        ),
        MMA: (Evidence("ptx", r"CHECK: {{^mma\.sync\.aligned\b}}"),),
        WGMMA: (
            Evidence("ptx", r"CHECK: {{^wgmma\.mma_async\.sync\b}}"),
            Evidence("ttgir", r"CHECK: {{\b(ttng|triton_nvidia_gpu)\.warp_group_dot\b}}"),
        ),
        TCGEN05: (
            Evidence("ptx", r"CHECK: {{^tcgen05\.mma\b}}"),
            Evidence("ttgir", r"CHECK: {{\bttng\.tc_gen5_mma}}"),
        ),
        SCALED_MMA: (Evidence("ptx", r"CHECK: {{^(tcgen05\.mma|mma\.sync)\S*\.block_scale\b}}"),),
        # Not tt.warp_specialize, which is the request on the loop and stays there when nothing comes of it.
        WARP_SPECIALIZED: (Evidence("ttgir", r"CHECK: {{\bttg\.warp_specialize\(}}"),),
    },
    "amd": {
        TMA_LOAD: (
            Evidence("amdgcn", r"CHECK: {{^tensor_load_to_lds\b}}"),
            Evidence("ttir", r"CHECK: {{\btt\.(experimental_)?descriptor_(load|gather)\b}}"),
        ),
        TMA_STORE: (
            Evidence("amdgcn", r"CHECK: {{^tensor_store_from_lds\b}}"),
            Evidence("ttir", r"CHECK: {{\btt\.(experimental_)?descriptor_(store|scatter)\b}}"),
        ),
        POINTER_LOAD: (
            Evidence("ttir", r"CHECK: {{\btt\.load\b}}"),
            Evidence("amdgcn", r"CHECK: {{^(buffer|global|flat)_load_}}", proves_absence=False),
        ),
        POINTER_STORE: (
            Evidence("amdgcn", r"CHECK: {{^(buffer|global|flat)_store_}}"),
            Evidence("ttir", r"CHECK: {{\btt\.store\b}}"),
        ),
        TENSOR_DESCRIPTOR: (Evidence("ttir", r"CHECK: {{!tt\.tensordesc<}}"),),
        ASYNC_COPY: (
            # gfx950 marks a load with the modifier lds, gfx1250 has an instruction of its own
            Evidence("amdgcn", r"CHECK: {{^((buffer|global)_load_.*\blds|global_load_(async_to_)?lds_.*)$}}"),
            Evidence("ttgir", r"CHECK: {{\b(ttg\.async_copy_global_to_local|amdg(pu)?\.buffer_load_to_local)\b}}"),
        ),
        MFMA: (Evidence("amdgcn", r"CHECK: {{^v_s?mfma}}"),),
        WMMA: (Evidence("amdgcn", r"CHECK: {{^v_(wmma|swmmac)_}}"),),
        SCALED_MMA: (Evidence("amdgcn", r"CHECK: {{^v_(mfma|wmma)_scale(16)?_}}"),),
        WARP_SPECIALIZED: (Evidence("ttgir", r"CHECK: {{\bttg\.warp_specialize\(}}"),),
    },
}


#: What Triton's own representation shows, whoever made the hardware: all that is known of another vendor's code.
ANY_VENDOR: dict[Feature, tuple[Evidence, ...]] = {
    POINTER_LOAD: (Evidence("ttir", r"CHECK: {{\btt\.load\b}}"),),
    POINTER_STORE: (Evidence("ttir", r"CHECK: {{\btt\.store\b}}"),),
    TMA_LOAD: (Evidence("ttir", r"CHECK: {{\btt\.(experimental_)?descriptor_(load|gather)\b}}"),),
    TMA_STORE: (Evidence("ttir", r"CHECK: {{\btt\.(experimental_)?descriptor_(store|scatter)\b}}"),),
    TENSOR_DESCRIPTOR: (Evidence("ttir", r"CHECK: {{!tt\.tensordesc<}}"),),
}


def _on_request(name: str, meaning: str, **stages: str) -> Feature:
    """Returns a feature that is looked for only where a kernel asks. ``stages`` has a regular expression for each stage
    that shows it, the strongest first. A vendor without one for its own assembly cannot have the feature, unless
    neither has."""
    assembly = {"nvidia": "ptx", "amd": "amdgcn"}
    named = [vendor for vendor, stage in assembly.items() if stage in stages] or list(assembly)
    evidence = {}
    for vendor in named:
        others = {stage for other, stage in assembly.items() if other != vendor}
        evidence[vendor] = tuple(
            Evidence(stage, f"CHECK: {{{{{shown}}}}}") for stage, shown in stages.items() if stage not in others
        )
    return Feature(name, meaning, evidence)


#: Triton 3.2 and 3.3 name the operation alike in TTIR, and in TTGIR by their dialects.
TENSORMAP = Feature(
    "TENSORMAP",
    "fills the copy unit's descriptors itself, and fences them",
    {
        "nvidia": (
            Evidence("ptx", r"CHECK: {{^tensormap\.replace\.tile\.global_address\b}}"),
            Evidence("ptx", r"CHECK: {{^fence\.proxy\.tensormap::generic\.acquire\b}}"),
            Evidence("ttgir", r"CHECK: {{\b(tt\.experimental_|ttng\.)tensormap_create\b}}"),
        )
    },
)
#: A sum that is not used is "red" from Triton 3.9 on, "atom" before.
ATOMIC_ADD = _on_request(
    "ATOMIC_ADD",
    "adds to memory atomically, in fp32",
    ptx=r"^(red|atom)\.[a-z_.0-9:]*\badd\b[a-z_.0-9]*\.f32\b",
    amdgcn=r"^(buffer|global|flat)_atomic_add_f32\b",
    ttir=r"\btt\.atomic_rmw fadd\b",
)
#: Its fp8 are those of gfx942's formats; see :data:`problems.FNUZ`.
MFMA_FP8 = _on_request(
    "MFMA_FP8",
    "multiplies fp8 operands with AMD's MFMA as they are",
    amdgcn=r"^v_mfma_f32_\d+x\d+x\d+_(fp8|bf8)_(fp8|bf8)\b",
    ttir=r"\btt\.dot\b.*tensor<\d+x\d+xf8E\wM\wFNUZ> \*",
)
#: Where descriptors are made. What the host made is an argument.
HOST_DESCRIPTOR = _on_request(
    "HOST_DESCRIPTOR", "takes descriptors that the host made", ttir=r"\btt\.func\b.*!tt\.tensordesc<"
)
DEVICE_DESCRIPTOR = _on_request(
    "DEVICE_DESCRIPTOR", "makes its descriptors itself", ttir=r"\btt\.make_tensor_descriptor\b"
)
#: Rows that lie anywhere, four at a time.
ROW_GATHER = _on_request(
    "ROW_GATHER",
    "gathers rows by the tensor copy unit",
    ptx=r"^cp\.async\.bulk\.tensor\.2d\.tile::gather4\b",
    amdgcn=r"^tensor_load_to_lds\b",
    ttir=r"\btt\.descriptor_gather\b",
)
ROW_SCATTER = _on_request(
    "ROW_SCATTER",
    "scatters rows by the tensor copy unit",
    ptx=r"^cp\.async\.bulk\.tensor\.2d\.tile::scatter4\b",
    amdgcn=r"^tensor_store_from_lds\b",
    ttir=r"\btt\.descriptor_scatter\b",
)
VECTOR_LOAD = _on_request(
    "VECTOR_LOAD",
    "loads vectors by the tensor copy unit",
    ptx=r"^cp\.async\.bulk\.tensor\.1d\.shared::(cluster|cta)\.global\b",
    amdgcn=r"^tensor_load_to_lds\b",
    ttir=r"\btt\.descriptor_load\b.*-> tensor<\d+xf32>",
)
#: A whole tile is added to memory, by one instruction.
TILE_ADD = _on_request(
    "TILE_ADD",
    "adds tiles to memory by the tensor copy unit, in fp32",
    ptx=r"^cp\.reduce\.async\.bulk\.tensor\.2d\.global\.shared::cta\.add\b",
    ttir=r"\btt\.descriptor_reduce add\b.*tensor<\d+x\d+xf32>",
)


def evidence_of(feature: Feature, vendor: str) -> tuple[Evidence, ...]:
    """Returns the evidence of ``feature`` in code of ``vendor``; none if that vendor's code cannot have it.

    >>> [evidence.stage for evidence in evidence_of(WGMMA, "nvidia")]
    ['ptx', 'ttgir']
    >>> evidence_of(WGMMA, "amd")
    ()
    """
    return feature.evidence.get(vendor) or EVIDENCE.get(vendor, ANY_VENDOR).get(feature, ())


#: What :func:`register_feature` added, as text: kept answers about code count as long as that is the same.
REGISTERED: list[str] = []

_FEATURE_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_ONE_EXPRESSION = re.compile(r"CHECK: \{\{(.+)\}\}")


def register_feature(feature: Feature) -> Feature:
    """Adds a feature of a third-party package, which brings its ``evidence``; returns it.

    It is then looked for in all code, so that records list it and its loss is a finding. Registering the same again is
    harmless. Raises ValueError for a name that another feature has, or that is not of capital letters, digits and "_";
    without evidence; and for a directive that is not one regular expression, ``CHECK: {{...}}``, as scripts need it.
    """
    if not _FEATURE_NAME.fullmatch(feature.name):
        raise ValueError(f"a feature is called {feature.name!r}; use capital letters, digits and '_'")
    if not any(feature.evidence.values()):
        raise ValueError(f"{feature.name} has no evidence: give a vendor such as 'nvidia' and what shows it there")
    for piece in (piece for pieces in feature.evidence.values() for piece in pieces):
        expression = _ONE_EXPRESSION.fullmatch(piece.directive)
        try:
            re.compile(expression[1] if expression else "(")
        except re.error:
            raise ValueError(f"{feature.name}: {piece.directive!r} is no 'CHECK: {{{{regular expression}}}}'") from None
    if repr(feature) in REGISTERED:
        return feature
    if feature.name in {other.name for other in FEATURES}:
        raise ValueError(f"a feature named {feature.name} is known already: choose another name")
    FEATURES.append(feature)
    REGISTERED.append(repr(feature))
    return feature


@dataclass(frozen=True)
class FeatureVerdict:
    """The answer about one feature: present as ``required``, or absent as forbidden. ``text`` says what was looked for
    and what was found, with the nearest lines if it failed; ``path`` is the file of ``stage`` that decided."""

    feature: Feature
    required: bool
    passed: bool
    stage: str
    directive: str
    text: str
    path: Path | None


def check(
    artefact: CompiledCode, target: Target, requires: Iterable[Feature] = (), forbids: Iterable[Feature] = ()
) -> list[FeatureVerdict]:
    """One verdict per feature of ``requires`` and ``forbids``, in the order of :data:`FEATURES`.

    Raises ValueError if ``artefact`` was compiled for another target or a feature is both required and forbidden.
    """
    required, forbidden = set(requires), set(forbids)
    if both := required & forbidden:
        raise ValueError(f"required and forbidden at once: {', '.join(sorted(f.name for f in both))}")
    order = {feature: index for index, feature in enumerate(FEATURES)}
    verdicts = []
    for feature in sorted(required | forbidden, key=lambda feature: (order.get(feature, len(order)), feature.name)):
        is_required = feature in required
        passed, piece, result = _decide(artefact, target, feature, is_required)
        if piece is None:
            text = f"{target.vendor} code has no such thing: there is no evidence for {feature.name} on its hardware"
            verdicts.append(FeatureVerdict(feature, is_required, passed, "", "", text, None))
        else:
            text = _text(artefact, feature, is_required, piece, result)
            path = artefact.stages.get(piece.stage)
            verdicts.append(FeatureVerdict(feature, is_required, passed, piece.stage, piece.directive, text, path))
    return verdicts


def present(artefact: CompiledCode, target: Target, feature: Feature) -> bool:
    """True if all the evidence for ``feature`` is there: what :func:`check` would say of it, without the text.

    Raises ValueError if ``artefact`` was compiled for another target.
    """
    return _decide(artefact, target, feature, required=True)[0]


def _decide(
    artefact: CompiledCode, target: Target, feature: Feature, required: bool
) -> tuple[bool, Evidence | None, FileCheckResult | None]:
    """Decides whether ``feature`` is as it should be, and returns the evidence that decided: the first that fails, else
    the first.

    None and None where there is no evidence. The result is None where the artefact lacks the piece's stage.
    """
    if artefact.target_id != target.id:
        raise ValueError(f"the artefact is for {artefact.target_id}, it was to be checked for {target.id}")
    pieces = evidence_of(feature, target.vendor)
    if feature is SPILL:
        binary = next((name for name in ("cubin", "hsaco") if name in artefact.stages), artefact.resources.source)
        pieces = (Evidence(binary, "spills > 0"),)
    results = [(piece, _result(artefact, feature, piece)) for piece in pieces if required or piece.proves_absence]
    failures = [(piece, result) for piece, result in results if result is None or result.passed != required]
    if not results:
        return not required, None, None
    return not failures, *(failures or results)[0]


def _result(artefact: CompiledCode, feature: Feature, piece: Evidence) -> FileCheckResult | None:
    """Returns the result of one piece of evidence; None if the artefact lacks its stage, or the stage is empty."""
    if feature is SPILL:
        used = artefact.resources
        return None if used.source == "metadata" else FileCheckResult(used.spills > 0, "", 0)
    path = artefact.stages.get(piece.stage)
    if path is None or not path.stat().st_size:
        return None
    return _results(path, piece.stage).get(piece.directive) or filecheck(piece.directive, code_of(path, piece.stage))


@functools.lru_cache(maxsize=1024)
def _results(path: Path, stage: str) -> dict[str, FileCheckResult]:
    """Returns the result of each directive of :data:`EVIDENCE` for ``path``, the file of ``stage``. The text is
    searched once: the results are kept with its path."""
    pieces = [piece for features in EVIDENCE.values() for pieces in features.values() for piece in pieces]
    directives = sorted({piece.directive for piece in pieces if piece.stage == stage})

    def search() -> dict[str, FileCheckResult]:
        text = code_of(path, stage)
        return {directive: filecheck(directive, text) for directive in directives}

    kept = kept_answer([path], f"{stage}-evidence", source_digest(sys.modules[__name__], filecheck_module), search)
    return {directive: FileCheckResult(*result) for directive, result in kept.items()}


def _text(
    artefact: CompiledCode, feature: Feature, required: bool, piece: Evidence, result: FileCheckResult | None
) -> str:
    """Returns a text of what was looked for and found; with the nearest lines if the check failed."""
    if feature is SPILL:
        used = artefact.resources
        if result is None:
            return "the binary could not be read, so nothing is known of spills: is cuobjdump missing?"
        return f"{used.spills} {used.spill_unit} spilled per thread, {used.registers} registers ({used.source})"
    if result is None:
        have = ", ".join(sorted(artefact.stages))
        return f"{feature.name} is decided by {piece.stage}, which is empty or not in this artefact (it has {have})"
    text = f"{piece.directive} in {piece.stage}: {'matches line ' + str(result.line) if result.passed else 'no match'}"
    if result.passed == required:
        return text
    path = artefact.stages[piece.stage]
    nearest = _around(path, result.line) if result.passed else _nearest(path, piece)
    wish = "required" if required else "forbidden"
    return f"{feature.name} ({feature.meaning}) is {wish}; {text} in {path}\n{nearest}"


# --- code without names and comments ----------------------------------------------------------------------------------

_LOCATION = re.compile(r'\s*loc\((?:[^()"]|"[^"]*"|\((?:[^()"]|"[^"]*")*\))*\)')
_PREDICATE = re.compile(r"^@!?%\w+\s+")  # of PTX
_SYMBOL = re.compile(r'@(?:"[^"]*"|[\w.$-]+)')


def code(stage: str, text: str) -> str:
    """``text`` of ``stage`` as a directive may see it: instructions only, each from the start of its line.

    Comments, locations, symbols, labels, assembler directives and predicates are cut, so that neither a kernel's or a
    file's name nor a comment can match; lines keep their numbers.

    >>> print(code("ptx", "    mov.u32 %r1, 0;  // the counter").strip())
    mov.u32 %r1, 0;
    """
    comment = {"ttir": "//", "ttgir": "//", "ptx": "//", "amdgcn": ";"}.get(stage)
    if comment is None:
        return text
    cut = _mlir_line if stage in ("ttir", "ttgir") else _assembly_line
    return "\n".join(cut(line.strip(), comment) for line in text.split("\n"))


def _mlir_line(line: str, comment: str) -> str:
    if line.startswith(("#loc", comment)):
        return ""
    return _SYMBOL.sub("@", _LOCATION.sub("", line).partition(comment)[0])


def _assembly_line(line: str, comment: str) -> str:
    line = line.partition(comment)[0].strip()
    if line.startswith("@"):
        line = _PREDICATE.sub("", line)
    return "" if line.startswith(".") or line.endswith(":") else line


@functools.lru_cache(maxsize=64)
def code_of(path: Path, stage: str) -> str:
    """:func:`code` of the file ``path`` of ``stage``. The last ones are kept: several checks look at each."""
    return code(stage, path.read_text())


def _around(path: Path, line: int) -> str:
    """Returns the line that matched with one before and after it."""
    lines = path.read_text().split("\n")
    first = max(line - 2, 0)
    return "\n".join(f"  {number}: {text}" for number, text in enumerate(lines[first : line + 1], first + 1))


def _nearest(path: Path, piece: Evidence) -> str:
    """Up to three lines whose instruction looks most like the one that the directive asks for."""
    seen = code_of(path, piece.stage)
    words = re.sub(r"[^\w.: ]", "", piece.directive.partition(":")[2].replace(r"\b", "").replace("\\.", ".")).strip()
    first_of: dict[str, int] = {}
    for number, line in enumerate(seen.split("\n"), 1):
        operation = line.partition(" = ")[2] or line
        if operation:
            first_of.setdefault(re.split(r"[\s(<]", operation, maxsplit=1)[0], number)
    near = difflib.get_close_matches(words, list(first_of), n=3, cutoff=0.3)
    lines = path.read_text().split("\n")
    shown = [f"  {first_of[name]}: {lines[first_of[name] - 1].strip()}" for name in near]
    return "nearest:\n" + "\n".join(shown) if shown else "no line comes near it"


# --- SASS -------------------------------------------------------------------------------------------------------------


def disassembled(artefact: CompiledCode) -> str:
    """Returns the machine code of an NVIDIA kernel as text.

    Raises ValueError for an artefact without a cubin and RuntimeError if it cannot be disassembled.
    """
    cubin = artefact.stages.get("cubin")
    if cubin is None:
        raise ValueError(f"{artefact.kernel_name} for {artefact.target_id} has no cubin, so it has no SASS")
    tool = nvidia_tool("cuobjdump")
    if tool is None:
        raise RuntimeError(
            "no cuobjdump was found: install a Triton wheel that carries it or set TRITON_CUOBJDUMP_PATH"
        )
    command = [str(tool), "-sass", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode or "Function :" not in done.stdout:
        raise RuntimeError(f"{' '.join(command)} failed (exit {done.returncode}): {done.stderr.strip()[:500]}")
    return done.stdout
