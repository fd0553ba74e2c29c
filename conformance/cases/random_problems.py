"""The search for a random problem that a kernel takes.

The stream of choices is named by a kernel and a number, so that a record's seed gives the same problem again. What is
drawn is the kernel's own knowledge: see :meth:`~conformance.kernels.kernel.Kernel.draw_problem`.
"""

from __future__ import annotations

from conformance.cases.unrolled import within_limit
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.families.draw import Draw
from conformance.kernels.kernel import Kernel, NotApplicable, Plan
from conformance.targets import Target

#: Draws until a kernel must have taken one: a kernel that refuses so many takes next to nothing.
PATIENCE = 2000


def random_plan(
    kernel: Kernel,
    seed: int,
    target: Target,
    *,
    large: bool,
    soon_compiled: bool = False,
    configs: tuple[AnyConfig, ...] = (),
) -> Plan:
    """The plan number ``seed`` of ``kernel`` on ``target``: the first drawn that it takes.

    ``large`` draws sizes for a device, ``configs`` replaces the kernel's own. With ``soon_compiled`` it is the first
    that also compiles within seconds (:func:`~conformance.cases.unrolled.within_limit`). Raises RuntimeError if the
    kernel refuses everything that is drawn.
    """
    draw = Draw(kernel.name, seed, large=large, descriptors=kernel.descriptors)
    for _ in range(PATIENCE):
        problem, config = kernel.draw_problem(draw), draw.pick(configs or kernel.configs)
        variant = kernel.draw_variant(draw)
        if soon_compiled and not within_limit(kernel, problem, config, configs or kernel.configs):
            continue
        try:
            return kernel.plan(problem, config, target, variant)
        except NotApplicable:
            continue
    raise RuntimeError(f"{kernel.name} refused {PATIENCE} random problems on {target.id}: it takes next to nothing")
