"""Returns what the compilers of Triton's backends say of themselves. It is the part of the keys of Triton's cache by
which a backend tells its versions apart."""

from __future__ import annotations

import importlib
import sys

from conformance.gate.runs.bill_of_materials import UNKNOWN
from conformance.targets import every_target


def backend_hashes() -> dict[str, str]:
    """Returns the text of ``hash()`` of each backend's compiler, by the backend's name in ``triton.backends``. The
    compiler is made for the first target that the backend supports, which the text names. "unknown" and the reason
    where there is none. Empty in a process that has not imported Triton, which compiled nothing."""
    if "triton.backends.compiler" not in sys.modules:
        return {}
    backends = importlib.import_module("triton.backends").backends
    gpu_target = importlib.import_module("triton.backends.compiler").GPUTarget
    triton_targets = [gpu_target(target.backend, target.arch, target.warp_size) for target in every_target()]
    return {name: _hash(backend.compiler, triton_targets) for name, backend in backends.items()}


def _hash(compiler: type, triton_targets: list[object]) -> str:
    try:
        target = next((one for one in triton_targets if compiler.supports_target(one)), None)  # type: ignore[attr-defined]
        if target is None:
            return f"{UNKNOWN}: no target of it is known"
        return f"{compiler(target).hash()}"
    except Exception as error:  # a backend's own code, which raises what it likes
        return f"{UNKNOWN}: {type(error).__name__}: {error}"[:64]
