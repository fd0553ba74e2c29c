"""The state of one GPU as its driver's tools report it, for a sentence about a GPU that may be broken."""

from __future__ import annotations

import json
import subprocess

#: Fields of nvidia-smi, with the words for each in a sentence.
_NVIDIA = {
    "uuid": "",
    "clocks.sm": "SM clock",
    "clocks.mem": "memory clock",
    "temperature.gpu": "temperature (C)",
    "ecc.errors.corrected.volatile.total": "corrected ECC errors",
    "ecc.errors.uncorrected.volatile.total": "uncorrected ECC errors",
    "remapped_rows.pending": "row remapping pending",
}
_AMD = ("--showuniqueid", "--showtemp", "--showclocks", "--showrasinfo", "all", "--json")
#: Lines of the kernel's log that are quoted, and characters of a sentence.
_LINES, _LENGTH = 3, 1000
_TIMEOUT_S = 20


def gpu_state(variable: str, entry: str) -> str:
    """Returns what the driver's tools say of the GPU that ``entry`` of ``variable``, a list of visible devices, names.
    That is its UUID, clocks, temperature, errors of its memory, and the last Xid events of the kernel's log. Empty if
    the tools are not there."""
    if variable == "CUDA_VISIBLE_DEVICES":
        query = ["nvidia-smi", f"--id={entry}", f"--query-gpu={','.join(_NVIDIA)}", "--format=csv,noheader"]
        cells = [cell.strip() for cell in _output(query).strip().split(",")]
        facts = [f"{words} {cell}".strip() for words, cell in zip(_NVIDIA.values(), cells, strict=False) if cell]
        return ", ".join([*facts, *_xid_events()])[:_LENGTH]
    try:
        answer = json.loads(_output(["rocm-smi", "--device", entry, *_AMD]))
        facts = [f"{name} {value}" for card in answer.values() for name, value in card.items()]
    except (ValueError, AttributeError):
        return ""
    return ", ".join(facts)[:_LENGTH]


def _xid_events() -> list[str]:
    """The last lines by which NVIDIA's driver has told the kernel's log of an error, where it may be read."""
    events = [line.strip() for line in _output(["dmesg"]).splitlines() if "NVRM: Xid" in line]
    return events[-_LINES:]


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
