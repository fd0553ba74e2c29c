"""The search for a random problem that a kernel takes.

The stream of choices is named by a kernel and a number, so that a record's seed gives the same problem again. What is
drawn is the kernel's own knowledge: see :meth:`~conformance.kernels.kernel.Kernel.draw_problem`.
"""

from __future__ import annotations

from conformance.cases.unrolled import within_limit
from conformance.families.draw import Draw
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.kernel import Kernel, NotApplicable, Plan
from conformance.targets import Target

#: Draws after which a kernel is tried with its examples instead, and how many of these.
PATIENCE, EXAMPLES = 2000, 200


def random_plan(
    kernel: Kernel,
    seed: int,
    target: Target,
    *,
    large: bool,
    soon_compiled: bool = False,
    configs: tuple[AnyConfig, ...] = (),
) -> Plan:
    """Returns the plan number ``seed`` of ``kernel`` on ``target``: the first drawn that it takes.

    ``large`` draws sizes for a device, ``configs`` replaces the kernel's own. With ``soon_compiled`` it is the first
    that also compiles within seconds (:func:`~conformance.cases.unrolled.within_limit`). A kernel that refuses all that
    is drawn gets one of its examples. Raises NotApplicable with the last reason if it refuses these, too.
    """
    draw = Draw(kernel.name, seed, large=large, descriptors=kernel.descriptors)
    refusal: NotApplicable | None = None
    for number in range(PATIENCE + EXAMPLES):
        if number < PATIENCE:
            problem, config = kernel.draw_problem(draw), draw.pick(configs or kernel.drawn_configs)
            variant = kernel.draw_variant(draw)
        else:
            config, shape = draw.pick(configs or kernel.drawn_configs), draw.pick(kernel.example_shapes())
            problem, variant = kernel.example(draw.pick(kernel.dtype_names()), config, shape), kernel.example_variant()
        if soon_compiled and not within_limit(kernel, problem, config, configs or kernel.configs):
            continue
        try:
            return kernel.plan(problem, config, target, variant)
        except NotApplicable as error:
            refusal = error
    raise refusal or RuntimeError(f"nothing of {kernel.name} compiles within seconds on {target.id}")
