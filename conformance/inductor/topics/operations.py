"""Products and convolutions among other operations, exact for small integers; checks of the kernels that a program
launches and of what stands in them; which elements a dropout keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.inductor.compile.program import Generated, Scheduled
from conformance.inductor.source import spellings
from conformance.inductor.source.source_checks import extern_calls, launched
from conformance.problems import Problem
from conformance.records import Check, CheckKind, Verdict


def cat_addmm(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Two products with an addend, side by side; every matrix has another place in each."""
    return torch.cat([torch.addmm(a, b, c), torch.addmm(b, c, a)], 1)


def cat_mm(x: Tensor, y: Tensor) -> Tensor:
    """Returns a product, and below it what one pointwise operation makes of another matrix."""
    return torch.cat([torch.mm(x, x), torch.neg(y)])


def cat_mm_and_sum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the same, and a second result that reads the product too."""
    product = torch.mm(x, x)
    return torch.cat([product, torch.neg(y)]), product + 1


def cat_mm_twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the same in both orders: the product lies in two results, in another place of each."""
    product, negative = torch.mm(x, x), torch.neg(y)
    return torch.cat([product, negative]), torch.cat([negative, product])


def cat_of_shared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two pointwise results, one below the other, and a second result that reads the first of them too. No product."""
    negative = torch.neg(x)
    return torch.cat([negative, torch.neg(y)]), negative + 1


def conv_cat(x: Tensor, w: Tensor) -> Tensor:
    """Returns a convolution, and behind it the same plus one."""
    y = torch.nn.functional.conv2d(x, w, padding=1)
    return torch.cat((y, y + 1))


def conv1x1_of_counts(x: Tensor, w: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Returns a 1x1 convolution of a part of an image. Two vectors give its height and width: their numbers of non-zero
    elements."""
    height, width = rows.nonzero().shape[0], columns.nonzero().shape[0]
    return torch.nn.functional.conv2d(x[:, :, :height, :width], w)


def mm_after_diagonal_write(x: Tensor, y: Tensor, z: Tensor, other: Tensor) -> Tensor:
    """Returns a product of a matrix whose diagonal was overwritten in place. Returns the product's diagonal after 1 was
    added to it in place."""
    scaled = x * y
    torch.diagonal(scaled).copy_(other)
    return torch.diagonal(torch.mm(scaled, z)).add_(1)


def dropout_of_mm(a: Tensor, b: Tensor, *, p: float) -> Tensor:
    """Returns a product in which elements become 0 with probability ``p``."""
    return torch.nn.functional.dropout(torch.mm(a, b), p)


def linear_loss(classes: Tensor, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    """The mean cross entropy of a linear layer's outputs."""
    return torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w, bias), classes)


def many_of_one(x: Tensor, number: Tensor) -> tuple[Tensor, ...]:
    """More results of one matrix than may be fused at once. One of them uses a number that the host must read."""
    whole = number.item()
    return x + x, x * whole, x * x, x @ x, x**2


def __getattr__(name: str) -> Any:
    """Decorates the last graph when it is asked for: the decorator imports torch's compiler, which takes seconds."""
    if name == "many_of_one_in_a_graph":
        return torch._dynamo.disable(_many_of_one_in_a_graph, recursive=False)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _many_of_one_in_a_graph(x: Tensor, number: Tensor) -> tuple[Tensor, ...]:
    """Returns the same in one graph, which includes reading the number, as in an export. This function runs uncompiled,
    the function that it calls is compiled."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        return many_of_one(x, number)


def check_dynamic(run: Any) -> None:
    """M, N and K come from arguments, and nothing was compiled a second time."""
    check_recompiles(run)
    for name in "MNK":
        run.exactly(1, f"{name} is an argument", rf"^ +{name} = ks[0-9]+$")
    run.record(alone(run.generated))


def check_recompiles(run: Any) -> None:
    """Nothing was compiled after the first call."""
    again = run.generated.counters["recompiles"]
    run.check("recompiles", again == 0, f"{again} compilations after the first")


def alone(generated: Generated) -> list[Verdict]:
    """The program is one launch of a template's kernel, with one store, and nothing else."""
    kinds = [kernel.kind for kernel in generated.kernels]
    launches = launched(*generated.modules)
    calls = extern_calls(*generated.modules)
    stores = [len(re.findall(spellings.POINTER_STORE, kernel.source)) for kernel in generated.kernels]
    return [
        Verdict("one kernel", kinds == ["template"], ", ".join(kinds)),
        Verdict("one launch", launches == [kernel.name for kernel in generated.kernels], ", ".join(launches)),
        Verdict("no extern kernel", not calls, ", ".join(calls)),
        Verdict("one store", stores == [1], ", ".join(map(str, stores))),
    ]


def check_strides(run: Any, problem: Problem) -> None:
    """The operand is read where it lies: no other kernel packs it first, and the wrapper asserts its strides."""
    _, rows, columns = (1, *problem.operands[0].strides)[-3:]
    asserted = rf"{spellings.STRIDES_ASSERTED}.*\([0-9, ]*{rows}, {columns}\)"
    run.filecheck("strides", f"CHECK: {{{{{asserted}}}}}", where="module")
    run.record(alone(run.generated))


#: Steps that load an operand.
LOADING = ("bias", "residual", "dropout")


def epilogue_in_template(generated: Generated, steps: Sequence[str]) -> list[Verdict]:
    """The program is one template's kernel, which loads the operands of ``steps`` and applies each relu."""
    source = "\n".join(kernel.source for kernel in generated.kernels)
    loads = len(re.findall(r"= tl\.load\(in_ptr\d+ \+", source))
    maxima = len(re.findall(spellings.MAXIMUM, source))
    return [
        *alone(generated),
        Verdict("epilogue loads", loads == sum(step in LOADING for step in steps), str(loads)),
        Verdict("epilogue relu", maxima == steps.count("relu"), str(maxima)),
    ]


def no_extern_convolution(generated: Generated) -> list[Verdict]:
    """The program has one template's kernel and calls no extern kernel."""
    calls = extern_calls(*generated.modules)
    kinds = [kernel.kind for kernel in generated.kernels]
    return [
        Verdict("no extern kernel", not calls, ", ".join(calls)),
        Verdict("one template", kinds.count("template") == 1, ", ".join(kinds)),
    ]


def one_cat(generated: Generated) -> list[Verdict]:
    """Each kernel that adds or joins does both and is launched once, with one template of a convolution."""
    names = launched(*generated.modules)
    joins = [name for name in names if name.startswith("triton_poi_fused_add_cat_")]
    once = len(set(joins)) == len(joins)
    others = [name for name in names if name not in joins and ("cat" in name or "add" in name)]
    templates = [name for name in names if name.startswith("triton_tem_fused_convolution")]
    return [
        Verdict("pointwise kernels join", bool(joins) and once and not others, ", ".join(names)),
        Verdict("one template", len(templates) == 1, ", ".join(names)),
    ]


#: The class of the scheduler's node of a product that is ATen's in the end.
KINDS = {"before fusion": "SchedulerNode", "after fusion": "ExternKernelSchedulerNode"}


def check_renames(notes: Sequence[tuple[str, Mapping[str, str], Sequence[Scheduled]]]) -> list[Verdict]:
    """``notes`` of ``Decision.SCHEDULE_IS_NOTED``. The program writes in place into the operand of its one product, and
    later into the product.

    Before fusion the product is a buffer of several templates, after it ATen's kernel. In both it waits for the first
    of these writes, and for nothing else. The second write waits for the product."""
    stages = [stage for stage, *_ in notes]
    verdicts = [Verdict("stages", stages == ["before fusion", "after fusion"], ", ".join(stages))]
    nodes = [list(nodes) for *_, nodes in notes]
    products = [node for node in (nodes[0] if nodes else []) if node.operation == "MultiTemplateBuffer"]
    verdicts.append(
        Verdict("products", len(products) == 1, f"{len(products)} buffers of several templates, 1 required")
    )
    if not all(verdict.passed for verdict in verdicts):
        return verdicts
    product = products[0].writes
    later = [node for node in nodes[0] if node.mutates == product]
    earlier = [node for node in nodes[0] if node.mutates and node not in later]
    verdicts.append(Verdict("writes", (len(earlier), len(later)) == (1, 1), f"{[*earlier, *later]}"))
    if not verdicts[-1].passed:
        return verdicts
    required = {node.mutates[0]: node.writes[0] for node in (*earlier, *later)}
    for stage, renames, scheduled in notes:
        waits = [(node.kind, node.unmet) for node in scheduled if node.writes == product]
        right = (KINDS[stage], earlier[0].writes)
        second = [node.unmet for node in scheduled if set(product) <= set(node.mutates)]
        waiting = len(second) == 1 and set(product) <= set(second[0])
        verdicts += [
            Verdict(f"{stage}/product", waits == [right], f"waits for: {waits}, {right} required"),
            Verdict(f"{stage}/second write", waiting, f"waits for: {second}, {product} required"),
            Verdict(f"{stage}/renames", dict(renames) == required, f"{renames}, {required} required"),
        ]
    return verdicts


def written_in_place(generated: Generated) -> bool:
    """Checks the graph ``cat_of_shared``: each part, of which something else reads one, is written straight to its
    place. Otherwise one kernel joins them, and the part is computed again for what else reads it."""
    return not any("_cat_" in name for name in launched(*generated.modules))


#: Triton launches by graph and choice, for parts that something else reads too. The first number is for one kernel that
#: joins them. The second is for parts written straight to their place, as torch does from pull request 175729 on.
LAUNCHES = {
    ("cat_mm", "extern"): (1, 1),
    ("cat_mm_and_sum", "extern"): (2, 2),
    ("cat_mm_twice", "extern"): (2, 3),
    ("cat_mm", "triton"): (2, 2),
    ("cat_mm_and_sum", "triton"): (2, 3),
    ("cat_mm_twice", "triton"): (3, 4),
}


def cat_launches(generated: Generated, graph: str, choice: str, *, in_place: bool) -> list[Verdict]:
    """The last module launches as many kernels as :data:`LAUNCHES` says, and computes the product once. For
    ``in_place`` see :func:`written_in_place`."""
    module = generated.modules[-1]
    names = launched(module)
    products = [name for name in names if name.startswith("triton_tem_")]
    calls = extern_calls(module)
    count = LAUNCHES[graph, choice][in_place]
    product = (len(products), calls) == ((0, ["mm"]) if choice == "extern" else (1, []))
    return [
        Verdict("launches", len(names) == count, f"{', '.join(names)}: {count} required"),
        Verdict("one product", product, ", ".join([*products, *calls])),
    ]


def eager_mask(shape: Sequence[int], p: float, device: torch.device) -> torch.Tensor:
    """Returns the elements that ATen's dropout keeps."""
    survivors: torch.Tensor = torch.ops.aten.native_dropout(torch.ones(shape, device=device), p, True)[1]
    return survivors.cpu()


def drawn_mask(shape: Sequence[int], p: float, device: torch.device) -> torch.Tensor:
    """Returns the elements that Inductor's dropout keeps: those whose random number is larger than ``p``. It is drawn
    at their place in the result with a seed from torch's generator."""
    limits = torch.iinfo(torch.int64)
    seed = int(torch.randint(limits.min, limits.max, [1], device=device))
    places = torch.arange(shape[0] * shape[1])
    return (uniform(seed, places) > p).reshape(tuple(shape))


def uniform(seed: int, places: torch.Tensor) -> torch.Tensor:
    """Philox 4x32 with 10 rounds at the counters (place, 0, 0, 0), as fp32 numbers from 0 to 1."""
    low = 0xFFFFFFFF
    keys = seed & low, (seed >> 32) & low
    counters = [places.clone(), *(torch.zeros_like(places) for _ in range(3))]
    for _ in range(10):
        first, second = counters[0], counters[2]
        counters = [
            _high(0xCD9E8D57, second) ^ counters[1] ^ keys[0],
            _low(0xCD9E8D57, second),
            _high(0xD2511F53, first) ^ counters[3] ^ keys[1],
            _low(0xD2511F53, first),
        ]
        keys = (keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low
    signed = torch.where(counters[0] >= 2**31, counters[0] - 2**32, counters[0])
    folded = torch.where(signed < 0, -signed - 1, signed)
    return folded.to(torch.float32) * 4.6566127342e-10


def _high(factor: int, values: torch.Tensor) -> torch.Tensor:
    """Upper 32 bits of a product of two 32-bit numbers, in halves, because int64 has no room for the whole."""
    upper, lower = values >> 16, values & 0xFFFF
    return (factor * upper + ((factor * lower) >> 16)) >> 16


def _low(factor: int, values: torch.Tensor) -> torch.Tensor:
    upper, lower = values >> 16, values & 0xFFFF
    return (((factor * upper & 0xFFFF) << 16) + factor * lower) & 0xFFFFFFFF


SEEDS = (17, 17, 18)


def dropout_verdicts(
    run: Callable[[list[torch.Tensor]], torch.Tensor],
    values: Sequence[torch.Tensor],
    p: float,
    mask: Callable[[Sequence[int], float, torch.device], torch.Tensor],
    device: torch.device,
) -> list[Verdict]:
    """Runs ``run`` with two seeds, with one of them twice. Each element is the product times 1 / (1 - p) in fp32 where
    ``mask`` of the same seed is true, otherwise 0."""
    product = (values[0].double() @ values[1].double()).to(torch.float32)
    scaled = product * torch.tensor(1 / (1 - p), dtype=torch.float32)
    verdicts, seen = [], []
    for seed in SEEDS:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            survivors = mask(product.shape, p, device)
            torch.manual_seed(seed)
            result = run([value.to(device) for value in values]).cpu()
        wrong = result != torch.where(survivors, scaled, 0.0)
        text = f"{int(wrong.sum())} of {wrong.numel()} wrong, {int(survivors.sum())} are kept"
        verdicts.append(Verdict(str(Check(CheckKind.NUMERICS, f"seed{seed}")), not bool(wrong.any()), text))
        seen.append(result)
    verdicts.append(Verdict(str(Check(CheckKind.REPEAT)), torch.equal(seen[0], seen[1]), "two runs with one seed"))
    verdicts.append(Verdict("seeded", not torch.equal(seen[0], seen[2]), "two runs with different seeds"))
    return verdicts
