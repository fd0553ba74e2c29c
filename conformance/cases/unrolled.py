"""The dtype whose products are unrolled, and which of its configs compile within seconds: a rule of the sampled tiers.

No matrix unit multiplies fp32 in full precision. The compiler writes one multiply-add for each product of a tile, and
takes about a second for every :data:`LIMIT` of them that one thread has. Below the full tier fp32 keeps to the configs
up to that limit. A kernel that has none keeps its least. TF32 is another dtype here: matrix units multiply it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from conformance.heuristics.configs import AnyConfig
from conformance.kernels.kernel import Kernel

#: A scenario's name of that dtype.
UNROLLED = "fp32"

#: Multiply-adds of one thread in one step of the main loop, at most.
LIMIT = 1024

#: Threads of a warp; where there are 64, matrix units multiply fp32 too.
WARP = 32


def multiply_adds(kernel: Kernel, problem: Any, config: AnyConfig) -> float:
    """Multiply-adds that one thread has in one step of the main loop, if they are unrolled."""
    return kernel.multiply_adds(problem, config) / (WARP * config.num_warps)


def unrolled_product(problem: Any) -> bool:
    """True if the products of ``problem`` are unrolled."""
    return (getattr(problem, "dtype", None), getattr(problem, "precision", "ieee")) == (UNROLLED, "ieee")


def within_limit(kernel: Kernel, problem: Any, config: AnyConfig, configs: Iterable[AnyConfig]) -> bool:
    """Returns True if ``problem`` with ``config`` compiles within seconds. It must not be unrolled, or have at most
    :data:`LIMIT` multiply-adds a thread, or no more than with any other of ``configs``."""
    if not unrolled_product(problem):
        return True
    least = min((multiply_adds(kernel, problem, other) for other in configs), default=0)
    return multiply_adds(kernel, problem, config) <= max(LIMIT, least)
