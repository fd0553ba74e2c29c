"""Sizes that are known only when launching: what the compiler specialises on, and every shape class it must serve."""

import dataclasses
import itertools
from collections.abc import Callable

import pytest

from conformance.cases.each_kernel import each_kernel, first_plan
from conformance.cases.scenarios import every_kernel, has_own_code, named, ragged, scenario, unlike_blocks, where
from conformance.cases.tier_rows import CROSSED
from conformance.execution.compile.compilation import CompileRequest
from conformance.execution.compile.specialisation import specialisation
from conformance.families.examples import stored_dtype
from conformance.heuristics.configs import Config
from conformance.judging.conform import refused
from conformance.judging.inductor_judge import FURTHER_FILLS
from conformance.kernels.catalogue import is_own, meta_launch
from conformance.kernels.kernel import NotApplicable
from conformance.problems import Layout, itemsize

#: What is added to each ragged size, in units of 16 bytes for descriptor kernels and of 16 elements for pointer ones.
#: Every size class keeps to one class of specialisation: multiples of 16, or sizes that are neither that nor 1.
CLASSES = {
    "multiples-of-16": [(0, 0, 0), (16, 32, 16), (48, 16, 64)],
    "outer": [(0, 0, 0), (2, 0, 0), (18, 0, 0)],
    "all-other": [(2, 2, 2), (6, 10, 18), (22, 14, 6)],
}


def _sizes(kernel, dtype, config, name, step):
    """Three (M, N, K) of one class: ``step`` elements are the least that keeps every pitch legal for the kernel."""
    M, N, K = (-(-size // 16) * 16 for size in ragged(kernel, config, dtype, aligned=True))
    if name != "multiples-of-16":
        M += step if step % 16 else 0
    for more in CLASSES[name]:
        scaled = [part // 2 * step if name != "multiples-of-16" else part for part in more]
        yield M + scaled[0], N + scaled[1], K + scaled[2]


def _padded(kernel, M, N, K, dtype):
    """Layouts whose pitches are multiples of 16 elements whatever the sizes, so that only the sizes change class."""
    order_a, order_b = kernel.orders or ("row", "row")
    return {
        "layout_a": Layout(order_a, pad=-(K if order_a == "row" else M) % 16),
        "layout_b": Layout(order_b, pad=-(N if order_b == "row" else K) % 16),
        "layout_out": Layout(pad=-N % 16),
    }


def _compiled(harness, recorder, plans):
    """Triton's own hash of what each plan compiles to. It is asked of Triton each time, never predicted."""
    factory = "conformance.kernels.catalogue:meta_launch"
    requests = {name: CompileRequest(factory, plan, plan.target, deduplicate=False) for name, plan in plans.items()}
    handles = {name: harness.pool.submit(request) for name, request in requests.items()}
    hashes = {}
    with recorder.timed("compile"):
        for name, handle in handles.items():
            result = handle.result()
            if result.artefact is None:
                raise result.failure(name)
            hashes[name] = result.artefact.metadata["hash"]
    return hashes


def _judge_three_shapes(harness, recorder, kernel, plans):
    """One specialisation is predicted for the plans of three shapes, and one is compiled. A third-party kernel may
    take sizes as constants: then as many are compiled as are predicted."""
    predicted = {specialisation(meta_launch(plan, plan.target), plan.target).key for plan in plans.values()}
    compiled = set(_compiled(harness, recorder, plans).values())
    shapes = len({plan.problem.id for plan in plans.values()})
    expected = 1 if is_own(kernel) else len(predicted)
    text = f"{shapes} shapes: {len(predicted)} specialisations predicted, {len(compiled)} compiled, {expected} expected"
    recorder.verdict("specialisations", shapes == 3 and len(predicted) == len(compiled) == expected, text)


def _one_fill(tier):
    """The fill that the quick tier judges sizes by: they change what is read and written. None, which is every fill, in
    other tiers."""
    return FURTHER_FILLS if tier == "quick" else None


@scenario(
    where(),
    size_class=list(CLASSES),
    configs=1,
    quick=named("baddbmm", "mixed_mm", "contiguous_addmm", "scaled_mm_blackwell_ws", "dual_mm"),
)
def test_one_compilation_serves_a_class(conform, harness, recorder, kernel, target, dtype, config, size_class):
    """Three shapes of one size class are right, and all come from one compilation, as predicted. In the quick tier
    one fill judges them, because sizes change what is read and written."""
    fills = _one_fill(harness.settings.tier)
    plans = {}
    for M, N, K in _sizes(kernel, dtype, config, size_class, step=2):
        problem = kernel.problem(dtype, M, N, K, **_padded(kernel, M, N, K, dtype))
        plans[M, N, K] = conform(kernel, problem, config=config, target=target, fills=fills).plan
    _judge_three_shapes(harness, recorder, kernel, plans)


#: One operand or size moved to each class in turn: the fields that change in a problem of multiples of 16.
MOVES = {
    "multiples-of-16": {},
    "M=1": {"M": 1},
    "N=1": {"N": 1},
    "K=1": {"K": 1},
    "M-other": {"M": 35},
    "N-other": {"N": 50},
    "K-other": {"K": 99},
    "A-misaligned": {"layout_a": Layout(pad=16, offset=1)},
    "A-64-bit-stride": {"layout_a": Layout(pad=2**31)},
}


def _moved(base, fields, more=0):
    """``base`` with ``fields`` changed and the sizes that they leave alone larger by ``more``. Pitches stay multiples
    of 16, so that each move changes one class only."""
    sizes = {name: getattr(base, name) + more for name in "MNK" if name not in fields}
    problem = dataclasses.replace(base, **{**sizes, **fields})
    pads = {"layout_b": Layout(pad=-problem.N % 16 + 16), "layout_out": Layout(pad=-problem.N % 16 + 16)}
    if "layout_a" not in fields:
        pads["layout_a"] = Layout(pad=-problem.K % 16 + 16)
    return dataclasses.replace(problem, **pads)


@scenario(
    where(descriptors=False, any_order=True),
    dtypes=("bf16",),
    configs=1,
    move=list(MOVES),
    quick=named("bmm", "fused_mm", "dual_mm"),
)
@pytest.mark.proves_at_most("nothing", "compilations are counted, and no kernel is run")
def test_each_class_serves_three_shapes(harness, recorder, kernel, target, dtype, config, move):
    """A size of 1, other sizes, a misaligned pointer, a 64-bit stride: whatever the class, one compilation serves the
    shapes that differ in nothing else. Nothing is launched: operands with such strides would span the whole memory."""
    base = kernel.problem(dtype, 48, 64, 96)
    draft = kernel.draft(_moved(base, MOVES[move]), config, target)
    if reason := kernel.refusal(draft):
        recorder.set(kernel=kernel, problem=base, config=config, target=target)
        refused(recorder, kernel, draft, reason)
    plans = {more: kernel.plan(_moved(base, MOVES[move], more), config, target) for more in (0, 16, 48)}
    recorder.set(kernel=kernel, problem=plans[0].problem, config=config, target=target)
    _judge_three_shapes(harness, recorder, kernel, plans)


@scenario(
    where(descriptors=False, any_order=True),
    dtypes=("bf16",),
    configs=1,
    quick=named("mm_persistent", "contiguous_addmm"),
)
@pytest.mark.proves_at_most("nothing", "compilations are counted, and no kernel is run")
def test_predicted_specialisations(harness, recorder, kernel, target, dtype, config):
    """Each class of each size, of a pointer's alignment and of a stride's width: as many compilations as predicted. The
    quick tier takes one class of each kind: how Triton specialises is no matter of one kernel."""
    base = kernel.problem(dtype, 48, 64, 96)
    recorder.set(kernel=kernel, problem=base, config=config, target=target)
    names = ("multiples-of-16", "K=1", "A-misaligned") if harness.settings.tier == "quick" else tuple(MOVES)
    moved = {name: _moved(base, MOVES[name]) for name in names}
    accepted = {name: p for name, p in moved.items() if kernel.refusal(kernel.draft(p, config, target)) is None}
    plans = {name: kernel.plan(problem, config, target) for name, problem in accepted.items()}
    keys = {name: specialisation(meta_launch(plan, target), target).key for name, plan in plans.items()}
    compiled = _compiled(harness, recorder, plans)
    for first, second in itertools.combinations(plans, 2):
        if (keys[first] == keys[second]) != (compiled[first] == compiled[second]):
            recorder.verdict("specialisations", False, f"{first} and {second}: prediction and compiler disagree")
    count, predicted = len(set(compiled.values())), len(set(keys.values()))
    # a third-party kernel may not pass all of them
    expected = len(plans) if is_own(kernel) else predicted
    recorder.verdict("specialisations", count == predicted == expected, f"{predicted} predicted, {count} compiled")


def _prime(least):
    """The first prime number above ``least``."""
    return next(n for n in itertools.count(least + 1) if all(n % factor for factor in range(2, n)))


SIZES = {
    "unit-M": lambda c, s: (1, c.block_n + s, 3 * c.block_k + s),
    "unit-N": lambda c, s: (c.block_m + s, 1, 3 * c.block_k + s),
    "unit-K": lambda c, s: (c.block_m + s, c.block_n + s, 1),
    "primes": lambda c, s: (_prime(c.block_m), _prime(c.block_n), _prime(2 * c.block_k)),
    "K-just-above-block": lambda c, s: (c.block_m + 1, c.block_n + s, c.block_k + 1),
    "smaller-than-a-tile": lambda c, s: (c.block_m // 2 - 3, c.block_n // 2 - 3, c.block_k // 2 + 1),
}


@scenario(
    where(),
    sizes=list(SIZES),
    rotate={"static": [False, True]},
    configs=1,
    quick=named("fp8_bmm", "mm_fp64", "fused_mm", "mm_chained", "mm_with_sums"),
)
def test_awkward_sizes(conform, harness, kernel, target, dtype, config, sizes, static):
    """Sizes 1, primes, one k past a block and less than a tile, as constants and as arguments.

    Pitches of descriptor kernels are padded to 16 bytes; the extents stay as they are.
    """
    step = 16 // itemsize(stored_dtype(dtype))
    M, N, K = SIZES[sizes](config, step)
    fields = _padded(kernel, M, N, K, dtype) if kernel.descriptors else {}
    problem, fills = kernel.problem(dtype, M, N, K, **fields), _one_fill(harness.settings.tier)
    conform(kernel, problem, config=config, target=target, static=static, fills=fills)


#: M and N in three tile rows, blocks of k, and tile rows of a band. One of M and N ends with a tile and the other one
#: element later; or one band has more tiles than a tile has columns.
EDGES: dict[str, tuple[Callable[[Config], tuple[int, int]], int, int]] = {
    # a second launch, which sums parts or copies, has tiles of 64 columns: 4 * BLOCK_N is a whole number of them
    "rows-one-over": (lambda c: (2 * c.block_m + 1, 4 * c.block_n), 5, 2),
    "columns-one-over": (lambda c: (3 * c.block_m, 4 * c.block_n + 1), 5, 2),
    "one-band": (lambda c: (3 * c.block_m - 5, c.block_n**2 // 2 - 3), 3, 2**14),
}


def quick_edges(kernel):
    """The edges of the quick tier: of a kernel of weight 1 those that a mask of the kernel's own decides."""
    return list(EDGES) if kernel.weight > 1 else ["rows-one-over", "columns-one-over"]


@scenario(
    has_own_code,
    edge={"quick": quick_edges, **dict.fromkeys(("default", *CROSSED), tuple(EDGES))},
    dtypes=("bf16", "fp16", "e4m3", "int8", "fp16xint8"),
    configs=1,
    every_row=every_kernel,
)
def test_tile_edges(conform, harness, kernel, target, dtype, config, edge):
    """No extent can be one more or one less, and no number of the config can stand for another. K is an odd number of
    whole blocks that the compiler knows: loads have masks of rows and columns alone."""
    extents, blocks, group_m = EDGES[edge]
    config = unlike_blocks(config, group_m)
    splits = 2 if kernel.family == "split-k" else None
    sizes = (*extents(config), blocks * config.block_k * (splits or 1))
    fields = _padded(kernel, *sizes, dtype) if kernel.descriptors else {}
    variant = {"static": True, "splits": splits, "sms": 3 if kernel.persistent else None}
    fills = _one_fill(harness.settings.tier)
    conform(kernel, kernel.problem(dtype, *sizes, **fields), config=config, target=target, fills=fills, **variant)


@each_kernel(where(operation="mm", descriptors=False), name=["M", "N", "K"])
@pytest.mark.proves_at_most("nothing", "specialisations are predicted, and no kernel is run")
def test_sizes_as_constants_are_specialised(harness, recorder, kernel, name):
    """The static half differs for every size, the dynamic half does not: the two cannot be mistaken for one another."""
    recorder.set(kernel=kernel)
    dtype, keys = "bf16" if "bf16" in kernel.dtypes else kernel.dtypes[0], {}
    variants = [dataclasses.replace(kernel.usual_variant, static=static) for static in (False, True)]
    for static in (False, True):
        for size in (96, 112):
            fields = {"M": 96, "N": 96, "K": 96, name: size}
            pads = {"layout_a": Layout(pad=128 - fields["K"]), "layout_b": Layout(pad=128 - fields["N"])}
            problem = kernel.problem(dtype, **fields, **pads, layout_out=Layout(pad=128 - fields["N"]))
            try:
                plan = first_plan(kernel, problem, harness.targets, variants[:: -1 if static else 1], first=5)
            except NotApplicable as refusal:
                recorder.not_applicable(refusal.reason)
            recorder.set(target=plan.target)
            target = plan.target
            keys[static, size] = specialisation(meta_launch(plan, target), target).key
    recorder.verdict("dynamic", keys[False, 96] == keys[False, 112], "one specialisation for both sizes")
    recorder.verdict("static", keys[True, 96] != keys[True, 112], "one specialisation for each size")
