"""Fixtures of every test: signals are as a shell in the foreground leaves them. A test must leave as it was the
registries of the package, which other tests list."""

import gc
import signal
import sys

import pytest

from conformance.machine import entry_point_loading
from conformance.machine.gpus import core_count
from tests import durations, forked_python


def pytest_configure(config):
    """A shell has its background jobs ignore SIGINT, and so would the runs that tests interrupt."""
    if not hasattr(config, "workerinput") and getattr(config, "cache", None) is not None:
        config.pluginmanager.register(durations.Durations(config.cache), "durations-of-tests")
    gc.disable()  # until all is collected: nothing of that is garbage
    config.add_cleanup(gc.unfreeze)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two workers a core: about half of the time tests wait for processes that they have started."""
    return 2 * core_count()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    durations.longest_first(items)


def pytest_collection_finish():
    """A search for garbage leaves out what lives as long as the process: 2 of 13 processor seconds of a worker."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _registries_are_as_before():
    """Fails a test that leaves something of its own, and not a later one that finds it."""
    yield
    left = [registered.__name__ for registered in _registered() if not registered.__module__.startswith("conformance.")]
    left += entry_point_loading.LEFT_OUT
    assert not left, f"the test left {', '.join(left)} in a registry: register through monkeypatch"


def _registered():
    """The families that have fills, and the classes of the kernels; none of a module that is not imported yet."""
    fill_set = sys.modules.get("conformance.inputs.fills")
    catalogue = sys.modules.get("conformance.kernels.catalogue")
    families = fill_set.REGISTERED if fill_set else {}
    listed = catalogue is not None and catalogue.catalogue.cache_info().currsize
    return [*families, *(map(type, catalogue.catalogue().values()) if listed else ())]


@pytest.fixture
def forked(monkeypatch):
    """``sys.executable``, for a test whose subject is not the start of Python; see ``forked_python``."""
    monkeypatch.setattr(sys, "executable", forked_python.executable())
    return sys.executable
