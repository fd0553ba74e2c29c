"""Runs pip, and describes what a stack brings along: found before anything is fetched."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

#: Seconds that pip may take for one command: a torch with its CUDA libraries is several gigabytes.
INSTALL_SECONDS = 3600
#: In the cache: a pip that resolves without fetching the packages.
PIP_FOLDER = "pip"

Say = Callable[[str], None]


class PipError(Exception):
    """pip did not do what it was asked for; the message says why and what to do."""


#: What pip writes, why it failed then, and what to do; the first that matches counts.
_REASONS = (
    (r"No module named pip", "this Python has no pip", "run 'python -m ensurepip' with it"),
    (
        r"No space left on device|Errno 28|Disk quota exceeded|Errno 122|not enough space",
        "no space is left on the disk",
        "give another --cache, and set TMPDIR to a folder with room: pip unpacks there",
    ),
    (
        r"DO NOT MATCH THE HASHES|Expected sha\d+ |hash mismatch",
        "a file is not the one that the index lists: its digest differs",
        "try again; if it differs again, a proxy or the index altered it",
    ),
    (
        r"SSLError|CERTIFICATE_VERIFY_FAILED",
        "the index's certificate was not accepted",
        "give pip the certificates of your network (PIP_CERT=FILE)",
    ),
    (
        r"\b(401|403|407)\b.*(Client Error|Unauthorized|Forbidden|Proxy Authentication)|403 Forbidden",
        "the index refuses access",
        "give pip its credentials, by the index's URL, a netrc file or a keyring",
    ),
    (
        r"NewConnectionError|Failed to establish a new connection|Temporary failure in name resolution"
        r"|NameResolutionError|Name or service not known|Connection refused|Network is unreachable|ConnectTimeout"
        r"|ReadTimeout|Read timed out|ProxyError|Cannot connect to proxy|ConnectionReset|Connection aborted"
        r"|Connection broken|IncompleteRead|RemoteDisconnected|ProtocolError|5\d\d Server Error",
        "the index cannot be reached",
        "look at the network and at pip's settings ('pip config list'), or give wheels from this machine",
    ),
    (
        r"is not a supported wheel on this platform",
        "the wheel is for another Python or another machine",
        "take the one for this Python, or start the gate with the wheel's",
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "its packages contradict each other, or a constraint of pip's",
        "name versions that go together",
    ),
    (
        r"No matching distribution found",
        "no index that pip knows has it for this Python",
        "look at the version, or give pip the index that has it (PIP_EXTRA_INDEX_URL)",
    ),
    (
        r"Wheel '.*is invalid|[Ii]nvalid wheel|BadZipFile|is not a zip file|has an invalid",
        "the file is no wheel",
        "fetch or build it again",
    ),
    (r"Permission denied|Errno 13", "a folder cannot be written", "give another --cache"),
)


def captured(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs ``command`` to its end and returns what it wrote, whatever its exit status. ``options`` are those of
    ``subprocess.run``."""
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **options)


def failure(errors: str, status: int) -> str:
    """Returns the reason why pip failed and what to do: a sentence, and pip's own lines that say more. ``errors`` is
    the text that pip wrote before it ended with ``status``."""
    own = [line.removeprefix("ERROR: ") for line in errors.splitlines() if line.startswith("ERROR")]
    own = own or [line for line in errors.splitlines() if line.strip()]
    if own and "No matching distribution found" in own[-1]:
        own = own[:1]  # it names the versions that there are
    shown = "\n".join(own[-5:])
    if status < 0:
        return f"pip was ended by signal {-status}, as if memory ran out: try again\n{shown}".rstrip()
    for pattern, why, remedy in _REASONS:
        if re.search(pattern, errors):
            return f"{why}: {remedy}\n{shown}".rstrip()
    return shown or f"pip ended with status {status} and wrote no error"


def install(arguments: Sequence[str], say: Say) -> None:
    """Installs as ``arguments`` of ``pip install`` say. On a terminal pip shows its own progress; else ``say`` gets a
    line for each package that is fetched, with its size. Raises :class:`PipError`."""
    terminal = sys.stderr.isatty()
    command = _command(["install", *arguments])
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command, stdout=sys.stderr if terminal else subprocess.PIPE, stderr=errors, text=True, errors="replace"
        )
        late = threading.Timer(INSTALL_SECONDS, process.kill)
        late.start()
        try:
            for line in process.stdout or ():
                if re.match(r"\s*(Downloading|Using cached) (?!.*\.metadata)", line):
                    say(line.strip())
            status = process.wait()
        finally:
            is_late = not late.is_alive()
            late.cancel()
            process.kill()
        errors.seek(0)
        written = errors.read()
    if status and is_late:
        raise PipError(f"pip took more than {INSTALL_SECONDS} s\nthe command was: {' '.join(command)}")
    if status:
        raise PipError(f"{failure(written, status)}\nthe command was: {' '.join(command)}")


def planned(arguments: Sequence[str], cache: Path, say: Say) -> list[Mapping[str, Any]] | None:
    """Returns pip's report of each package that ``pip install`` with ``arguments`` would install, without fetching it.
    None if there is no pip that can say so; ``say`` is told why. Raises :class:`PipError` if it could not be installed.
    """
    local = all(argument.startswith("-") or os.path.exists(argument) for argument in arguments)
    variables = {} if local or _reports_first(_package()) else _newer_pip(cache, say)
    if variables is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        words = ["--quiet", "--retries", "2", "--dry-run", "--ignore-installed", "--report", str(report)]
        command = _command(["install", *words, *arguments])
        try:
            done = captured(command, env={**os.environ, **variables}, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise PipError(f"pip took more than {INSTALL_SECONDS} s\nthe command was: {' '.join(command)}") from None
        if done.returncode:
            raise PipError(f"{failure(done.stderr, done.returncode)}\nthe command was: {' '.join(command)}")
        return list(json.loads(report.read_text(encoding="utf-8"))["install"])


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pip", *words, "--disable-pip-version-check", "--no-input"]


def _package() -> Path | None:
    """Returns the folder of the pip that this Python has."""
    spec = importlib.util.find_spec("pip")
    return Path(spec.origin).parent if spec and spec.origin else None


def _reports_first(package: Path | None) -> bool:
    """Returns True if the pip in the folder ``package`` reports what it would install before it fetches it. Older ones
    fetch all while they resolve; the newer ones do so in the command, after the report."""
    if package is None:
        return True  # it fails with the reason
    try:
        text = (package / "_internal" / "commands" / "install.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return "prepare_linked_requirements_more" in text


def _newer_pip(cache: Path, say: Say) -> dict[str, str] | None:
    """The variables with which ``python -m pip`` is one in ``cache`` that reports first. It is fetched once."""
    folder = cache / PIP_FOLDER
    if not _reports_first(folder / "pip"):
        say("a pip that says what it would fetch is fetched first (2 MB): the one installed here fetches at once")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="pip-") as scratch:
            built = Path(scratch) / "built"
            try:
                install(["--quiet", "--no-deps", "--upgrade", "--target", str(built), "pip"], say)
                if not folder.exists():
                    built.rename(folder)
            except (PipError, OSError) as error:
                say(f"what is to be fetched is not known before: no newer pip was to be had ({error})".splitlines()[0])
                return None
    if not _reports_first(folder / "pip"):
        say("what is to be fetched is not known before: pip fetches while it resolves; upgrade pip to know")
        return None
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *([inherited] if inherited else [])])}


#: Packages of which a stack with another version says so in its name.
_NAMED = ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-rocm", "triton-xpu")
_OF_CUDA = re.compile(r"nvidia-.*|cuda-.*")
_OF_ROCM = re.compile(r"rocm.*|.*triton-rocm")
#: Seconds for the size of one file, and how many are asked for at once.
_SIZE_SECONDS, _AT_ONCE = 10, 8


@dataclass(frozen=True)
class Package:
    """One package: its canonical ``name``, its ``version``, and what it ``requires``, as its metadata say. ``size``:
    bytes of its wheel, None if it is not known; ``local``: whether the wheel lies on this machine."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    size: int | None = None
    local: bool = False


def reported(entries: Iterable[Mapping[str, Any]]) -> list[Package]:
    """Returns the packages of pip's report, with their sizes."""
    listed = list(entries)
    urls = [str(entry.get("download_info", {}).get("url", "")) for entry in listed]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes = list(pool.map(_size, urls))
    return [
        Package(
            canonicalize_name(entry["metadata"]["name"]),
            str(entry["metadata"]["version"]),
            tuple(entry["metadata"].get("requires_dist", ())),
            size,
            url.startswith("file:"),
        )
        for entry, url, size in zip(listed, urls, sizes, strict=True)
    ]


def installed(site: Path | None = None) -> dict[str, Package]:
    """Returns the packages in the folder ``site``, or those of this environment, by name."""
    every = metadata.distributions(path=[str(site)]) if site is not None else metadata.distributions()
    by_name: dict[str, Package] = {}
    for one in every:
        if one.metadata["Name"]:
            name = canonicalize_name(one.metadata["Name"])
            by_name.setdefault(name, Package(name, one.version, tuple(one.requires or ())))
    return by_name


def triton_of(packages: Iterable[Package]) -> Package | None:
    """Returns the Triton among ``packages``, under whichever name it has."""
    return next((package for package in packages if package.name in _NAMED), None)


def build_of(torch: Package | None) -> str:
    """Returns the build of a torch, such as "CPU build" or "CUDA 13.0 build"; empty without one."""
    if torch is None:
        return ""
    label = torch.version.partition("+")[2]
    if label.startswith("cpu"):
        return "CPU build"
    if match := re.fullmatch(r"cu(\d+)(\d)\b.*", label):
        return f"CUDA {match[1]}.{match[2]} build"
    if match := re.match(r"(rocm|xpu)([\d.]*)", label):
        return f"{match[1].upper().replace('ROCM', 'ROCm')} {match[2]}".rstrip() + " build"
    required = [canonicalize_name(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in torch.requires]
    if any(map(_OF_CUDA.fullmatch, required)):
        return "CUDA build"
    return "ROCm build" if any(map(_OF_ROCM.fullmatch, required)) else "CPU build"


def brought(packages: Mapping[str, Package], here: Mapping[str, Package], written: Iterable[str]) -> tuple[str, ...]:
    """Returns the changes that a stack with ``packages`` makes against the environment ``here``, and that its user has
    not ``written``. Examples are another Triton ("triton 3.8.0") and a torch that is built for something else ("CPU
    build")."""
    changes = [
        f"{name} {packages[name].version}"
        for name in _NAMED
        if name in packages and name not in written
        if name not in here or here[name].version != packages[name].version
    ]
    torch, current = packages.get("torch"), here.get("torch")
    if torch is not None and current is not None and build_of(torch) != build_of(current):
        changes.append(build_of(torch))
    return tuple(changes)


def announcement(name: str, packages: Sequence[Package], here: Mapping[str, Package], has_gpu: bool) -> list[str]:
    """Lines that say what the stack ``name`` fetches: how much, and what differs from the environment ``here``."""
    if not packages:
        return []
    by_name = {package.name: package for package in packages}
    fetched = [package for package in packages if not package.local]
    lines = [f"{name}: {_total(fetched)} to be fetched" if fetched else f"{name}: nothing is fetched"]
    if local := [package for package in packages if package.local]:
        lines[0] += f", {_total(local)} from files on this machine"
    libraries = [package for package in packages if _OF_CUDA.fullmatch(package.name)]
    first = [by_name[name] for name in ("torch", *_NAMED) if name in by_name]
    rest = [package for package in packages if package not in (*libraries, *first)]
    for package in first:
        lines.append(f"  {_described(package)}; {_against(package, here.get(package.name))}")
    if libraries:
        named = sorted(libraries, key=lambda package: -(package.size or 0))
        shown = ", ".join(f"{package.name} {package.version}" for package in named[:3])
        lines.append(f"  CUDA libraries: {_total(libraries)}: {shown}{', ...' if len(named) > 3 else ''}")
    if rest:
        changed = [
            package for package in rest if package.name in here and here[package.name].version != package.version
        ]
        shown = ", ".join(
            f"{package.name} {package.version} (here {here[package.name].version})" for package in changed[:5]
        )
        lines.append(f"  others: {_total(rest)}{f': {shown}' if shown else ''}{', ...' if len(changed) > 5 else ''}")
    torch = by_name.get("torch")
    if torch is not None and not any(each in by_name for each in _NAMED):
        stays = next((f"{each} {here[each].version}" for each in _NAMED if each in here), "")
        lines.append(f"  this torch brings no Triton: {f'{stays} stays' if stays else 'there is none'}")
    if torch is not None and has_gpu and build_of(torch) == "CPU build":
        lines.append(
            "  a CPU build of torch runs nothing on this machine's GPU: name its CUDA or ROCm build, such as +cu130"
        )
    if torch is not None and not has_gpu and build_of(torch) != "CPU build":
        lines.append(
            "  this machine has no GPU: PIP_EXTRA_INDEX_URL can name an index with the CPU build of torch, such as "
            "https://download.pytorch.org/whl/cpu, and that build is taken"
        )
    return lines


def short_of(packages: Iterable[Package], cache: Path) -> str:
    """Returns a sentence about why the disk of ``cache`` cannot hold ``packages``; empty if it may."""
    needed, free = sum(package.size or 0 for package in packages), shutil.disk_usage(cache).free
    if needed <= free:
        return ""
    return f"its packages have {size_text(needed)} and {cache} has {size_text(free)} left: give another --cache"


def size_text(size: float) -> str:
    """Returns a number of bytes as people write it: in the units that pip uses.

    >>> size_text(3_000_000_000), size_text(512)
    ('3.0 GB', '512 bytes')
    """
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _total(packages: Sequence[Package]) -> str:
    unknown = sum(package.size is None for package in packages)
    count = f"{len(packages)} package{'s' if len(packages) != 1 else ''}"
    if unknown == len(packages):
        return f"{count} of unknown size"
    size = size_text(sum(package.size or 0 for package in packages))
    return f"{count}, {size}" + (f" and {unknown} of unknown size" if unknown else "")


def _described(package: Package) -> str:
    build = build_of(package) if package.name == "torch" else ""
    size = "size unknown" if package.size is None else size_text(package.size)
    return ", ".join(filter(None, (f"{package.name} {package.version}", build, size)))


def _against(package: Package, here: Package | None) -> str:
    if here is None:
        return "not installed here"
    same = here.version == package.version
    build = f", {build_of(here)}" if package.name == "torch" and build_of(here) != build_of(package) else ""
    return f"the version of this environment{build}" if same else f"here {here.version}{build}"


def _size(url: str) -> int | None:
    """Returns the bytes of the file at ``url``; None if the server does not say."""
    try:
        if url.startswith("file:"):
            return Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path)).stat().st_size
        if not url.startswith(("http:", "https:")):
            return None
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_SIZE_SECONDS) as answer:
            length = answer.headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
