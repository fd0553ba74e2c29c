"""Code that ``torch.compile`` generates for targets without a device, in processes of the compile pool."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.inductor.compile import observation
from conformance.inductor.compile.deviceless_worker import generate
from conformance.inductor.compile.observation import failure_of, matching
from conformance.inductor.compile.program import Choice, Program, Unsupported
from conformance.problems import Operand
from conformance.records import ReasonCode, Status
from conformance.targets import Target, find
from tests.execution.sample_kernels import pool
from tests.inductor.sample_programs import generated, operand, product, submit, task

SM80, SM90, SM100 = (find(name) for name in ("sm_80", "sm_90", "sm_100"))
PLAIN = (("max_autotune_gemm", True), ("max_autotune_gemm_backends", "TRITON"))
PERSISTENT = product(templates="mm_persistent_tma", pick=0)


def test_persistent_tma_on_hopper() -> None:
    result = generated(PERSISTENT)
    assert result.failure is None
    assert len(result.modules) == 1
    (kernel,) = result.kernels
    assert (kernel.kind, kernel.error) == ("template", "")
    assert kernel.name in result.modules[0]
    assert kernel.artefact is not None
    assert {"source", "ttir", "ttgir", "llir", "ptx", "cubin", "json"} <= set(kernel.artefact.stages)
    assert "cp.async.bulk.tensor" in kernel.artefact.text("ptx")
    assert kernel.artefact.resources.source == "cubin"
    (lowering,) = result.lowerings
    assert lowering.name == "mm"
    assert len(lowering.left) == 1 < len(lowering.offered)
    assert "persistent_tma" in lowering.left[0].name
    assert "BLOCK_M=" in lowering.left[0].description
    assert {choice.kind for choice in lowering.offered} == {"triton"}


def test_warp_specialised_blackwell() -> None:
    result = generated(product(templates="blackwell", pick=0), SM100)
    (kernel,) = result.kernels
    assert kernel.artefact is not None, kernel.error
    assert kernel.artefact.metadata["target"]["arch"] == 100
    assert "tcgen05.mma" in kernel.artefact.text("ptx")
    assert "cp.async.bulk.tensor" in kernel.artefact.text("ptx")


def test_the_second_time_everything_comes_from_tritons_cache() -> None:
    # equal requests share one result, so the second one says what is the default anyway
    again = dataclasses.replace(PERSISTENT, settings=(*PERSISTENT.settings, ("verbose_progress", False)))
    first, second = (generated(program).kernels[0].artefact for program in (PERSISTENT, again))
    assert first is not None
    assert second is not None
    assert second.cached
    assert second.stages == first.stages


def both_and_the_environment(programs: tuple[Program, ...], target: Target) -> list[object]:
    """In a process of the pool: what two targets get one after the other, and whether the environment changed."""
    before = dict(os.environ)
    kernels = [generate(program, find(spec)).kernels[0] for program in programs for spec in ("sm_80", "sm_90")]
    return [kernel.artefact.metadata["target"]["arch"] for kernel in kernels if kernel.artefact] + [
        dict(os.environ) == before
    ]


def test_two_targets_in_one_process() -> None:
    program = product(settings=PLAIN, pick=0)
    result = pool().submit(task("both_and_the_environment", (program, program), SM90, module=__name__)).result()
    assert result.value == [80, 90, 80, 90, True], result.error


def test_another_pick_is_another_config() -> None:
    results = [generated(product(templates="mm_persistent_tma", pick=pick)) for pick in (0, 1)]
    assert len({result.lowerings[0].left[0].description for result in results}) == 2
    assert len({result.kernels[0].artefact.key for result in results if result.kernels[0].artefact}) == 2


UNALIGNED = (operand("a", 256, 192, offset=1), operand("b", 192, 128))


@pytest.mark.parametrize("program", [product(k=191), product(operands=UNALIGNED)], ids=["rows", "offset"])
def test_a_product_that_tma_cannot_take_has_no_valid_choice(program: Program) -> None:
    result = generated(dataclasses.replace(program, templates="mm_persistent_tma"))
    assert result.failure is not None
    assert "NoValidChoicesError" in result.failure.types
    assert "NoValidChoicesError: No choices" in result.failure.message
    assert (result.modules, result.kernels, result.lowerings[0].left) == ((), (), ())
    assert result.lowerings[0].offered


def test_ampere_is_offered_no_tma() -> None:
    names = [choice.name for choice in generated(product(templates="mm", pick=0), SM80).lowerings[0].offered]
    assert names
    assert not any("tma" in name for name in names)


def test_a_graph_that_cannot_be_traced_is_a_failure() -> None:
    result = generated(product(graph="broken"))
    assert result.failure is not None
    assert "7, 7" in result.failure.message


def test_a_carveout_takes_multiprocessors_from_the_grid() -> None:
    descriptions = [
        generated(product(templates="mm_persistent_tma", pick=0, carveout=carveout)).lowerings[0].left[0].description
        for carveout in (None, 27)
    ]
    assert ["NUM_SMS=132" in descriptions[0], "NUM_SMS=105" in descriptions[1]] == [True, True]


def test_an_epilogue_is_fused_and_what_is_not_a_template_has_configs() -> None:
    assert [kernel.kind for kernel in generated(product(graph="mm_relu", settings=PLAIN, pick=0)).kernels] == [
        "template"
    ]
    operands = (operand("a", 512, 256), operand("b", 512, 256))
    result = generated(product(graph="scaled", operands=operands, arguments=(("factor", 0.5),)))
    (kernel,) = result.kernels
    assert (kernel.kind, kernel.artefact is not None) == ("pointwise", True)
    assert result.counters["configs_not_compiled"] >= 0
    assert result.lowerings == ()


def sizes(m: int, k: int = 192) -> tuple[Operand, Operand]:
    return operand("a", m, k), operand("b", k, 128)


@pytest.mark.parametrize(
    ("fields", "recompiles"),
    [
        ({"dynamic": True, "calls": (sizes(520), sizes(700, 320))}, 0),
        ({"dynamic": False, "calls": (sizes(256), sizes(520))}, 1),
        ({"dynamic": None, "marked": (("a", 0),), "calls": (sizes(520), sizes(520, 320))}, 1),
    ],
    ids=["dynamic", "static", "rows-alone"],
)
def test_fixed_sizes_are_compiled_again(fields: dict[str, Any], recompiles: int) -> None:
    result = generated(product(settings=PLAIN, pick=0, **fields))
    assert result.failure is None
    assert (result.counters["recompiles"], len(result.modules), len(result.kernels)) == (
        recompiles,
        1 + recompiles,
        1 + recompiles,
    )
    assert ("ks0" in result.modules[0]) == (fields["dynamic"] is not False)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"settings": (("triton.no_such_option", 1),)}, "ValueError: torch .* has no option .*triton.no_such_option"),
        ({"settings": (("shape_padding", True),)}, "ValueError: option shape_padding is True and must be False"),
        ({"marked": (("c", 0),)}, "ValueError: .* has no operand 'c', only a, b"),
        ({"graph": "no_such_function"}, "AttributeError: .*no_such_function"),
    ],
)
def test_what_is_wrong_with_a_program_is_said(fields: dict[str, Any], text: str) -> None:
    result = submit(product(**fields), SM90)
    assert result.status is Status.COMPILE_ERROR
    assert re.search(text, result.error), result.error


def test_a_kernel_that_does_not_compile_has_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.inductor.compile import deviceless_worker as module

    def fails(source: str, target: Target) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(module, "_cross_compile", fails)
    source = "@triton_heuristics.template()\n@triton.jit\ndef k():\n    pass\n"
    kernel = module._kernel("k", source, SM90, {})
    assert (kernel.artefact, kernel.error) == (None, "RuntimeError: RuntimeError: planted")


def test_interpreting_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    monkeypatch.setattr(knobs.runtime, "interpret", True)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET is set"):
        generate(PERSISTENT, SM90)


# Parts of it


@pytest.mark.parametrize(
    ("templates", "descriptions", "left"),
    [
        (None, None, ["mm_0", "tma_1", "tma_2"]),
        ("tma", None, ["tma_1", "tma_2"]),
        ("tma", "BLOCK_M=64", ["tma_2"]),
        (None, "BLOCK_M=64", ["mm_0", "tma_2"]),
        ("blackwell", None, []),
    ],
)
def test_the_filter(templates: str | None, descriptions: str | None, left: list[str]) -> None:
    descriptions_of = {"mm_0": "BLOCK_M=64", "tma_1": "BLOCK_M=128", "tma_2": "BLOCK_M=64, num_warps=4"}
    choices = [Choice(name, description, "triton") for name, description in descriptions_of.items()]
    assert [choice.name for choice in matching(choices, templates, descriptions)] == left


def test_hidden_causes_that_are_named_are_told() -> None:
    def raised(text: str) -> Exception:
        try:
            try:
                raise KeyError("inner")
            except KeyError:
                raise ValueError(text) from None
        except ValueError as error:
            return error

    assert failure_of(raised("KeyError: inner")).types == ("ValueError", "KeyError")
    assert failure_of(raised("unrelated")).types == ("ValueError",)
    assert failure_of(raised("unrelated")).message == "ValueError: unrelated"


# --- the choice that a program picks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("refused", "expected"), [((), ["c"]), (("c",), ["a"]), (("a",), ["c"]), (tuple("abcd"), [])])
def test_only_the_picked_choice_is_written_unless_it_is_refused(refused: tuple[str, ...], expected: list[str]) -> None:
    """Choice 6 of four, or, if that one is refused, of those that are left."""
    written = []

    def offer(template: object, choices: list[str], *, size: str) -> None:
        written.append(size)
        choices += [] if size in refused else [size]

    template = SimpleNamespace(name="mm")
    candidates = [observation._Unwritten(template, {"size": size}) for size in "abcd"]
    assert observation.matching(candidates, r"^triton_mm_\d+$", None) == candidates
    assert observation._picked(candidates, 6, offer) == expected
    assert (written == ["c"]) == ("c" not in refused)


def test_a_triton_without_knobs_is_a_typed_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of Triton before 3.4."""
    import triton

    with observation._caches():
        pass
    monkeypatch.delattr(triton, "knobs")
    monkeypatch.setitem(sys.modules, "triton.knobs", None)
    with pytest.raises(Unsupported) as raised, observation._caches():
        pass
    assert (raised.value.reason.code, raised.value.reason.subject) == (ReasonCode.CAPABILITY, "triton.knobs")
