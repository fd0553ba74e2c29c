"""A run with --calibration computes as its file says until it ends, or ends at once."""

import contextlib
import dataclasses
import json
from types import SimpleNamespace

import pytest

from conformance import targets
from conformance.judging.settings import Settings
from conformance.machine.gpus import Gpus
from conformance.numerics.measured_units import evidence, known_unit
from conformance.plugin import options
from conformance.plugin.case_hooks import _options
from conformance.user_files.expected_failures import ExpectedFailures

HOPPER, ADA = targets.find("sm_90"), targets.find("sm_89")
SETTINGS = Settings("quick", (), (), (), 0, None, Gpus("", ("0",)), None, 60.0, (), ExpectedFailures())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ada.json"
    path.write_text(json.dumps(dataclasses.replace(evidence()["sm_90"], target="sm_89").to_dict()))
    return path


def run(monkeypatch, settings, devices):
    """The configuration of a run on ``devices``; leaving it ends the run."""
    monkeypatch.setattr(targets, "devices", lambda: devices)
    ends = contextlib.ExitStack()
    config = SimpleNamespace(stash={options._SETTINGS: settings}, add_cleanup=ends.callback)
    options.take_calibration(config)
    return ends


def test_its_class_of_devices_is_proven_until_the_run_ends(monkeypatch, file):
    with run(monkeypatch, dataclasses.replace(SETTINGS, calibration=file), (ADA,)):
        assert known_unit(ADA, "mma", "bf16").proven
        assert ADA.matrix_unit.products[2] == 16
    assert not known_unit(ADA, "mma", "bf16").proven
    assert ADA.matrix_unit.products[2] == 8


@pytest.mark.parametrize(
    ("gpus", "devices", "says"),
    [
        (("0",), (HOPPER,), "it was measured on sm_89 .NVIDIA H200., and the devices here are sm_90"),
        ((), (ADA,), ".* and there is no device here"),  # --no-gpu
    ],
)
def test_a_file_of_another_device_ends_the_run(monkeypatch, file, gpus, devices, says):
    settings = dataclasses.replace(SETTINGS, calibration=file, gpus=Gpus("", gpus))
    with pytest.raises(pytest.UsageError, match=f"--calibration .*ada.json: {says}"):
        run(monkeypatch, settings, devices)
    assert not known_unit(ADA, "mma", "bf16").proven


def test_without_a_file_nothing_changes(monkeypatch):
    with run(monkeypatch, SETTINGS, (ADA,)):
        assert not targets.CALIBRATED_UNITS


def test_the_command_that_runs_a_case_again_has_the_file(file):
    assert f"--conformance-calibration={file}" in _options(dataclasses.replace(SETTINGS, calibration=file))
    assert "calibration" not in _options(SETTINGS)
