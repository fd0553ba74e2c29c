"""Prepares a process in which Inductor generates code for AMD.

Inductor decides by ``torch.version.hip`` which vendor's heuristics it registers, once, when it is imported. So code for
AMD and for NVIDIA is generated in different processes.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

#: What stands in for the version of HIP of a torch that was built without it. torch asks for 7.14 before it uses
#: gfx1250's tensor data mover.
ASSUMED = "7.14.0"


def prepare() -> None:
    """Inductor will register AMD's heuristics. Raises RuntimeError if it has registered another vendor's already."""
    version: Any = torch.version
    if not version.hip and "torch._inductor.select_algorithm" in sys.modules:
        raise RuntimeError("Inductor has registered its heuristics already: prepare the process before it is imported")
    version.hip = version.hip or ASSUMED
