"""Every Triton template that the installed torch registers has a test in the suites, with cases."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import pytest

from conformance.cases.case_table import Selection, cases_of
from conformance.cases.lookup import test_function as function_of
from conformance.inductor.source import spellings
from conformance.targets import find

TARGETS = (find("sm_90"), find("sm_100"), find("gfx1250:256"))
#: gfx1250 has cases only where the user names it.
DEFAULT = Selection(TARGETS, "default", asked_for_targets=True)


OPERATIONS, GEMM = "test_inductor_operations.py", "test_inductor_gemm.py"
OF_TEMPLATES, ATTENTION = "test_inductor_templates.py", "test_inductor_attention.py"
SCALED = "test_inductor_scaled.py"

#: Template -> the test whose cases judge its code, as "suite::test". Names of all releases.
JUDGED: Mapping[str, str] = {
    "mm": f"{OPERATIONS}::test_dynamic_sizes",
    "bmm": f"{OPERATIONS}::test_baddbmm",
    "bmm_shared_a": f"{OF_TEMPLATES}::test_bmm_of_one_matrix",
    "mm_plus_mm": f"{OPERATIONS}::test_mm_plus_mm",
    "mm_persistent_tma": f"{GEMM}::test_mm_persistent_tma",
    "mm_persistent_tdm": f"{GEMM}::test_persistent_tdm",
    "scaled_mm_device_tma": f"{GEMM}::test_scaled_mm_persistent_tma",
    "scaled_mm_device_tma_epilogue_scaling": f"{GEMM}::test_scaled_mm_persistent_tma",
    "blackwell_ws_persistent_device_tma": f"{GEMM}::test_mm_blackwell",
    "blackwell_ws_persistent_tma": f"{GEMM}::test_mm_blackwell",
    "convolution2d": f"{OPERATIONS}::test_conv2d",
    "convolution3d": f"{OPERATIONS}::test_conv3d",
    "convolution2d_bwd_input": f"{OF_TEMPLATES}::test_convolution_gradients",
    "convolution2d_bwd_weight": f"{OF_TEMPLATES}::test_convolution_gradients",
    "mm_persistent": f"{OF_TEMPLATES}::test_mm_persistent_without_descriptors",
    "scaled_mm_device_tma_main_loop_scaling": f"{SCALED}::test_block_scales",
    "grouped_mm": f"{OF_TEMPLATES}::test_grouped_mm",
    "scaled_grouped_mm": f"{OF_TEMPLATES}::test_scaled_grouped_mm",
    "flex_attention": f"{ATTENTION}::test_attention",
    "flex_decoding": f"{ATTENTION}::test_few_queries",
    "flex_attention_backward": f"{ATTENTION}::test_gradients",
    "depthwise_conv1d": f"{OF_TEMPLATES}::test_depthwise_convolution",
}

#: Template -> why no test judges it.
UNJUDGED: Mapping[str, str] = {
    "b2b_gemm_left": "two products in one kernel: a pass that is off unless one asks for it",
    "b2b_gemm_right": "two products in one kernel: a pass that is off unless one asks for it",
}


def without_test(names: Iterable[str]) -> list[str]:
    """Returns the templates ``names`` of which the tables say neither that a test judges it nor why none does."""
    return [name for name in names if name not in JUDGED and name not in UNJUDGED]


def wrong_entries(table: Mapping[str, str]) -> list[str]:
    """A sentence for every template whose test is not there, or has no case in the default tier."""
    wrong = []
    for name, test in table.items():
        try:
            cases = cases_of(function_of(test))
        except KeyError as error:
            wrong.append(f"{name}: {error.args[0]}")
            continue
        if cases is None or not cases.table(DEFAULT, ()).rows:
            wrong.append(f"{name}: {test} has no cases")
    return wrong


def test_every_template_has_a_test_or_a_reason() -> None:
    names = spellings.registered()
    assert {"mm", "flex_attention"} <= names.keys()
    assert without_test(names) == []


def test_a_new_template_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.select_algorithm import TritonTemplate

    monkeypatch.setitem(TritonTemplate.all_templates, "mm_by_hand", TritonTemplate.all_templates["mm"])
    assert without_test(spellings.registered()) == ["mm_by_hand"]


def test_each_named_test_has_cases() -> None:
    assert wrong_entries(JUDGED) == []
    assert not JUDGED.keys() & UNJUDGED.keys()


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ("test_inductor_gemm.py::test_mm_by_hand", "mm_by_hand"),
        ("test_inductor_products.py::test_mm", "test_inductor_products"),
        ("test_block_scaling.py::test_each_kernel_takes_its_own_scales", "has no cases"),
    ],
)
def test_an_entry_without_cases_is_seen(test: str, text: str) -> None:
    (sentence,) = wrong_entries({"mm": test})
    assert text in sentence


def test_a_release_that_leaves_gradients_to_aten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.kernel import conv

    def with_triton() -> None: ...

    @functools.wraps(with_triton)
    def registered() -> None: ...

    def without_triton(device: str) -> bool:
        disable_triton_conv_bwd = device == "cuda"
        return not disable_triton_conv_bwd

    monkeypatch.setattr(conv, "convolution_backward_lowering", registered)
    assert not spellings.leaves_gradients_to_aten()
    monkeypatch.setattr(registered, "__wrapped__", without_triton)
    assert spellings.leaves_gradients_to_aten()
