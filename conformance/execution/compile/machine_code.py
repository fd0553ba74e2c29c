"""Figures of a compiled kernel by which two stacks can be compared: features, instructions, bytes."""

from __future__ import annotations

import contextlib
import hashlib
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance import codegen_checks
from conformance.codegen_checks import FEATURES, SPILL
from conformance.execution.compile import code_structure
from conformance.execution.compile.compilation import Artefact
from conformance.machine.kept_answers import kept_answer, source_digest
from conformance.machine.versions import assembler_version
from conformance.targets import Target, assembler

#: Instructions of a disassembly: an optional predicate and the operation, up to its first modifier.
_SASS = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]*)")
#: An operation of AMD's: unit and verb, such as v_mfma or buffer_load.
_AMDGCN = re.compile(r"[a-z]+_[a-z0-9]+")
#: How many parts of an operation's name in PTX say what it does; of others the first does.
_PTX_PARTS = {"cp": 3, "ld": 2, "mbarrier": 2, "st": 2, "tcgen05": 2, "wgmma": 2}

ELF_MAGIC = b"\x7fELF"


def describe(artefact: Artefact, target: Target, *, disassemble: bool) -> dict[str, Any]:
    """``features`` that the code has, ``bytes`` and ``sha256`` of its machine code, and ``instructions``. The latter
    say how often each operation occurs in ``instructions_of``: "sass", "ptx" or "amdgcn". It is "sass" if NVIDIA's code
    is to be disassembled (a quarter of a second for each kernel) and can be. ``sync`` are the counts of
    :func:`~conformance.execution.compile.code_structure.structure`. ``assembler`` is the version of the ptxas that
    Triton calls for NVIDIA's ``target``. Of the code of another vendor there are only the features, because the format
    of its binary is not known."""
    binary = artefact.stages.get("cubin") or artefact.stages.get("hsaco")
    about = [path for path in (binary, artefact.stages.get("ptx") or artefact.stages.get("amdgcn")) if path is not None]
    about = about or list(artefact.stages.values())  # another vendor's
    code = "\n".join(
        [
            source_digest(sys.modules[__name__], codegen_checks, code_structure, code_structure),
            *codegen_checks.REGISTERED,
        ]
    )
    name = f"code-{target.id}-{'sass' if disassemble else 'text'}"
    try:
        figures: dict[str, Any] = kept_answer(
            about, name, code, lambda: _figures(artefact, target, binary, disassemble)
        )
    except ValueError as error:  # a text that is none, too
        text = "if a file there was damaged, delete the folder, and the kernel is compiled again"
        raise ValueError(f"{about[0].parent} holds code that cannot be read ({error}): {text}") from None
    used = assembler(int(target.arch)) if target.vendor == "nvidia" and binary is not None else None
    return {**figures, "assembler": assembler_version(used)} if used else figures


def _figures(artefact: Artefact, target: Target, binary: Path | None, disassemble: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {"features": features(artefact, target)}
    if target.vendor not in ("nvidia", "amd"):
        return figures
    if binary is not None:
        code = b"".join(machine_code(binary.read_bytes()))
        figures |= {"bytes": len(code), "sha256": hashlib.sha256(code).hexdigest()}
    stage, counted = _instructions(artefact, target, disassemble)
    text = "ptx" if target.vendor == "nvidia" else "amdgcn"
    sync = code_structure.structure(text, artefact.stages[text].read_text())
    return figures | {"instructions_of": stage, "instructions": dict(counted.most_common()), "sync": sync}


def _instructions(artefact: Artefact, target: Target, disassemble: bool) -> tuple[str, Counter[str]]:
    if target.vendor != "nvidia":
        return "amdgcn", _amdgcn(artefact)
    if disassemble:
        with contextlib.suppress(RuntimeError):  # no disassembler, or one that is older than the target
            return "sass", Counter(_SASS.findall(codegen_checks.disassembled(artefact)))
    return "ptx", _ptx(artefact)


def features(artefact: Artefact, target: Target) -> list[str]:
    """Names of the features of which all evidence is there. Spills are left to the resources."""
    return [
        feature.name
        for feature in FEATURES
        if feature is not SPILL and codegen_checks.present(artefact, target, feature)
    ]


def machine_code(binary: bytes) -> Iterator[bytes]:
    """The contents of the ``.text`` sections of a 64-bit little-endian ELF file, which cubin and hsaco files are.

    The layout is that of the ELF specification (gABI, chapter 4). Raises ValueError for anything else.
    """
    if binary[:4] != ELF_MAGIC or binary[4:6] != b"\x02\x01":
        raise ValueError("the binary is no 64-bit little-endian ELF file")
    try:
        (table,) = struct.unpack_from("<Q", binary, 0x28)
        size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", binary, table + size * index) for index in range(count)]
        strings = sections[names][4]
    except (struct.error, IndexError) as error:
        raise ValueError(f"the binary's table of sections cannot be read: {error}") from None
    for name, kind, _, _, offset, length in sections:
        start = strings + name
        title = binary[start : binary.index(b"\0", start)]
        if kind == _PROGBITS and title.startswith(b".text"):
            yield binary[offset : offset + length]


_PROGBITS = 1


def _ptx(artefact: Artefact) -> Counter[str]:
    counted: Counter[str] = Counter()
    for word, count in _operations(artefact.stages["ptx"], "ptx").items():
        counted[ptx_name(word)] += count
    return counted


def ptx_name(word: str) -> str:
    """Returns an operation of PTX, in one of its spellings, without the modifiers that do not say what it does.
    ``.shared`` becomes ``.shared::cta``, and ``bar`` an aligned ``barrier``.

    >>> ptx_name("st.shared.v4.b32")
    'st.shared'
    """
    word = word.rstrip(";").replace("::cta", "").replace(".cta.", ".")
    if word == "barrier.sync.aligned":
        word = "bar." + word.removeprefix("barrier.")
    parts = word.split(".")
    return ".".join(parts[: _PTX_PARTS.get(parts[0], 1)])


def _amdgcn(artefact: Artefact) -> Counter[str]:
    counted: Counter[str] = Counter()
    for word, count in _operations(artefact.stages["amdgcn"], "amdgcn").items():
        if match := _AMDGCN.match(word):
            counted[match[0]] += count
    return counted


def _operations(path: Path, stage: str) -> Counter[str]:
    """Counts how often each word is the first of a line of code."""
    lines = codegen_checks.code_of(path, stage).split("\n")
    return Counter(words[0] for line in lines if (words := line.split(None, 1)) and words[0][0].isalpha())
