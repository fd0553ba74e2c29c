"""Every Triton template that the installed torch registers has a test in the suites, with cases."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import pytest

from conformance.cases.case_table import Selection, cases_of
from conformance.cases.lookup import test_function as function_of
from conformance.inductor.source import spellings
from conformance.targets import find

TARGETS = (find("sm_90"), find("sm_100"), find("gfx1250:256"))
#: gfx1250 has cases only where the user names it.
DEFAULT = Selection(TARGETS, "default", asked_for_targets=True)


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
    assert spellings.without_test(names) == []


def test_a_new_template_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.select_algorithm import TritonTemplate

    monkeypatch.setitem(TritonTemplate.all_templates, "mm_by_hand", TritonTemplate.all_templates["mm"])
    (sentence,) = spellings.without_test(spellings.registered())
    assert sentence.startswith("no test of the suites judges the template mm_by_hand: add one")


def test_each_named_test_has_cases() -> None:
    assert wrong_entries(spellings.JUDGED) == []
    assert not spellings.JUDGED.keys() & spellings.UNJUDGED.keys()


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
