"""Entries of Triton's cache: whether the files of one fit together, and whether a new compilation gives the same.

Triton replaces each file of an entry by itself and checks none when it reads them. Two writers of one key can leave
the binary of one with the metadata of the other, and a damaged file stays.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.execution.compile.kernel_figures import ELF_MAGIC, elf_sections
from conformance.targets import Target

#: The stages of each vendor's compiler, of which the last is the binary.
_STAGES = {"nvidia": ("ttir", "ttgir", "llir", "ptx", "cubin"), "amd": ("ttir", "ttgir", "llir", "amdgcn", "hsaco")}
#: What each stage says of the kernel's name, with which a launch finds it.
_NAMED = {
    "ttir": r"tt\.func public @(?:\"{0}\"|{0})\(",
    "ttgir": r"tt\.func public @(?:\"{0}\"|{0})\(",
    "llir": r"@(?:\"{0}\"|{0})\(",
    "ptx": r"\.entry {0}\(",
    "amdgcn": r"\.amdhsa_kernel {0}\s",
}
#: What each stage says of the architecture, and where the number of threads of a block stands.
_ARCHITECTURE = {"ptx": r"^\.target sm_{0}[af]?\b", "ttgir": r'ttg\.target = "(?:cuda|hip):{0}"'}
_THREADS = {"ptx": r"^\.(?:req|max)ntid (\d+)", "amdgcn": r"\.max_flat_workgroup_size: (\d+)"}
#: Sections of a binary that name files of the machine that compiled it, and tables whose offsets follow from them.
_NOT_CODE = (
    ".debug",
    ".nv_debug",
    ".rel.debug",
    ".rela.debug",
    ".strtab",
    ".shstrtab",
    ".symtab",
    ".comment",
    ".note.nv",
)
_PLACE = re.compile(r'"[^"\n]*/[^"\n]*"')
#: The part of PTX and of AMD's assembly that tells a debugger about lines.
_DEBUG = re.compile(r'^\s*\.section\s+"?\.debug', re.MULTILINE)


def contradiction(files: Mapping[str, bytes], target: Target) -> str:
    """Returns how ``files``, the stages of one kernel for ``target``, contradict each other; empty if they do not. The
    stages are named as :class:`~conformance.execution.compile.compilation.Artefact` names them."""
    try:
        facts = json.loads(files["json"])
        name, threads = str(facts["name"]), int(facts["num_warps"]) * target.warp_size
        compiled_for = facts["target"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return f"its metadata cannot be read ({type(error).__name__}: {str(error)[:200]})"
    if compiled_for != {"backend": target.backend, "arch": target.arch, "warp_size": target.warp_size}:
        return f"its metadata is for {str(compiled_for)[:200]}, {target.id} is required"
    stages = _STAGES.get(target.vendor, ())
    texts = stages[:-1] if any(stage in files for stage in stages[:-1]) else ()  # Triton may store the binary only
    if missing := [stage for stage in (*texts, *stages[-1:]) if not files.get(stage)]:
        return f"{', '.join(missing)} is missing or empty"
    for stage in texts:
        if text := _text_contradicts(stage, files[stage], name, threads, target):
            return text
    return _binary_contradicts(files[stages[-1]], name) if stages else ""


def misplaced(metadata: bytes, folder: str) -> str:
    """Returns how ``metadata`` say that they are of another entry than that in ``folder``; empty if they do not. A
    folder is named after the hash in them."""
    try:
        own = base64.b32encode(bytes.fromhex(json.loads(metadata)["hash"])).decode().rstrip("=")
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    name = os.path.basename(folder)
    return f"its metadata is of the entry {own}" if len(name) == len(own) and name != own else ""


def _text_contradicts(stage: str, content: bytes, name: str, threads: int, target: Target) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return f"{stage} is no text ({error})"
    if not re.search(_NAMED[stage].format(re.escape(name)), text):
        return f"{stage} has no kernel {name}, which the metadata names"
    arch = _ARCHITECTURE.get(stage)
    if arch and not re.search(arch.format(re.escape(str(target.arch))), text, re.MULTILINE):
        return f"{stage} is not for {target.id}"
    launch = re.search(_THREADS[stage], text, re.MULTILINE) if stage in _THREADS else None
    if launch and int(launch[1]) != threads:
        return f"{stage} is for {launch[1]} threads, the metadata says {threads}"
    return ""


def _binary_contradicts(binary: bytes, name: str) -> str:
    if binary[:4] != ELF_MAGIC:
        return "the binary is no ELF file"
    try:
        names = b"\0".join(content for section, content in elf_sections(binary) if section.endswith(b"strtab"))
    except ValueError as error:
        return f"the binary is cut off or damaged: {error}"
    return "" if name.encode() in names else f"the binary has no kernel {name}, which the metadata names"


def differing(kept: Mapping[str, bytes], compiled: Mapping[str, bytes]) -> list[str]:
    """Returns the stages in which two results of one compilation differ. The paths of the machine do not count.
    Nor does what the front end made: it names modules, and two modules with the same text share an entry."""
    return [stage for stage in sorted({*kept, *compiled} - {"source"}) if _code(stage, kept) != _code(stage, compiled)]


def _code(stage: str, files: Mapping[str, bytes]) -> Any:
    content = files.get(stage)
    if content is None:
        return None
    try:
        if stage == "json":
            facts = json.loads(_PLACE.sub('""', content.decode()))
            return {key: value for key, value in facts.items() if key != "hash"}
        if content[:4] == ELF_MAGIC:
            return [section for section in elf_sections(content) if not section[0].decode().startswith(_NOT_CODE)]
        return _DEBUG.split(_PLACE.sub('""', content.decode()), maxsplit=1)[0]
    except (ValueError, AttributeError, RecursionError):  # damaged: every byte counts
        return content


def contents(stages: Mapping[str, Path]) -> dict[str, bytes]:
    """Returns the contents of the files ``stages``; a file that cannot be read is left out."""
    files = {}
    for stage, path in stages.items():
        with contextlib.suppress(OSError):
            files[stage] = path.read_bytes()
    return files


@contextlib.contextmanager
def reads_noted() -> Iterator[list[str]]:
    """Yields a list to which each folder is added from which Triton takes a kernel within the block."""
    from triton.runtime.cache import FileCacheManager

    original = FileCacheManager.get_group
    folders: list[str] = []

    def get_group(self: Any, filename: str) -> Any:
        if self.has_file(f"__grp__{filename}"):
            folders.append(self.cache_dir)
        return original(self, filename)

    FileCacheManager.get_group = get_group
    try:
        yield folders
    finally:
        FileCacheManager.get_group = original


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Within the block, Triton's cache is a new folder, which is removed afterwards."""
    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="conformance-empty-cache-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TRITON_CACHE_DIR") if before is None else os.environ.update(TRITON_CACHE_DIR=before)
