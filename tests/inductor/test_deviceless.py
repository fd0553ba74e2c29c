"""Overriding what torch says of the device: for one target after another, and everything is as before afterwards.

``deviceless`` is entered in processes of the compile pool, where Triton does not interpret.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any
from unittest import mock

import pytest
import torch

from conformance.execution.compile.compilation import CompilePools, Task
from conformance.inductor.compile import deviceless as subject
from conformance.inductor.compile import rocm_registration
from conformance.inductor.compile.deviceless import OVERRIDES, DevicelessUnsupported, Override, deviceless
from conformance.inductor.compile.provider import preloaded_for
from conformance.records import ReasonCode, Status
from conformance.targets import Target, find
from tests.execution.sample_kernels import pool
from tests.inductor.sample_programs import task


def ask(function: str, payload: Any, target: Target) -> Any:
    result = pool().submit(task(function, payload, target, module=__name__)).result()
    assert result.status is Status.PASS, result.error
    return result.value


# Called in a process of the pool


def originals() -> list[tuple[str, object]]:
    """Every overridden attribute as its owner holds it, the active driver and the slot of the device guard."""
    from triton.runtime import driver

    subject.prepare()
    places = [subject.place(override.name) for override in OVERRIDES]
    slots = (ctypes.c_void_p * 2).in_dll(ctypes.CDLL("libc10.so"), subject.GUARDS)
    attributes = [(name, vars(owner).get(name, "inherited")) for owner, name in places]
    return [*attributes, ("guard", slots[subject.CUDA]), *vars(driver).items()]


def restoration(fails: bool, target: Target) -> tuple[int, list[str]]:
    """Returns the number of attributes that ``deviceless`` replaces, and the names of those not restored."""
    before = originals()
    with contextlib.suppress(KeyError), deviceless(target):
        replaced_inside = sum(old is not new for (_, old), (_, new) in zip(before, originals(), strict=True))
        if fails:
            raise KeyError("planted")
    after = originals()
    same = [old is new or (name == "guard" and old == new) for (name, old), (_, new) in zip(before, after, strict=True)]
    return replaced_inside, [name for (name, _), same_object in zip(before, same, strict=True) if not same_object]


def facts(specs: tuple[str, ...], target: Target) -> list[tuple[object, ...]]:
    """Returns the answers of torch and Inductor about each target, entered one after another."""
    from torch._inductor import utils
    from torch._inductor.runtime.hints import DeviceProperties
    from torch.utils._triton import has_triton_tma_device, triton_backend

    states: list[tuple[object, ...]] = []
    for spec in specs:
        with deviceless(find(spec)):
            device = DeviceProperties.create(torch.device("cuda", 0))
            states.append(
                (
                    torch.cuda.get_device_capability(),
                    utils.get_max_num_sms(),
                    utils.get_gpu_shared_memory(),
                    utils.using_b200(),
                    has_triton_tma_device(),
                    device.cc,
                    triton_backend().target.arch,
                )
            )
        states.append((torch.cuda.is_available(),))
    return states


def missing(name: str, target: Target) -> None:
    """Enters ``deviceless`` with an override of ``name``, which does not exist."""
    more = (*OVERRIDES, Override(name, lambda target: None, "planted"))
    with mock.patch.object(subject, "OVERRIDES", more), deviceless(target):
        raise AssertionError("entered")


# The tests


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before(fails: bool) -> None:
    replaced_inside, lost = ask("restoration", fails, find("sm_90"))
    assert replaced_inside >= len(OVERRIDES)
    assert lost == []


def test_one_target_after_another_gets_its_own_facts() -> None:
    facts = ask("facts", ("sm_90", "sm_100", "sm_80", "sm_90"), find("sm_90"))
    assert facts[::2] == [
        ((9, 0), 132, 227 * 1024, False, True, 90, 90),
        ((10, 0), 148, 227 * 1024, True, True, 100, 100),
        ((8, 0), 108, 163 * 1024, False, False, 80, 80),
        ((9, 0), 132, 227 * 1024, False, True, 90, 90),
    ]
    assert facts[1::2] == [(False,)] * 4


@pytest.mark.parametrize("name", ["torch.cuda.no_such_name", "torch.no_such_module.name", "torch.cuda.NoClass.name"])
def test_a_missing_name_is_a_typed_reason(name: str) -> None:
    result = pool().submit(task("missing", name, find("sm_90"), module=__name__)).result()
    assert result.status is Status.COMPILE_ERROR
    assert "DevicelessUnsupported" in result.error
    assert result.reason is not None
    assert (result.reason.code, result.reason.subject) == (ReasonCode.CAPABILITY, name)


def test_a_target_of_another_vendor_is_refused() -> None:
    with pytest.raises(ValueError, match="Inductor was imported for nvidia"), deviceless(find("gfx942")):
        raise AssertionError("entered")


def test_an_unknown_number_of_multiprocessors_is_a_typed_reason() -> None:
    with pytest.raises(DevicelessUnsupported, match="--target sm_90:256") as raised, deviceless(Target("cuda", 90, 32)):
        raise AssertionError("entered")
    assert raised.value.reason.subject == "multiprocessors"


def test_each_vendor_has_its_process() -> None:
    """AMD's facts are answered where AMD's heuristics are registered."""
    target, pools = find("gfx942"), CompilePools(1, deadline=300)
    request = Task(f"{__name__}:facts", ("gfx942", "gfx1250:200", "gfx950"), target, preloaded_for(target))
    with contextlib.closing(pools):
        result = pools.submit(request).result()
    assert result.status is Status.PASS, result.error
    assert result.value[::2] == [
        ((9, 4), 304, 64 * 1024, False, False, "gfx942", "gfx942"),
        ((12, 5), 200, 320 * 1024, False, False, "gfx1250", "gfx1250"),
        ((9, 5), 256, 160 * 1024, False, False, "gfx950", "gfx950"),
    ]


def test_inductor_is_prepared_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setitem(sys.modules, "torch._inductor.select_algorithm", torch)
    with pytest.raises(RuntimeError, match="before it is imported"):
        rocm_registration.prepare()
    monkeypatch.delitem(sys.modules, "torch._inductor.select_algorithm")
    rocm_registration.prepare()
    rocm_registration.prepare()
    assert torch.version.hip == rocm_registration.ASSUMED


def test_every_override_says_why() -> None:
    assert len({override.name for override in OVERRIDES}) == len(OVERRIDES)
    assert all(override.why for override in OVERRIDES)
