"""A GPU that may be broken is a fault of the machine, and no regression; a kernel that is wrong is one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.execution.device import exact_products
from conformance.machine import gpu_health
from conformance.machine.gpus import Gpus
from conformance.plugin import early_reruns, suspect_gpus
from conformance.plugin.reruns import Reruns
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
        assert "and passed 1 times on GPU 1; run these cases on another GPU" in fault.text


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


@pytest.mark.parametrize(("broken", "is_suspect"), [({"0"}, True), ({"0", "1"}, False)])
def test_a_gpu_without_products_is_suspect_if_another_one_has_them(monkeypatch, broken, is_suspect):
    def products(self, gpu):
        if gpu in broken:
            raise suspect_gpus.NoProducts("no answer")
        return {"float16": 0}

    monkeypatch.setattr(SuspectGpus, "_products", products)
    monkeypatch.setattr(suspect_gpus, "gpu_state", lambda variable, gpu: "")
    fault = SuspectGpus(TWO, {}).fault(FAILED, [])
    assert (fault is not None) == is_suspect
    if fault is not None:
        assert "products end there with an error, and not on GPU 1: no answer" in fault.text


@pytest.mark.parametrize(("status", "kind"), [("compile-error", None), ("fail", "device-suspect")])
def test_a_compile_error_makes_no_gpu_suspect(products, status, kind):
    wrong, asked = products
    wrong["0"] = {"float16": 3}
    judge = Reruns(SimpleNamespace(), None, SuspectGpus(TWO, {}), 1)
    judge._conclude(replace(FAILED, status=Status(status)), [again(status, "0"), again(status, "1")])
    fault = judge._judged[FAILED.case].fault
    assert (None if fault is None else fault.kind) == kind
    assert bool(asked) == (kind is not None)


def test_a_gpu_is_withdrawn_once_when_it_is_suspect_twice(monkeypatch):
    suspect = replace(FAILED, fault=Fault.of(FaultKind.DEVICE_SUSPECT, "may be broken"))
    records = {
        "a": replace(FAILED, fault=BROKEN),
        "b": replace(FAILED, gpu=None),
        **dict.fromkeys("cdef", FAILED),
    }
    monkeypatch.setattr(early_reruns, "recorded", lambda folder, case: records[case])
    judged, withdrawn = [], []
    reruns = SimpleNamespace(judge_now=lambda record: judged.append(record) or suspect)
    early = early_reruns.EarlyReruns(Path(), None, reruns, 2, withdrawn.append)
    seen = []
    for case in "abcdef":
        early._judge(case)
        seen.append((len(judged), list(withdrawn)))
    assert seen == [(0, []), (0, []), (1, []), (2, ["0"]), (2, ["0"]), (2, ["0"])]


def test_four_failures_of_a_gpu_are_judged_at_once(monkeypatch):
    judged = []
    monkeypatch.setattr(early_reruns, "recorded", lambda folder, case: FAILED)
    reruns = SimpleNamespace(judge_now=lambda record: judged.append(record) or record)
    early = early_reruns.EarlyReruns(Path(), None, reruns, 2, judged.append)
    for _ in range(6):
        early._judge(FAILED.case)
    assert len(judged) == early_reruns.MOST_ON_A_GPU == 4


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
    assert [rerun.gpu for rerun in sick.reruns] == ["0", "1"] * 3  # two tries, and two confirmations
    assert [rerun.gpu for rerun in wrong.reruns] == ["0", "1"]
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # of the case that is wrong
    assert {fault.kind for fault in project.info.faults} == {"failed", "device-suspect"}


#: GPU 0 fails every case. There the cases of the run take longer, but not those that are judged again: GPU 0 must be
#: suspect before it has taken many.
SICK = """
@pytest.mark.parametrize("i", range(40))
def test_it(recorder, i):
    sick = os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    time.sleep((0.6 if sick else 0.3) if "PYTEST_XDIST_WORKER" in os.environ else 0)
    recorder.verdict("x", not sick, "wrong")
"""


def test_a_gpu_that_is_suspect_twice_gets_no_more_cases(project, monkeypatch):
    project.suite("it", SICK)
    (project.path / "conftest.py").write_text(
        "from conformance.plugin import reruns, suspect_gpus\n"
        "reruns.LEAST_S = 600.0\n"
        "reruns.CONFIRMATIONS = 0\n"
        "suspect_gpus.SuspectGpus._products = lambda self, gpu: {}\n"
    )
    result = project.run("--conformance-gpus", "2", "-n", "2", "--conformance-reruns", "2")
    assert (result.ret, project.info.problems) == (75, ())
    records = project.records.values()
    assert len(records) == 40
    on_sick = [record for record in records if record.gpu == "0"]
    assert 2 <= len(on_sick) < 20  # of 40 that two GPUs would share
    assert {record.fault.kind for record in on_sick} == {"device-suspect"}
    assert "GPU 0 was suspect twice, and gets no more cases" in [fault.text for fault in project.info.faults]


def test_a_run_ends_if_its_only_gpu_is_suspect_twice(project):
    project.suite("it", SICK)
    (project.path / "conftest.py").write_text(
        "from conformance.plugin import suspect_gpus\n"
        "suspect_gpus.SuspectGpus._products = lambda self, gpu: {'int8': 3}\n"
    )
    result = project.run("--conformance-gpus", "1", "-n", "1", "--conformance-reruns", "1")
    assert result.ret == 75
    assert len(project.records) < 40
    assert "the run was stopped before its last case: each of its GPUs is suspect" in str(project.info.faults)


def test_a_case_that_comes_and_goes_does_not_make_its_gpu_suspect(project):
    """It fails there twice and passes on the other GPU, then once more on its own."""
    body = 'recorder.verdict("x", os.environ["CUDA_VISIBLE_DEVICES"] != "0" or nth() > 2, "wrong")'
    nth = "def nth():\n    with open('count', 'a') as file: file.write('x')\n    return os.path.getsize('count')\n"
    project.suite("it", f"{nth}def test_it(recorder): {body}\n")
    (project.path / "conftest.py").write_text(
        "from conformance.plugin import suspect_gpus\nsuspect_gpus.SuspectGpus._products = lambda self, gpu: {}\n"
    )
    project.run("--conformance-gpus", "2", "-n", "1", "--conformance-reruns", "2")
    record = project.records["test_it"]
    assert (record.status, record.fault) == (Status.FLAKY, None)
    assert [rerun.status.value for rerun in record.reruns][:4] == ["fail", "pass", "pass", "pass"]


def test_a_gpu_that_gives_no_products_is_suspect_if_another_one_gives_some(monkeypatch):
    def products(self, gpu):
        if gpu == "0":
            raise suspect_gpus.NoProducts("exit status 1: RuntimeError: illegal address")
        return {"int8": 0}

    monkeypatch.setattr(SuspectGpus, "_products", products)
    fault = SuspectGpus(TWO, {}).fault(FAILED, [])
    assert "end there with an error, and not on GPU 1: exit status 1: RuntimeError: illegal address" in fault.text
    assert SuspectGpus(Gpus(entries=("0",), names=("H",), listed=1), {}).fault(FAILED, []) is None


@pytest.mark.parametrize(("status", "gpus"), [("fail", ["0", "1"]), ("crash", ["0", "1"]), ("timeout", ["0", "1"])])
def test_a_case_is_judged_again_on_both_gpus(status, gpus):
    settings = SimpleNamespace(gpus=TWO, reruns=2)
    reruns = Reruns(settings, None, SuspectGpus(TWO, {}), 1)
    assert reruns._gpus(replace(FAILED, status=Status(status))) == gpus
    one = Reruns(SimpleNamespace(gpus=Gpus(entries=("0",)), reruns=2), None, SuspectGpus(TWO, {}), 1)
    assert one._gpus(replace(FAILED, status=Status(status))) == ["0"] * (2 if status == "fail" else 1)


def test_products_are_counted_where_torch_has_a_gpu_and_say_nothing_elsewhere(monkeypatch):
    def fails(*words, **options):
        raise subprocess.CalledProcessError(1, words)

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(suspect_gpus.NoProducts, match="CalledProcessError"):
        SuspectGpus(TWO, {})._products("0")
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
