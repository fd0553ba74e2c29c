"""GPUs and cores: who is found, how many workers, who gets which."""

from __future__ import annotations

import pytest

from conformance.machine import gpus
from conformance.machine.gpus import GpuLeases, Gpus, find_gpus, worker_count, worker_environment


@pytest.fixture
def four_gpus(monkeypatch):
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    found = Gpus(entries=("0", "1", "2", "3"), names=("H200",) * 4, driver="580")
    monkeypatch.setattr(gpus, "_nvidia_gpus", lambda: found)


@pytest.mark.parametrize(
    ("gpus", "cores", "workers"),
    [
        (0, 1, 1),
        (0, 2, 2),
        (0, 64, 64),
        (1, 16, 15),
        (1, 64, 16),
        (2, 16, 14),
        (4, 64, 60),
        (8, 128, 120),
        (8, 4, 8),
        (1, 1, 1),
    ],
)
def test_worker_count(gpus, cores, workers):
    assert worker_count(gpus, cores) == workers
    assert gpus == 0 or workers % gpus == 0


@pytest.mark.parametrize(
    ("preset", "wanted", "entries"),
    [
        (None, None, ("0", "1", "2", "3")),
        (None, 2, ("0", "1")),
        (None, 0, ()),
        ("2,GPU-1234 , MIG-5", None, ("2", "GPU-1234", "MIG-5")),
        ("2,GPU-1234", 1, ("2",)),
        ("1,-1,2", None, ("1",)),
        ("", None, ()),
        ("-1", None, ()),
    ],
)
def test_find_gpus(four_gpus, monkeypatch, preset, wanted, entries):
    if preset is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", preset)
    made = find_gpus(wanted)
    assert made.entries == entries
    assert made.names == (("H200",) * 4 if entries else ())


def test_a_list_alone_is_no_gpu(monkeypatch):
    monkeypatch.setattr(gpus, "_nvidia_gpus", Gpus)
    monkeypatch.setattr(gpus, "_amd_gpu_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert find_gpus().entries == ()


def test_amd_gpus_have_their_own_variable(monkeypatch):
    monkeypatch.setattr(gpus, "_nvidia_gpus", Gpus)
    monkeypatch.setattr(gpus, "_amd_gpu_count", lambda: 2)
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    assert find_gpus() == Gpus("HIP_VISIBLE_DEVICES", ("0", "1"))


def test_more_gpus_than_the_list_shows(four_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    with pytest.raises(ValueError, match=r"--gpus 3: CUDA_VISIBLE_DEVICES shows 2 \(0,3\)"):
        find_gpus(3)


def test_nvidia_smi_is_read(monkeypatch, tmp_path):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho '0, NVIDIA H200, 580.1'\necho '1, NVIDIA H200, 580.1'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    gpus._nvidia_gpus.cache_clear()
    try:
        assert gpus._nvidia_gpus() == Gpus(entries=("0", "1"), names=("NVIDIA H200",) * 2, driver="580.1")
    finally:
        gpus._nvidia_gpus.cache_clear()


def test_leases_balance():
    leases = GpuLeases(["a", "b"])
    assert [leases.take(f"gw{i}") for i in range(4)] == ["a", "b", "a", "b"]
    leases.give_back("gw1")
    leases.give_back("gw1")
    assert leases.take("gw4") == "b"
    assert GpuLeases([]).take("gw0") is None


def test_worker_environment(four_gpus, monkeypatch):
    monkeypatch.setattr(gpus, "core_count", lambda: 8)
    four = find_gpus()
    own = {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    assert worker_environment(four, "3", False, 4) == {**own, "CUDA_VISIBLE_DEVICES": "3"}
    for name in own:
        monkeypatch.setenv(name, "5")
    assert worker_environment(four, None, False, 4) == {}
    assert worker_environment(Gpus(), None, True, 16) == {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "-1"}
