"""One process for each GPU: what each answers, and that none takes down another. And the command's options."""

from __future__ import annotations

import json
import sys

import pytest

from conformance import cli
from conformance.commands import screen as command
from conformance.machine import gpus as gpus_module
from conformance.machine.gpus import Gpus, NotAlone
from conformance.screening import fleet, worker
from conformance.screening.answers import GpuAnswer
from conformance.screening.findings import Seen, UnitSeen, Verdict

CLEAN = Seen("GPU", "smid", 4, [UnitSeen("fp16", "wgmma", 8, 32, 4)], turns=8)
#: What the process of a GPU does, by the number of the GPU.
WORKER = """
import json, os, sys, time
said = json.loads({said!r})
def say(**message): print("conformance-screen: " + json.dumps(message), flush=True)
print("a library prints")
say(about={{"name": "GPU", "uuid": "GPU-1", "pci": ""}})
say(turns=5, wrong_tiles=3)
do = said[os.environ["CUDA_VISIBLE_DEVICES"]]
if do == "hang":
    time.sleep(60)
elif do == "signal":
    print("cuda is lost", file=sys.stderr, flush=True)
    os.kill(os.getpid(), 9)
elif do == "exit":
    sys.exit(3)
else:
    say(**do)
"""


@pytest.fixture
def answers(monkeypatch, forked):
    """Returns the answers of GPUs whose processes do what is given for each."""
    monkeypatch.setattr(fleet, "gpu_state", lambda variable, entry: f"state of {entry}")
    monkeypatch.setattr(fleet, "QUIET_S", 4)  # on a busy machine a process needs a second to start

    def screen(*does, seconds=30.0) -> list[GpuAnswer]:
        script = WORKER.format(said=json.dumps({str(number): do for number, do in enumerate(does)}))
        gpus = Gpus(entries=tuple(str(number) for number in range(len(does))))
        heard: list[GpuAnswer] = []
        found = fleet.screen(gpus, seconds, command=[forked, "-c", script], said=heard.append)
        assert sorted(one.gpu for one in heard) == [one.gpu for one in found]
        return found

    return screen


def test_each_gpu_has_its_own_answer(answers):
    hung, dead, ended, clean, busy, failed = answers(
        "hang", "signal", "exit", {"seen": CLEAN.to_dict()}, {"not_run": "in use"}, {"failed": "illegal access"}
    )
    assert hung.verdict is Verdict.HUNG
    assert "no sign of life" in hung.why and "after 5 turns with 3 wrong tiles" in hung.why  # noqa: PT018
    assert dead.verdict is Verdict.CRASHED
    assert "ended by signal SIGKILL after 5 turns with 3 wrong tiles: cuda is lost" in dead.why
    assert "exit status 3" in ended.why
    assert clean.verdict is Verdict.CLEAN
    assert clean.states == {"before": "state of 3", "after": "state of 3"}
    assert (busy.verdict, busy.why) == (Verdict.NOT_RUN, "in use")
    assert (failed.verdict, failed.why) == (
        Verdict.CRASHED,
        "the GPU's process failed after 5 turns with 3 wrong tiles: illegal access",
    )
    assert {one.about["uuid"] for one in (hung, dead, clean)} == {"GPU-1"}


def test_an_answer_that_cannot_be_read_is_no_answer(answers):
    (answer,) = answers({"seen": {"device": "GPU"}})
    assert answer.verdict is Verdict.CRASHED
    assert "an answer that cannot be read" in answer.why


def test_a_process_that_does_not_start_is_no_answer(monkeypatch):
    monkeypatch.setattr(fleet, "gpu_state", lambda variable, entry: "")
    (answer,) = fleet.screen(Gpus(entries=("0",)), 5, command=["/nowhere"], said=lambda one: None)
    assert answer.verdict is Verdict.NOT_RUN
    assert "could not be started" in answer.why


def said_by_worker(capsys) -> dict:
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line.removeprefix(worker.MARK))


@pytest.fixture
def _one_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(gpus_module.tempfile, "gettempdir", lambda: str(tmp_path))


@pytest.mark.usefixtures("_one_gpu")
def test_the_worker_says_that_the_gpu_is_in_use(monkeypatch, capsys):
    def in_use(self, seconds):
        raise NotAlone("other cases used the device for 2 s without a pause")

    monkeypatch.setattr(worker.Turns, "alone", in_use)
    assert worker.main(["8", "0"]) == 0
    assert "other cases used the device" in said_by_worker(capsys)["not_run"]


@pytest.mark.usefixtures("_one_gpu")
@pytest.mark.parametrize(
    ("error", "key"), [(RuntimeError("an illegal memory access"), "failed"), (ImportError("no torch"), "not_run")]
)
def test_the_worker_says_what_it_cannot_do(monkeypatch, capsys, error, key):
    def fails(until, turns):
        raise error

    monkeypatch.setattr(worker, "_screen", fails)
    worker.main(["8", "0"])
    assert str(error) in said_by_worker(capsys)[key]


def test_pci_and_uuid_as_the_driver_writes_them():
    class Properties:
        uuid = "ae8b2804"
        pci_domain_id, pci_bus_id, pci_device_id = 0, 6, 0

    assert (worker._uuid(Properties()), worker._pci(Properties())) == ("GPU-ae8b2804", "0000:06:00.0")
    assert (worker._uuid(object()), worker._pci(object())) == ("", "")


@pytest.fixture
def fleet_of(monkeypatch):
    def prepare(*found: GpuAnswer):
        monkeypatch.setattr(command, "find_gpus", lambda most: Gpus(entries=tuple(one.gpu for one in found)))

        def screen(gpus, seconds, turns, said):
            for one in found:
                said(one)
            return list(found)

        monkeypatch.setattr(command.fleet, "screen", screen)

    return prepare


def test_the_command_writes_its_answer(fleet_of, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NODE_NAME", "node-7")
    fleet_of(GpuAnswer.of("0", CLEAN), GpuAnswer("1", Verdict.SUSPECT, "wrong"))
    files = tmp_path / "screen.json", tmp_path / "event.json"
    assert cli.main(["screen", "--json", str(files[0]), "--health-event", str(files[1])]) == 1
    answer, event = (json.loads(file.read_text()) for file in files)
    assert [one["verdict"] for one in answer["gpus"]] == ["clean", "suspect"]
    assert (answer["host"], answer["exit_status"]) == ("node-7", 1)
    assert [(one["nodeName"], one["isHealthy"]) for one in event["events"]] == [("node-7", True), ("node-7", False)]
    assert "GPU 1: suspect" in capsys.readouterr().out


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.CLEAN, 0), (Verdict.HUNG, 2), (Verdict.ALIKE, 1)])
def test_the_commands_exit_status(fleet_of, verdict, status):
    fleet_of(GpuAnswer("0", verdict, ""))
    assert cli.main(["screen"]) == status


def test_without_a_gpu_there_is_no_answer(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_gpus", lambda most: Gpus())
    assert cli.main(["screen"]) == 2
    assert "screen needs a GPU: no GPU was found" in capsys.readouterr().err


def test_more_gpus_than_there_are(monkeypatch, capsys):
    monkeypatch.setattr(gpus_module, "_nvidia_gpus", lambda: Gpus(entries=("0",)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cli.main(["screen", "--gpus", "2"]) == 2
    assert "--gpus 2: this machine has 1" in capsys.readouterr().err


def test_the_answer_of_a_file_that_cannot_be_written(fleet_of, capsys):
    fleet_of(GpuAnswer("0", Verdict.CLEAN, ""))
    assert cli.main(["screen", "--json", f"{sys.executable}/x.json"]) == 2
    assert "cannot be written" in capsys.readouterr().err
