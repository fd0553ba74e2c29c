"""Each check of the suite about what Inductor leaves out fails where a fault is planted."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from conformance.execution.compile.compilation import Artefact
from conformance.execution.compile.kernel_figures import KernelResources
from conformance.inductor.compile import replaced_decisions
from conformance.inductor.compile.program import Choice, Decision, Failure, Generated, GeneratedKernel, Lowering
from conformance.inductor.topics import pruning as checks
from conformance.records import Verdict
from conformance.targets import find
from tests.inductor.planted_code import failed

SM90 = find("sm_90")
LIMIT = SM90.limits.shared_memory
NUMBERS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_stages": 3, "num_warps": 4}
CHOICE = Choice("triton_mm_0", ", ".join(f"{name}={value}" for name, value in NUMBERS.items()), "triton")


def pinned(used_bytes: int | None, estimate: int, *, kept: bool = True, note: Mapping[str, Any] = NUMBERS) -> Generated:
    """One choice that takes so many bytes, or none was compiled, and what torch says of it."""
    used = KernelResources(64, 0, "bytes", used_bytes or 0, 0, 128, "cubin")
    artefact = Artefact(SM90.id, "k", "", {}, used, {}, cached=False)
    kernel = GeneratedKernel("k", "template", "", artefact if used_bytes is not None else None, "no kernel")
    return Generated(
        kernels=(kernel,),
        lowerings=(Lowering("mm", (CHOICE,), (CHOICE,), 1),),
        notes=({**note, "template": "mm", "estimate": estimate, "kept": kept, "config": "one"},),
    )


def without_config(verdicts: Sequence[Verdict]) -> list[str]:
    """The checks that failed, without the config in their names."""
    return [check.partition("@")[0] for check in failed(verdicts)]


@pytest.mark.parametrize(
    ("generated", "expected"),
    [
        (pinned(1000, 1128), []),
        (pinned(1128, 1000), ["estimate"]),
        (pinned(LIMIT + 1, LIMIT), ["estimate", "kept fits"]),
        (pinned(LIMIT + 1, LIMIT + 2), ["kept fits"]),
        (pinned(LIMIT + 1, LIMIT + 2, kept=False), []),
        (pinned(None, 1000), ["compiled"]),
        (pinned(1000, 1128, note={**NUMBERS, "BLOCK_M": 128}), ["estimated"]),
    ],
)
def test_estimate(generated: Generated, expected: list[str]) -> None:
    assert without_config(checks.check_estimate(generated, "mm", SM90)) == expected
    assert failed(checks.check_estimate(generated, "bmm", SM90))[0] == "estimated"


def test_what_a_device_refuses_is_known() -> None:
    message = "OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448"
    refused = dataclasses.replace(pinned(None, 300000), kernels=(), failure=Failure(("OutOfResources",), message))
    assert checks.shared_memory(refused) == 262144
    assert without_config(checks.check_estimate(refused, "mm", SM90)) == ["kept fits"]


@pytest.mark.parametrize(
    ("generated", "needless"),
    [
        (pinned(LIMIT, LIMIT + 1, kept=False), True),
        (pinned(LIMIT, LIMIT), False),
        (pinned(LIMIT + 1, LIMIT + 1, kept=False), False),
        (pinned(None, LIMIT + 1, kept=False), False),
    ],
)
def test_needlessly_dropped(generated: Generated, needless: bool) -> None:
    assert checks.needlessly_dropped(generated, "mm", SM90) is needless


def test_offered_is_what_is_kept() -> None:
    kept, dropped = pinned(1000, 1128), pinned(1000, 1128, kept=False)
    assert failed(checks.check_offered(kept, kept, "mm")) == []
    assert failed(checks.check_offered(kept, dropped, "mm")) == ["offered"]
    assert failed(checks.check_offered(dataclasses.replace(kept, lowerings=()), kept, "mm")) == ["offered"]


def test_torchs_own_estimate_is_what_is_noted() -> None:
    """All configs stay, and one that torch's rule drops is noted as dropped; an estimate without stages is caught."""
    heuristics = replaced_decisions._heuristics()
    small, large = (heuristics.GemmConfig(64, 64, 32, stages, 4) for stages in (3, 40))
    heuristic = heuristics.CUDAConfigHeuristic()
    properties = SimpleNamespace(shared_memory_per_block_optin=LIMIT)
    with (
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.current_device", return_value=0),
        mock.patch("torch.cuda.get_device_properties", return_value=properties),
        replaced_decisions.replacing(Decision.NOTHING_IS_PRUNED) as notes,
    ):
        assert heuristic._prune_exceeding_max_shared_mem_configs([small, large, small], 2) == [small, large, small]
    assert [note["kept"] for note in notes] == [True, False]
    assert [note["estimate"] for note in notes] == [stages * 2 * 2 * 64 * 32 + 128 for stages in (3, 40)]
    used_bytes = 3 * 2 * 2 * 64 * 32
    one_stage = notes[0]["estimate"] // 3
    assert without_config(checks.check_estimate(pinned(used_bytes, notes[0]["estimate"]), "mm", SM90)) == []
    assert without_config(checks.check_estimate(pinned(used_bytes, one_stage), "mm", SM90)) == ["estimate"]


# --- prescreening -----------------------------------------------------------------------------------------------------


def at_once(choices: Sequence[Any], *arguments: Any) -> list[Any]:
    return []


def every_swizzle(choices: Sequence[Any], *arguments: Any) -> list[Any]:
    return list(choices)


def first_swizzle(choices: Sequence[Any], *arguments: Any) -> list[Any]:
    return [choice for choice in choices if choice.name.endswith("/2")]


def nothing_left_out(choices: Sequence[Any], *arguments: Any) -> list[Any]:
    return list(choices)


def only_candidates(choices: Sequence[Any], timings: Mapping[Any, float], *arguments: Any) -> list[Any]:
    return sorted(timings, key=timings.__getitem__)[:8]


def slowest_left(choices: Sequence[Any], timings: Mapping[Any, float], *arguments: Any) -> list[Any]:
    kernels = {choice.kernel_hash_key() for choice in sorted(timings, key=timings.__getitem__)[-8:]}
    return [choice for choice in choices if choice.kernel_hash_key() in kernels]


#: Function of torch's selector -> what takes its place, the check that sees it, and which of its verdicts fail.
FAULTS: list[tuple[str, Callable[..., Any], str, list[str]]] = [
    ("prescreen_choices", at_once, "two-rounds", ["rounds", "chosen"]),
    ("prescreen_choices", first_swizzle, "few-kernels", ["rounds"]),
    ("prescreen_choices", every_swizzle, "two-rounds", ["rounds", "chosen"]),
    ("prescreen_choices", first_swizzle, "one-swizzle", ["rounds"]),
    ("prescreen_choices", first_swizzle, "not-wanted", ["rounds"]),
    ("prune_choices_postscreen", nothing_left_out, "two-rounds", ["rounds", "chosen"]),
    ("prune_choices_postscreen", nothing_left_out, "remembered", ["rounds", "chosen"]),
    ("prune_choices_postscreen", only_candidates, "slow-library", ["rounds", "chosen"]),
    ("prune_choices_postscreen", slowest_left, "slow-library", ["rounds", "chosen"]),
]


def rules() -> Mapping[str, Callable[[], list[Verdict]]]:
    return importlib.import_module("conformance.suites.test_inductor_pruning").RULES


@pytest.mark.parametrize(("function", "fault", "rule", "expected"), FAULTS)
def test_a_fault_of_prescreening_is_caught(
    function: str, fault: Callable[..., Any], rule: str, expected: list[str]
) -> None:
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    with mock.patch.object(AlgorithmSelectorCache, function, staticmethod(fault)):
        assert set(failed(rules()[rule]())) >= set(expected)


def test_torchs_prescreening_is_right() -> None:
    assert {rule: failed(check()) for rule, check in rules().items()} == {rule: [] for rule in rules()}


SOURCE = """
@triton_heuristics.template(num_stages=3, num_warps=4, triton_meta={}, inductor_meta={})
@triton.jit
def triton_tem_fused_mm_0(arg_A):
    BLOCK_M : tl.constexpr = {}
    BLOCK_N : tl.constexpr = 64
    BLOCK_K : tl.constexpr = 32
    GROUP_M : tl.constexpr = 8
"""


def choices(count: int) -> tuple[Choice, ...]:
    """Choices whose BLOCK_M is their number."""
    rest = "BLOCK_N=64, BLOCK_K=32, GROUP_M=8, num_stages=3, num_warps=4"
    return tuple(Choice(f"triton_mm_{n}", f"BLOCK_M={n}, {rest}", "triton") for n in range(1, count + 1))


@pytest.mark.parametrize(
    ("notes", "block", "expected"),
    [
        ([range(1, 13), range(5, 13)], 12, []),
        ([range(1, 13), range(5, 13)], 11, ["chosen"]),
        ([range(1, 13), range(1, 9)], 12, ["kept", "chosen"]),
        ([range(1, 13)], 12, ["rounds", "kept"]),
        ([range(1, 12), range(5, 13)], 12, ["rounds"]),
        ([], 12, ["rounds", "kept", "chosen"]),
    ],
)
def test_prescreened_product(notes: Sequence[Sequence[int]], block: int, expected: list[str]) -> None:
    offered = choices(12)
    generated = Generated(
        lowerings=(Lowering("mm", offered, offered, 12),),
        kernels=(GeneratedKernel("k", "template", SOURCE.replace("{}\n    BLOCK_N", f"{block}\n    BLOCK_N")),),
        notes=tuple([f"triton_mm_{n}" for n in numbers] for numbers in notes),
    )
    assert failed(checks.check_product(generated)) == expected


# --- fusion -----------------------------------------------------------------------------------------------------------

FUSED = "    triton_tem_fused_mm_relu_0.run(arg0_1)\n"
APART = "    triton_tem_fused_mm_0.run(arg0_1)\n    triton_poi_fused_relu_1.run(buf0)\n"


@pytest.mark.parametrize(
    ("module", "nodes", "fused", "expected"),
    [
        (FUSED, [2, 2], True, []),
        (APART, [2, 2], False, []),
        (FUSED, [2, 2], False, ["kernels"]),
        (APART, [2, 2], True, ["kernels"]),
        (FUSED, [2], True, ["asked"]),
        (APART, [2, 2, 2], False, ["asked"]),
        (FUSED, [2, 1], True, ["asked"]),
    ],
)
def test_fusion(module: str, nodes: Sequence[int], fused: bool, expected: list[str]) -> None:
    generated = Generated(modules=(module,), notes=tuple(["op"] * count for count in nodes))
    assert failed(checks.check_fusion(generated, fused=fused, asked=2)) == expected


def always(product: float, epilogue: float, *others: Any) -> bool:
    return True


def whatever_is_spilled(right: Callable[..., bool]) -> Callable[..., bool]:
    return lambda ms1, ms2, alone, fused, spills, *others: right(ms1, ms2, alone, fused, 0, *others)


def whatever_fits(right: Callable[..., bool]) -> Callable[..., bool]:
    return lambda ms1, ms2, alone, fused, *others: right(ms1, ms2, alone, alone, *others)


def never_for_time(right: Callable[..., bool]) -> Callable[..., bool]:
    return lambda ms1, ms2, *others: right(1.0, 0.0, *others)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lambda right: right, []),
        (whatever_is_spilled, ["rule/64-64-8-0.1", "rule/64-64-8-9"]),
        (whatever_fits, ["rule/64-168-0-0.1", "rule/128-255-0-0.1", "rule/128-255-0-2", "rule/128-512-0-9"]),
        (never_for_time, ["rule/128-255-0-2.1"]),
        (lambda right: always, None),
    ],
)
def test_rules_of_fusion(fault: Callable[[Any], Any], expected: list[str] | None) -> None:
    from torch._inductor import scheduler

    module: Any = scheduler
    with mock.patch.object(module, "_fuse_epilogue", fault(module._fuse_epilogue)):
        wrong = failed(checks.check_fusion_rules())
    if expected is None:
        expected = [
            f"rule/{alone}-{fused}-{spills}-{epilogue:g}"
            for (alone, fused, spills, _, epilogue), right in checks.FUSION_RULES.items()
            if not right
        ]
    assert wrong == expected


@pytest.mark.parametrize(
    ("decision", "answer"),
    [(Decision.FUSION_FITS, True), (Decision.FUSION_SPILLS, False), (Decision.FUSION_CROWDS, False)],
)
def test_what_the_compiler_is_said_to_say_decides(decision: Decision, answer: bool) -> None:
    """The figures that stand in decide as they should, by torch's own rule, for four and for eight warps."""
    from torch._inductor import scheduler, select_algorithm

    module, choice = cast(Any, scheduler), SimpleNamespace()
    device = SimpleNamespace(regs_per_multiprocessor=65536, warp_size_or_default=32)
    with replaced_decisions.replacing(decision) as notes:
        _, compiled = module.Scheduler.compile_kernel(None, [SimpleNamespace(get_name=lambda: "op0")])
        select_algorithm.TritonTemplateCaller.precompile(choice)  # type: ignore[arg-type]
    launcher = compiled.triton_.launchers[0]
    figures = choice.n_regs, launcher.n_regs, launcher.n_spills
    assert [module._fuse_epilogue(1.0, 1e-6, *figures, warps, device) for warps in (4, 8)] == [answer, answer]
    assert notes == [["op0"]]
