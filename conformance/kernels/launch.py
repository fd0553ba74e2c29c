"""What a kernel hands to an executor: a config, a plan and the launch built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Config:
    """Tile sizes and compile options of one launch. ``vendor`` holds backend options such as AMD's waves_per_eu."""

    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    num_warps: int
    group_m: int = 8
    vendor: tuple[tuple[str, int], ...] = ()

    @property
    def id(self) -> str:
        """Stable text such as ``128x128x64-s3-w8``; GROUP_M shows when it is not 8."""
        text = f"{self.block_m}x{self.block_n}x{self.block_k}-s{self.num_stages}-w{self.num_warps}"
        if self.group_m != 8:
            text += f"-g{self.group_m}"
        return text + "".join(f"-{name}{value}" for name, value in self.vendor)

    @property
    def options(self) -> dict[str, int]:
        """Keyword options of the compiler."""
        return {"num_stages": self.num_stages, "num_warps": self.num_warps, **dict(self.vendor)}


@dataclass(frozen=True)
class Launch:
    """One launch: ``function[grid](**arguments, **options)``.

    ``function`` is a ``triton.jit`` function, ``arguments`` its parameters by name (tensors, host tensor descriptors,
    numbers, constexpr values), ``options`` the compile options. A grid with a zero means that nothing is launched.
    """

    function: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return 0 in self.grid
