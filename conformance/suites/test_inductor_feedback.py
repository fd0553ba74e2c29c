"""The selector's messages to those who registered with it, and how it prepares its choices.

The choices are stand-ins with given times. So only the case that measures real kernels needs a device.
"""

import contextlib
import math
import sys

import pytest
import torch

from conformance.inductor.topics import feedback as checks
from conformance.inductor.tuning import max_autotune, stand_ins
from conformance.judging.harness import need_device, record

# --- feedback savers --------------------------------------------------------------------------------------------------


@pytest.mark.proves_at_most("nothing", "what Inductor reports is judged, and no kernel is run")
def test_savers_are_registered_and_cleared(recorder):
    """One saver, two savers, none. Unlike PyTorch's tests, those that were registered before are there afterwards."""
    record(recorder, checks.check_registration())


@pytest.mark.proves_at_most("nothing", "what Inductor reports is judged, and no kernel is run")
def test_savers_are_told(recorder):
    """Every saver is told every time, once. PyTorch's test asks for a call with some time in it."""
    record(recorder, checks.check_savers())


@pytest.mark.proves_at_most("nothing", "what Inductor reports is judged, and no kernel's result")
def test_savers_of_a_compilation(harness, recorder):
    """The same, of a product that is really compiled and timed; its numbers are exact."""
    need_device(harness, recorder, "timing real kernels")
    device = torch.accelerator.current_accelerator()
    a, b = max_autotune.integers(32, 32), max_autotune.integers(32, 32, seed=1)
    calls: list = []
    with max_autotune.compiling(max_autotune_gemm_backends="TRITON"), stand_ins.selector_restored() as selector:
        selector.clear_feedback_savers()
        selector.add_feedback_saver(checks.saver(calls))
        product = torch.compile(torch.mm, dynamic=False)(a.to(device), b.to(device)).cpu()
    recorder.verdict(
        "numbers", torch.equal(product.double(), (a.double() @ b.double())), "the product of whole numbers"
    )
    recorder.verdict("told", bool(calls), f"{len(calls)} calls")
    for timings, name, nodes, offered, *_ in calls:
        finite = [value for value in timings.values() if 0 < value < math.inf]
        recorder.verdict("timings", bool(finite) and set(timings) == set(offered), f"{list(timings.values())}")
        recorder.verdict("inputs", len(nodes) == 2, f"{len(nodes)} inputs, 2 required")
        recorder.verdict("name", name == "mm", f"{name}, mm required")


# --- preprocessing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "judge", [checks.check_order, checks.check_clearing, checks.check_filters], ids=["order", "clearing", "filters"]
)
@pytest.mark.proves_at_most("nothing", "what Inductor reports is judged, and no kernel is run")
def test_preprocessing(recorder, judge):
    """Functions that see the choices before they are timed. Unlike PyTorch's tests, it is judged which choice is taken
    and that none that was dropped is timed."""
    record(recorder, judge())


# --- precompilation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "judge",
    [checks.check_threads, checks.check_failure, checks.check_timeout, checks.check_no_exceptions, checks.check_cached],
    ids=["threads", "failure", "timeout", "no-exceptions", "cached"],
)
@pytest.mark.proves_at_most("nothing", "what Inductor reports is judged, and no kernel is run")
def test_precompilation(recorder, judge):
    """Choices are compiled ahead in threads. Unlike PyTorch's tests, all threads are at work at once, and what fails or
    is late is judged by what becomes of its choice. Torch itself compiles nothing ahead on Python 3.11.0 to 3.11.8;
    there this rule is judged, and lifted for the stand-ins."""
    with checks.precompiling() as session:
        ahead = checks.precompiles(session)
    record(recorder, checks.check_rule(ahead, tuple(sys.version_info)))
    with contextlib.nullcontext() if ahead else checks.on_any_python():
        record(recorder, judge())


@pytest.mark.proves_at_most("nothing", "what Inductor reports is judged, and no kernel's result")
def test_pruned_configs_compile(harness, recorder):
    """Of a small product's configs, those that are left after pruning by shared memory all compile. Unlike PyTorch's
    test, its numbers are judged too."""
    need_device(harness, recorder, "timing real kernels")
    device = torch.accelerator.current_accelerator()
    a, b = max_autotune.integers(3, 3), max_autotune.integers(3, 3, seed=1)
    settings = {"max_autotune_gemm_backends": "TRITON", "max_autotune_prune_choices_based_on_shared_mem": True}
    with max_autotune.compiling(**settings) as counters:
        product = torch.compile(torch.mm, dynamic=False)(a.to(device), b.to(device)).cpu()
        exceptions = counters["inductor"]["select_algorithm_num_precompilation_exceptions"]
    recorder.verdict("no exception", exceptions == 0, f"{exceptions} choices did not compile")
    recorder.verdict("numbers", torch.equal(product.double(), a.double() @ b.double()), "the product of whole numbers")
