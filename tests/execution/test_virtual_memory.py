"""Regions between unmapped pages: what the driver is asked for, by a driver that notes it."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from conformance.execution.device import page_edges
from conformance.execution.device.page_edges import CUDA, HIP, Unmappable, VirtualMemory

GRANULE = 1 << 21
RESERVED_AT = 1 << 30


class Driver:
    """A driver whose calls begin with ``prefix``; ``fails`` names one that returns an error, ``lacks`` one it has not.
    ``called`` lists what was called, with the numbers among the arguments."""

    def __init__(self, prefix="cuMem", fails=None, lacks=None):
        self.prefix, self.fails, self.lacks, self.called = prefix, fails, lacks, []

    def __getattr__(self, function):
        name = function.removeprefix(self.prefix)
        if name == function or name == self.lacks:
            raise AttributeError(function)

        def call(*arguments):
            self.called.append((name, *(value for value in map(number, arguments) if value is not None)))
            if name == self.fails:
                return 801
            if name == "GetAllocationGranularity":
                arguments[0]._obj.value = GRANULE
            if name == "AddressReserve":
                arguments[0]._obj.value = RESERVED_AT
            if name == "Create":
                arguments[0]._obj.value = 7
            return 0

        return call


def number(argument):
    return getattr(argument, "value", None)


@pytest.fixture(autouse=True)
def _tensors_without_memory(monkeypatch):
    monkeypatch.setattr(VirtualMemory, "_tensor", lambda self, address, length: (address, length))


def calls(driver, size=100):
    VirtualMemory(torch.device("cuda", 3), driver).region(size)
    return driver.called[1:]


def test_one_granule_on_each_side_is_reserved_and_never_mapped():
    driver = Driver()
    region = VirtualMemory(torch.device("cuda", 0), driver).region(3 * GRANULE - 5)
    assert region.memory == (RESERVED_AT + GRANULE, 3 * GRANULE)
    assert driver.called[1:] == [
        ("AddressReserve", 5 * GRANULE, GRANULE, 0),
        ("Create", 3 * GRANULE, 0),
        ("Map", RESERVED_AT + GRANULE, 3 * GRANULE, 0, 7, 0),
        ("SetAccess", RESERVED_AT + GRANULE, 3 * GRANULE, 1),
    ]


def test_the_smallest_region_is_a_granule():
    assert calls(Driver(), 0)[1] == ("Create", GRANULE, 0)


@pytest.mark.parametrize(
    ("fails", "undone"),
    [
        ("AddressReserve", []),
        ("Create", ["AddressFree"]),
        ("Map", ["Release", "AddressFree"]),
        ("SetAccess", ["Unmap", "Release", "AddressFree"]),
    ],
)
def test_what_fails_is_undone(fails, undone):
    driver = Driver(fails=fails)
    with pytest.raises(Unmappable, match=f"cuMem{fails} gave the driver's error 801"):
        calls(driver)
    names = [name for name, *_ in driver.called]
    assert names[names.index(fails) + 1 :] == undone


def test_hip_has_the_same_calls_under_its_own_names(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert [name for name, *_ in calls(Driver("hipMem"))] == ["AddressReserve", "Create", "Map", "SetAccess"]


def test_a_driver_without_the_calls_maps_nothing():
    with pytest.raises(Unmappable, match="the driver has no cuMemGetAllocationGranularity"):
        VirtualMemory(torch.device("cuda", 0), Driver(lacks="GetAllocationGranularity"))


@pytest.mark.parametrize("hip", [None, "6.4"])
def test_without_the_drivers_library_nothing_is_mapped(monkeypatch, hip):
    monkeypatch.setattr(torch.version, "hip", hip)

    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(page_edges, "ctypes", SimpleNamespace(**{**vars(ctypes), "CDLL": no_library}))
    with pytest.raises(Unmappable, match="|".join((HIP if hip else CUDA).library)):
        VirtualMemory(torch.device("cuda", 0))
