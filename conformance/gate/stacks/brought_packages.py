"""Describes what a stack brings along, found before anything is fetched: versions, builds and sizes of its packages."""

from __future__ import annotations

import http.client
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

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
