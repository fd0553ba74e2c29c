"""A GPU that may be broken is a fault of the machine, and no regression; a kernel that is wrong is one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conformance.execution.device import exact_products
from conformance.machine import gpu_health
from conformance.machine.gpus import Gpus
from conformance.plugin import suspect_gpus
from conformance.plugin.suspect_gpus import SuspectGpus
from conformance.records import CaseRecord, Fault, FaultClass, FaultKind, Rerun, Status

pytest_plugins = ["pytester"]
TWO = Gpus(entries=("0", "1"), names=("H", "H"), listed=2)
FAILED = CaseRecord("test_a.py::test_x", "a", Status.FAIL, gpu="0")


def again(status, gpu, **fields):
    return Rerun(Status(status), gpu=gpu, **fields)


BROKEN = Fault.of(FaultKind.KILLED, "killed")
#: The reruns of a case that failed on GPU 0, and whether that GPU is suspect.
RERUNS = {
    "passes on the other": ([again("fail", "0"), again("pass", "1")], True),
    "crashes, and passes on the other": ([again("crash", "0"), again("pass", "1")], True),
    "fails on both": ([again("fail", "0"), again("fail", "1")], False),
    "passes on both": ([again("pass", "0"), again("pass", "1")], False),
    "passes once on the other": ([again("fail", "0"), again("pass", "1"), again("fail", "1")], False),
    "only on its own": ([again("fail", "0")], False),
    "only on the other": ([again("pass", "1")], False),
    "killed on its own": ([again("crash", "0", fault=BROKEN), again("pass", "1")], False),
    "not run on the other": ([again("fail", "0"), again("not-run", "1")], False),
}


@pytest.fixture
def products(monkeypatch):
    """Wrong elements by GPU, in place of those that torch counts, and the GPUs that were asked."""
    wrong: dict[str, dict[str, int]] = {}
    asked = []
    monkeypatch.setattr(SuspectGpus, "_products", lambda self, gpu: asked.append(gpu) or wrong.get(gpu, {}))
    monkeypatch.setattr(suspect_gpus, "gpu_state", lambda variable, gpu: "GPU-77, temperature (C) 99")
    return wrong, asked


@pytest.mark.parametrize("name", RERUNS)
def test_a_gpu_is_suspect_if_only_it_fails_the_case(products, name):
    reruns, is_suspect = RERUNS[name]
    fault = SuspectGpus(TWO, {}).fault(FAILED, reruns)
    assert (fault is not None) == is_suspect
    if fault is not None:
        assert (fault.kind, fault.fault_class) == ("device-suspect", FaultClass.INFRASTRUCTURE)
        assert "GPU 0 (GPU-77, temperature (C) 99) may be broken: the case failed there 2 times" in fault.text
        assert "and passed on GPU 1; run these cases on another GPU" in fault.text


def test_gpus_of_two_names_say_nothing_of_each_other(products):
    reruns, _ = RERUNS["passes on the other"]
    assert SuspectGpus(Gpus(entries=("0", "1"), names=("A", "B"), listed=2), {}).fault(FAILED, reruns) is None


def test_a_gpu_with_wrong_products_is_suspect_and_is_asked_once(products):
    wrong, asked = products
    wrong["0"] = {"float16": 3, "int8": 0}
    suspects = SuspectGpus(TWO, {})
    for reruns in ([again("fail", "0"), again("fail", "1")], []):
        fault = suspects.fault(FAILED, reruns)
        assert "torch's own exact products are wrong there: 3 elements of float16; run" in fault.text
    assert asked == ["0"]
    assert suspects.fault(CaseRecord("test_a.py::test_x", "a", Status.FAIL), []) is None


#: GPU 0 is broken: the first case fails there. The other case is wrong everywhere.
SUITE = """
def test_sick(recorder): recorder.verdict("x", os.environ["CUDA_VISIBLE_DEVICES"] != "0", "wrong")
def test_wrong(recorder): recorder.verdict("x", False, "wrong")
"""


def test_a_run_names_the_gpu_and_keeps_the_failure_of_the_code(project):
    project.suite("it", SUITE)
    (project.path / "conftest.py").write_text(
        "from conformance.plugin import reruns, suspect_gpus\n"
        "reruns.LEAST_S = 600.0\n"
        "suspect_gpus.SuspectGpus._products = lambda self, gpu: {}\n"
    )
    result = project.run("--conformance-gpus", "2", "-n", "1", "--conformance-reruns", "2")
    sick, wrong = project.records["test_sick"], project.records["test_wrong"]
    assert (sick.status, sick.fault.kind) == (Status.FLAKY, "device-suspect")
    assert (wrong.status, wrong.fault) == (Status.FAIL, None)
    assert [rerun.gpu for rerun in sick.reruns] == ["0", "1"]
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # of the case that is wrong
    assert {fault.kind for fault in project.info.faults} == {"failed", "device-suspect"}


def test_products_are_counted_where_torch_has_a_gpu_and_say_nothing_elsewhere(monkeypatch):
    def fails(*words, **options):
        raise subprocess.CalledProcessError(1, words)

    monkeypatch.setattr(subprocess, "run", fails)
    assert SuspectGpus(TWO, {})._products("0") == {}
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert exact_products.wrong_elements(0.0) == {}


def test_a_wrong_element_is_counted(monkeypatch):
    """On the CPU, in place of a GPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(exact_products, "SIZE", 64)
    sound = {name: product for name, product in exact_products._products(torch, *_factors(torch)) if name == "int8"}

    def flipped():
        result = sound["int8"]().clone()
        result[3, 5] ^= 1
        return result

    monkeypatch.setattr(exact_products, "_products", lambda *words: [*sound.items(), ("flipped", flipped)])
    assert exact_products.wrong_elements(0.0) == {"int8": 0, "flipped": 1}


def _factors(torch):
    torch.manual_seed(0)
    shapes = ((exact_products.SIZE, exact_products.DEPTH), (exact_products.DEPTH, exact_products.SIZE))
    return [torch.randint(-1, 2, shape, dtype=torch.int8) for shape in shapes]


def test_the_state_of_a_gpu_is_what_its_tools_say(monkeypatch):
    answers = {
        "nvidia-smi": "GPU-77, 1980 MHz, 2619 MHz, 41, 0, 2, No\n",
        "dmesg": "boot\n[9.1] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n",
        "rocm-smi": json.dumps({"card0": {"Unique ID": "0x7", "Temperature": "41"}}),
    }
    monkeypatch.setattr(gpu_health, "_output", lambda command: answers[command[0]])
    state = gpu_health.gpu_state("CUDA_VISIBLE_DEVICES", "0")
    assert state.startswith("GPU-77, SM clock 1980 MHz, memory clock 2619 MHz, temperature (C) 41, corrected ECC")
    assert "uncorrected ECC errors 2, row remapping pending No, [9.1] NVRM: Xid" in state
    assert gpu_health.gpu_state("HIP_VISIBLE_DEVICES", "0") == "Unique ID 0x7, Temperature 41"
    answers.update({"nvidia-smi": "", "dmesg": "", "rocm-smi": ""})
    assert [gpu_health.gpu_state(name, "0") for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")] == ["", ""]
    monkeypatch.undo()
    assert gpu_health._output([sys.executable, "-c", "exit(3)"]) == ""
