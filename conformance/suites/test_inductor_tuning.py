"""Inductor's autotuning in processes of its own: what a job that hangs, fails or crashes costs, and who sees what.

Nothing of this needs a device except where real kernels are timed and where several devices are shared out. Children
that need none are forks of a process that has imported Inductor, except for one. Those that time kernels are started as
Inductor starts them.
"""

import os

import pytest
import torch

from conformance.cases.generated_cases import generated
from conformance.inductor.compile.observation import unmeasured_fusion
from conformance.inductor.compile.program import Decision, dense, program_of
from conformance.inductor.topics import tuning as checks
from conformance.inductor.tuning import child_process, max_autotune, tuning_processes
from conformance.inductor.tuning.prescreened_choices import OPTION
from conformance.inductor.tuning.prescreened_choices import module as pipelined_module
from conformance.inductor.tuning.tuning_processes import Job
from conformance.judging.harness import need_device, record
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.records import Reason, ReasonCode


@pytest.fixture(scope="module")
def process():
    """One tuning process for the cases of this module: each leaves it healthy or fails."""
    with tuning_processes.tuning_process(child_process.make_forked) as tuning_process:
        yield tuning_process


@pytest.fixture(scope="module")
def pool():
    """A pool with two children, for two devices that need not exist."""
    with tuning_processes.tuning_pool([0, 1], child_process.forked_class()) as tuning_pool:
        yield tuning_pool


@pytest.mark.parametrize(
    "check",
    [checks.raises_here, checks.times_out, checks.crashes, checks.is_killed],
    ids=lambda check: check.__name__,
)
@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_process(recorder, process, check):
    """A job that raises, hangs or ends its process, and a kill. Unlike in PyTorch's tests, the child is at work before
    the limit counts. The system confirms its end, and it is known which child answers afterwards."""
    record(recorder, check(process))


@pytest.mark.slow(16)
@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_visible_devices(recorder, process):
    """A child sees the device that it was given and no other. Unlike PyTorch's test, the environment around it says
    something else, and a child without a device inherits it."""
    reply = tuning_processes.ask(process, Job())
    around = os.environ.get(tuning_processes.VISIBLE_DEVICES)
    recorder.verdict("inherited", reply.visible == around, f"{reply.visible} in the child, {around} here")
    record(recorder, checks.sees_only(tuning_processes.make_process, 3, "5"))


@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pool_crash(recorder, pool):
    """A job that ends its process is timed as infinite; the jobs before and after it get their values."""
    record(recorder, checks.loses_only_that_job(pool, Job(exit_code=checks.EXIT_CODE)))


@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pool_timeout(recorder, pool):
    """A job that exceeds the limit is timed as infinite soon after it; the jobs before and after get their values."""
    job = Job(seconds=checks.ENDLESS_SECONDS)
    record(recorder, checks.loses_only_that_job(pool, job, limit=checks.LIMIT_SECONDS))


@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pool_limit_is_a_setting(recorder, pool):
    """The limit is the one that is set where the compilation runs. PyTorch's test sets it and would pass under any."""
    limit = tuning_processes.limit_in_threads(pool, checks.LIMIT_SECONDS)
    recorder.set(observed={"limit in the pool's threads, s": limit})
    if limit != checks.LIMIT_SECONDS:
        set_to, seen = f"{checks.LIMIT_SECONDS:g} s", f"{limit:g} s"
        detail = (
            f"a limit of {set_to} set in this thread is {seen} in the pool's. Settings belong to the thread that makes "
            "them in this torch, so the limit cannot be changed; take a torch that hands it on"
        )
        recorder.not_run(Reason(ReasonCode.CAPABILITY, tuning_processes.LIMIT_SETTING, detail))
    recorder.verdict("limit", True, f"{limit:g} s")


@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pool_exception(recorder, pool):
    """A job that raises is timed as infinite; the jobs before and after get their values. PyTorch has no such test."""
    record(recorder, checks.loses_only_that_job(pool, Job(error="the fault of job 3")))


@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pool_spreads_over_devices(recorder, pool):
    """Each child serves one device. Unlike PyTorch's test this needs no device: the environment is what is shared
    out, and it is known which child answered."""
    record(recorder, checks.spreads(pool, [0, 1]))


@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pool_device_lists(recorder):
    """A pool serves the devices that its setting and the environment name. PyTorch has no test of this."""
    from torch._inductor.autotune_process import TuningProcessPool

    record(recorder, checks.device_lists(TuningProcessPool))


@pytest.mark.slow(20)
@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pool_of_visible_devices(harness, recorder):
    """The last two of the devices that are there, as Inductor finds them. A worker sees one device, so it is a fresh
    process that sees two."""
    need_device(harness, recorder, "sharing out the devices that are there")
    entries = harness.settings.gpus.entries
    devices = [int(entry) for entry in entries if entry.isdigit()][-2:]
    if len(devices) < 2:
        detail = f"the run has the devices {', '.join(entries)}: two by number are required"
        recorder.not_run(Reason(ReasonCode.NO_DEVICE, "devices", detail))
    with child_process.environment(**{tuning_processes.VISIBLE_DEVICES: ",".join(map(str, devices))}):
        code, verdicts = child_process.spawned(checks.spread_over_visible, devices)
    recorder.verdict("process", code == 0, f"exit code {code}")
    record(recorder, verdicts or [])


# --- choices in a spawned process -------------------------------------------------------------------------------------


@pytest.mark.slow(12)
@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_choice_in_spawned_process(recorder):
    """A choice that is sent to a fresh process is timed there. Unlike PyTorch's test, its time and its numbers come
    back and are judged."""
    record(recorder, checks.check_spawned_choice(child_process.spawned))


@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_failing_choice_in_spawned_process(recorder):
    """A choice that raises ends its process with an error and sends nothing."""
    record(recorder, checks.check_spawned_failure(child_process.spawned))


# --- real kernels, timed in processes of their own --------------------------------------------------------------------


def _mm(a, b, c, d, bias):
    return a @ b


def _addmm(a, b, c, d, bias):
    return torch.addmm(bias, a, b)


def _mm_plus_mm(a, b, c, d, bias):
    return a @ b + c @ d


TIMED = {
    "mm-static": (_mm, False),
    "mm-dynamic": (_mm, True),
    "addmm-static": (_addmm, False),
    "addmm-dynamic": (_addmm, True),
    "mm_plus_mm-static": (_mm_plus_mm, False),  # with dynamic sizes it has no Triton choice
}


@pytest.fixture(scope="module")
def shared_pool():
    """One pool for the compilations of this module, as for those of a program."""
    with max_autotune.shared_pool():
        yield


@pytest.mark.proves_at_most("nothing", "torch runs the kernels itself, and the record names no executor")
@pytest.mark.slow(10)
@pytest.mark.parametrize(("function", "dynamic"), list(TIMED.values()), ids=list(TIMED))
def test_kernels_timed_in_processes(harness, recorder, shared_pool, function, dynamic):
    """Every Triton choice is timed in a child, and the winner's numbers are exact. PyTorch's tests of this only ask
    that nothing crashes, or compare with torch's own product within 1e-2."""
    need_device(harness, recorder, "timing kernels in processes of their own")
    device = torch.accelerator.current_accelerator()
    sizes = [(112, 80), (80, 96), (112, 80), (80, 96), (112, 96)]
    tensors = [max_autotune.integers(*size, dtype=torch.float32, seed=seed) for seed, size in enumerate(sizes)]
    expected = function(*(tensor.double() for tensor in tensors))
    with max_autotune.compiling(autotune_in_subproc=True), max_autotune.pools_watched() as timed:
        compiled = torch.compile(function, dynamic=dynamic)
        product = compiled(*(tensor.half().to(device) for tensor in tensors)).cpu()
    recorder.verdict("numbers", torch.equal(product.double(), expected.half().double()), "the product of whole numbers")
    finite = [time for time in timed if 0 < time < float("inf")]
    recorder.verdict("timed in a child", bool(timed) and len(finite) == len(timed), f"{timed}")


# --- choices that are timed while Inductor goes on --------------------------------------------------------------------

PIPELINED = {
    "product": checks.check_pipelined,
    "failing-benchmark": checks.check_failing_benchmark,
    "one-does-not-compile": lambda: checks.check_failing_compilation(all_of_them=False),
    "none-compiles": lambda: checks.check_failing_compilation(all_of_them=True),
}


@pytest.mark.parametrize("rule", list(PIPELINED))
@pytest.mark.proves_at_most("nothing", "Inductor's processes are judged, and no kernel is run")
def test_pipelined_selection(recorder, rule):
    """Another process times choices while Inductor goes on: when, how often, and which one wins. The process and the
    choices are stand-ins. PyTorch's tests only see that a product is right."""
    if pipelined_module() is None:
        detail = f"torch {torch.__version__} has no pipelined autotuning as it is known here"
        recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "pipelined autotuning", detail))
    record(recorder, PIPELINED[rule]())


@generated(vendors=("nvidia",))
def test_pipelined_product(inductor, target):
    """A product whose choices are timed so: they are the same as without, and the fastest is generated. Its numbers are
    exact."""
    inductor.need_option(OPTION)
    graph, operands = "conformance.inductor.topics.gemm:mm", [dense("a", 40, 64), dense("b", 64, 48)]
    fields = {"templates": inductor.choices_of("mm")}
    settings = {**PINNED_SETTINGS, **unmeasured_fusion()}  # Inductor refuses to measure both at once
    usual = inductor.compile(program_of(graph, operands, settings, **fields), target).generated
    fields |= {"settings": {**settings, OPTION: True}, "decision": Decision.SELECTION_IS_PIPELINED}
    compiled = inductor.exact(graph, operands, target, **fields)
    inductor.record(checks.check_product(usual, compiled.generated))
