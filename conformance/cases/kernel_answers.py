"""Says which dtype, config and target a kernel takes together. Asks the kernel, and keeps its answer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from conformance.cases import config_space
from conformance.cases.unrolled import UNROLLED, within_limit
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.catalogue import is_own
from conformance.kernels.kernel import Kernel
from conformance.machine.awake_time import AwakeTime
from conformance.machine.overdue import Overdue, deadline
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: Stands for the dtype or the config in the rows of a test that takes none.
ANY = "any"

#: dtype, config and target that a kernel takes together.
Taken = tuple[str, Any, Target]

#: Refusals that are about the target and not about a config: a sweep has no case for them.
ABOUT_THE_TARGET = (ReasonCode.CAPABILITY, ReasonCode.DTYPE, ReasonCode.PRECISION)

#: By the name of a third-party kernel, what it raised when it was asked for its cases.
RAISED: dict[str, str] = {}
#: Kernels that did not answer within a deadline.
_LATE: set[Kernel] = set()


@contextlib.contextmanager
def contained(kernel: Kernel) -> Iterator[None]:
    """Inside, what a third-party kernel raises is noted in :data:`RAISED` and costs its own cases only. One that was
    late has a short deadline from then on."""
    if is_own(kernel):
        yield
        return
    try:
        with deadline(f"a question to {kernel.name}", AwakeTime.LOOK_S if kernel in _LATE else None):
            yield
    except (Exception, SystemExit) as error:
        if isinstance(error, Overdue):
            _LATE.add(kernel)
        RAISED.setdefault(kernel.name, f"{type(error).__name__}: {error}")


@functools.cache
def fitted(kernel: Kernel, dtype: str, config: AnyConfig, target: Target) -> Kernel | None:
    """Returns the kernel that cases with this dtype, config and target get; None if there are no such cases.

    A kernel of this package is taken as it is, a third-party kernel in the shape, orders and variant that it takes
    (:meth:`Kernel.fitted`).
    """
    if is_own(kernel):
        return kernel if kernel.example_refusal(dtype, config, target) is None else None
    dtypes = kernel.dtype_names() if dtype == ANY else [dtype]
    configs = kernel.configs if config == ANY else (config,)
    ways = (kernel.fitted(name, one, target) for name in dtypes for one in configs)
    return next((way for way in ways if way is not None), None)


def asked_as(kernel: Kernel, dtype: str, config: AnyConfig, target: Target) -> Kernel:
    """Returns the kernel that a case with these values gets."""
    return kernel if is_own(kernel) else fitted(kernel, dtype, config, target) or kernel


def usable(kernel: Kernel, target: Target) -> bool:
    """True if a kernel takes an example of some dtype with some config on ``target``."""
    return kernel.usable_on(target) if is_own(kernel) else fitted(kernel, ANY, ANY, target) is not None


@functools.cache
def _refusals(
    kernel: Kernel, dtype: str, config: AnyConfig, targets: tuple[Target, ...], estimated: bool
) -> Sequence[Reason | None]:
    """Returns why ``kernel`` refuses each of ``targets``. Kept, because many scenarios ask the same of a kernel."""
    return kernel.example_refusals(dtype, config, targets, estimated=estimated)


def takers(
    kernel: Kernel,
    dtype: str,
    config: AnyConfig,
    targets: tuple[Target, ...],
    *,
    estimated: bool = True,
    refused: bool = False,
) -> list[Target]:
    """Returns those of ``targets`` on which ``kernel`` has cases with ``dtype`` and ``config``.

    Without ``estimated`` a config may need too much memory by estimate: compiled, it may fit. With ``refused`` the
    kernel may refuse the config, too, unless the reason is :data:`ABOUT_THE_TARGET`.
    """
    ours = is_own(kernel)
    reasons = zip(targets, _refusals(kernel, dtype, config, targets, estimated), strict=True)
    return [
        target
        for target, reason in reasons
        if reason is None
        or (refused and reason.code not in ABOUT_THE_TARGET)
        or (not ours and fitted(kernel, dtype, config, target) is not None)
    ]


def soon_compiled(kernel: Kernel, accepted: Sequence[Taken], tier: str) -> list[Taken]:
    """Returns ``accepted`` without what takes long to compile; see :func:`~conformance.cases.unrolled.within_limit`.
    The quick tier has other dtypes in place of the kernel's least config. Rows of the installed torch's tables alone
    decide nothing about others."""
    configs: dict[Target, list[Any]] = {}
    keeps_its_least = tier != "quick" or all(dtype == UNROLLED for dtype, *_ in accepted)
    for dtype, config, target in accepted:
        if keeps_its_least and dtype == UNROLLED and config_space.torch_row(kernel, target, config, tier) is None:
            configs.setdefault(target, []).append(config)
    return [
        (dtype, config, target)
        for dtype, config, target in accepted
        if dtype != UNROLLED
        or within_limit(kernel, kernel.example(dtype, config, kernel.usual_shape), config, configs.get(target, ()))
    ]


def without(accepted: Sequence[Taken], unused: Collection[str]) -> list[Taken]:
    """Returns ``accepted`` with :data:`ANY` for the "dtype" or "config" that a test does not take, each once."""
    if not unused:
        return list(accepted)
    dtype_too, config_too = "dtype" in unused, "config" in unused
    return list(
        dict.fromkeys(
            (ANY if dtype_too else dtype, ANY if config_too else config, at) for dtype, config, at in accepted
        )
    )
