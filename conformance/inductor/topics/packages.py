"""Checks of AOT packages: what a package holds, how the process ends that loads it, and what becomes of one that is
damaged."""

from __future__ import annotations

import json
import re
import signal
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from conformance.inductor.compile.cpp_programs import BUILD_SECONDS, Outcome
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.records import Verdict

#: How a shared library and a cubin begin.
ELF = b"\x7fELF"


def check_child(what: str, outcome: Outcome) -> Verdict:
    """The child did ``what``: it ended by itself, raised nothing and sent what that gave."""
    if outcome.failure is not None:
        text = str(outcome.failure)
    elif outcome.code is None:
        text = f"the process did not end within {BUILD_SECONDS:g} s and was killed"
    elif outcome.code == 0:
        text = "the process ended by itself" + (" and sent nothing" if outcome.value is None else "")
    elif outcome.code < 0:
        text = f"the process was ended by {signal.Signals(-outcome.code).name}: this torch's code crashed"
    else:
        text = f"the process ended with exit code {outcome.code}"
    answered = outcome.failure is None and outcome.value is not None
    return Verdict(what, outcome.code == 0 and answered, text)


def check_refused(damage: str, outcome: Outcome) -> Verdict:
    """The package with this ``damage`` is refused: the child raised RuntimeError with a sentence, and ended by
    itself."""
    failure = outcome.failure
    raised = failure is not None and failure.types[0] == "RuntimeError" and len(failure.message.split()) > 2
    seen = check_child("loaded", outcome).text if failure or outcome.code != 0 else "it was loaded without an error"
    return Verdict(f"refused/{damage}", outcome.code == 0 and raised, f"RuntimeError is required, seen: {seen}")


def check_content(path: Path, device: str, product: str, kernels: Mapping[str, bytes]) -> list[Verdict]:
    """The package holds one wrapper with the entry, which calls the ``product`` (a regular expression) once, one
    library, and metadata for the ``device``. ``kernels``: endings of the names of files that it must hold, each with
    what such a file must hold."""
    with zipfile.ZipFile(path) as archive:
        files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}

    def ending(suffix: str) -> list[bytes]:
        return [content for name, content in files.items() if name.endswith(suffix)]

    wrapper = "\n".join(content.decode() for content in ending(".wrapper.cpp"))
    code = re.sub(r"^\s*//.*$", "", wrapper, flags=re.MULTILINE)
    metadata = [json.loads(content) for content in ending("_metadata.json")]
    devices = {entry.get("AOTI_DEVICE_KEY") for entry in metadata}
    libraries = ending(".so")
    whole = len(libraries) == 1 and libraries[0].startswith(ELF)
    return [
        Verdict("archive", files.get("archive_format") == b"pt2", f"format {files.get('archive_format')!r}"),
        in_source("entry", exactly(1, r"void AOTInductorModel::run_impl\("), code),
        in_source("product", exactly(1, product), code),
        Verdict("library", whole, f"{len(libraries)} libraries, one ELF file required"),
        Verdict("metadata", devices == {device}, f"for {sorted(map(str, devices))}, {device} required"),
        *(
            Verdict(f"kernels{suffix}", any(part in content for content in ending(suffix)), f"{part!r} required")
            for suffix, part in kernels.items()
        ),
    ]


def check_wrapper(module: str, product: str) -> list[Verdict]:
    """A module whose C++ has an entry, and calls the C++ kernel that is the ``product`` (a regular expression) once."""
    return [
        in_source("entry", exactly(1, r"void inductor_entry_impl\("), module),
        in_source("product", exactly(1, product), module),
        Verdict("kernel", "micro_gemm(" in module, "a kernel of a product is required"),
    ]


# --- damaged packages -------------------------------------------------------------------------------------------------


def _half(path: Path, to: Path) -> None:
    content = path.read_bytes()
    to.write_bytes(content[: len(content) // 2])


def _empty(path: Path, to: Path) -> None:
    to.write_bytes(b"")


def _without_library(path: Path, to: Path) -> None:
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(to, "w") as damaged:
        for entry in archive.infolist():
            if not entry.filename.endswith(".so"):
                damaged.writestr(entry.filename, archive.read(entry))


#: Parts of a package that can be missing, and what writes such a package.
INCOMPLETE: Mapping[str, Callable[[Path, Path], None]] = {
    "half": _half,
    "empty": _empty,
    "without library": _without_library,
}


def altered(path: Path, to: Path, part: bytes) -> None:
    """Writes the package with one bit of ``part``, the content of an fp32 constant, changed, and nothing else: a bit of
    the first element's exponent. Raises ValueError if the package does not hold the part once."""
    content = bytearray(path.read_bytes())
    if content.count(part) != 1:
        raise ValueError(f"{path.name} holds the {len(part)} bytes {content.count(part)} times, once is required")
    content[content.index(part) + 3] ^= 0x40
    to.write_bytes(content)
