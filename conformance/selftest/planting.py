"""Writes a package of kernels with planted faults, which an ordinary run finds by its entry point.

The kernels are copies of the catalogue's, whose device functions have the edits of their fault. Copies without a fault
lie between them: the innocent neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from conformance.selftest.faults import POINTER, TILES, TMA, PlantedFault

PACKAGE = "planted_kernels"
#: The file in the package that says which kernels there are.
LIST_FILE = "planted.json"
#: How the files begin whose existence says that a fault acted.
MARK = "mark-"
#: The variable with the folder of the marks, and that which says that workers are to be killed as they start.
FOLDER, KILLS = "CONFORMANCE_SELFTEST_FOLDER", "CONFORMANCE_SELFTEST_KILLS"
#: The variable with the factor of the deadlines.
SLOWNESS = "CONFORMANCE_SELFTEST_SLOWNESS"
_DEVICE = "conformance.kernels.device"
_SOURCE = Path(__file__).resolve().parents[1] / "kernels" / "device"
_MODULES = (TILES, POINTER, TMA)


class NotPlantable(Exception):
    """The text that a fault replaces is not in the kernel's source as it should be."""


def innocent(number: int) -> str:
    """Returns the name of an innocent kernel."""
    return f"innocent_{number}"


def plant(folder: Path, faults: Sequence[PlantedFault]) -> list[str]:
    """Writes the package with the kernels of ``faults`` into ``folder``, which must be on ``sys.path`` of the run.
    Returns the names of all kernels in their order; an innocent one precedes and follows each fault. Raises
    :class:`NotPlantable`."""
    package = folder / PACKAGE
    kernels = [{"name": innocent(0), "kernel": "mm", "entry": "", "host": ""}]
    sources = {innocent(0): _copied(f"{PACKAGE}.{innocent(0)}", ())}
    for place, fault in enumerate(faults, 1):
        name = fault.planted_kernel
        kernels.append({"name": name, "kernel": fault.kernel, "entry": fault.entry, "host": fault.host})
        kernels.append({"name": innocent(place), "kernel": "mm", "entry": "", "host": ""})
        sources[name] = _copied(f"{PACKAGE}.{name}", (fault,))
        sources[innocent(place)] = _copied(f"{PACKAGE}.{innocent(place)}", ())
    for name, modules in sources.items():
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("")
        for module, text in modules.items():
            (package / name / f"{module}.py").write_text(text)
    (package / LIST_FILE).write_text(json.dumps(kernels))
    (package / "__init__.py").write_text(
        "from pathlib import Path\n\nfrom conformance.selftest.kernels import kernels_in\n\n\n"
        "def kernels():\n    return kernels_in(Path(__file__).parent)\n"
    )
    info = folder / f"{PACKAGE}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE.replace('_', '-')}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[conformance.kernels]\nplanted = {PACKAGE}:kernels\n")
    return [kernel["name"] for kernel in kernels]


def _copied(package: str, faults: Sequence[PlantedFault]) -> dict[str, str]:
    """Returns the text of each module of device functions, with the edits of ``faults``, for ``package``."""
    texts = {module: (_SOURCE / f"{module}.py").read_text() for module in _MODULES}
    for fault in faults:
        for edit in fault.edits:
            count = texts[edit.module].count(edit.old)
            if count != 1:
                raise NotPlantable(
                    f"{fault.name}: kernels/device/{edit.module}.py has the text {edit.old!r} {count} times, once is "
                    "required: the kernel has changed, so bring the table of selftest/faults.py up to date"
                )
            texts[edit.module] = texts[edit.module].replace(edit.old, edit.new)
    return {
        module: text.replace(f"from {_DEVICE}.tiles import", f"from {package}.tiles import")
        for module, text in texts.items()
    }
