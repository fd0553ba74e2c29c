"""Descriptors that the host makes, as torch 2.15 asks for them: how they are replayed, and what shows that a kernel has
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from conformance.inductor.compile.program import Choice, Generated, GeneratedKernel
from conformance.inductor.replay import replay
from conformance.inductor.source import spellings
from conformance.inductor.topics.gemm import check_host_descriptors
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.inductor_judge import PinnedRun
from tests.inductor.planted_code import failed
from tests.inductor.sample_programs import SM90

HEURISTICS = "torch._inductor.runtime.triton_heuristics"
META = {"shape": ["16", 32], "strides": ["ROW", 1], "block_shape": ["BLOCK", 16]}


def resolve(dims: Sequence[Any], config: Mapping[str, int], constants: Mapping[str, int]) -> list[int]:
    return [int(config.get(dim, dim)) for dim in dims]


def test_the_descriptor_has_what_the_metadata_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{HEURISTICS}._resolve_dims", resolve, raising=False)
    tensor = torch.zeros(16, 32, dtype=torch.float16)
    descriptor = replay._host_descriptor(tensor, META, {"ROW": 32, "BLOCK": 8})
    assert descriptor.base is tensor
    assert (descriptor.shape, descriptor.strides, descriptor.block_shape) == ([16, 32], [32, 1], [8, 16])


def test_a_torch_without_host_descriptors_is_a_typed_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(f"{HEURISTICS}._resolve_dims", raising=False)
    with pytest.raises(replay.ReplayUnsupported, match="_resolve_dims"):
        replay._host_descriptor(torch.zeros(16, 32), META, {})


SOURCE = """
'host_tma_descriptor_args': {'arg_A': {'block_shape': [128, 64]}, 'arg_B': {'block_shape': [64, 128]}}
a_desc = A
a = a_desc.load([offs_am, offs_k])
b = b_desc.load([offs_k, offs_bn])
"""
MADE = "b_desc = tl.make_tensor_descriptor(B, shape=[K, N])\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SOURCE, []),
        (SOURCE + MADE, ["source/descriptors"]),
        (SOURCE.replace("'block_shape'", "'block'", 1), ["source/host descriptors"]),
        (SOURCE.replace("b_desc.load(", "tl.load("), ["source/descriptor loads"]),
    ],
)
def test_host_descriptors_are_counted(monkeypatch: pytest.MonkeyPatch, source: str, expected: list[str]) -> None:
    monkeypatch.setattr(spellings, "dialect", lambda template: spellings.DIALECTS[0])
    recorder = CaseRecorder("planted::host descriptors")
    config: Any = type("OneConfig", (), {"id": "one"})
    kernel = GeneratedKernel("kernel", "template", source)
    check_host_descriptors(PinnedRun(Choice("c", "", "triton"), Generated(), kernel, config, SM90, recorder), "any")
    assert [check.partition("@")[0] for check in failed(recorder.verdicts)] == expected
