"""GPUs and cores: who is found, how many workers, who gets which."""

from __future__ import annotations

import pytest

from conformance.machine import gpus
from conformance.machine.gpus import GpuLeases, Gpus, find_gpus, lacking, unusable, worker_count, worker_environment


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
    ("preset", "count", "entries"),
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
def test_find_gpus(four_gpus, monkeypatch, preset, count, entries):
    if preset is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", preset)
    gpus = find_gpus(count)
    assert gpus.entries == entries
    assert gpus.names == (("H200",) * 4 if entries else ())


def test_a_list_alone_is_no_gpu(monkeypatch):
    monkeypatch.setattr(gpus, "_nvidia_gpus", Gpus)
    monkeypatch.setattr(gpus, "_amd_gpus", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert find_gpus().entries == ()


def test_amd_gpus_have_their_own_variable(monkeypatch):
    monkeypatch.setattr(gpus, "_nvidia_gpus", Gpus)
    monkeypatch.setattr(gpus, "_amd_gpus", lambda: [{}, {}])
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    assert find_gpus() == Gpus("HIP_VISIBLE_DEVICES", ("0", "1"), listed=2)


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


def test_a_gpu_that_was_withdrawn_is_given_to_no_more_workers():
    leases = GpuLeases(("0", "1"))
    assert [leases.take(name) for name in ("gw0", "gw1", "gw2")] == ["0", "1", "0"]
    assert leases.withdraw("0") == ["gw0", "gw2"]
    assert [leases.take(name) for name in ("gw3", "gw4")] == ["1", "1"]


def test_worker_environment(four_gpus, monkeypatch):
    monkeypatch.setattr(gpus, "core_count", lambda: 8)
    four = find_gpus()
    own = {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    assert worker_environment(four, "3", False, 4) == {**own, "CUDA_VISIBLE_DEVICES": "3"}
    for name in own:
        monkeypatch.setenv(name, "5")
    assert worker_environment(four, None, False, 4) == {}
    assert worker_environment(Gpus(), None, True, 16) == {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture
def no_tools(monkeypatch, tmp_path):
    """A machine whose drivers list their GPUs below ``tmp_path``, without nvidia-smi."""
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(gpus, "ROOT", tmp_path)
    gpus._nvidia_gpus.cache_clear()
    yield tmp_path
    gpus._nvidia_gpus.cache_clear()


def test_drivers_are_asked_without_tools(no_tools):
    assert find_gpus() == Gpus()
    assert lacking(find_gpus()).startswith("no GPU was found: ")
    for number in range(2):
        (no_tools / f"proc/driver/nvidia/gpus/0000:0{number}:00.0").mkdir(parents=True)
    gpus._nvidia_gpus.cache_clear()
    assert (find_gpus().entries, find_gpus().listed) == (("0", "1"), 2)


def test_amd_gpus_are_told_from_cpus(no_tools):
    for number, simds in enumerate((0, 304)):
        node = no_tools / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\n")
    found = find_gpus()
    assert (found.variable, found.entries, found.listed) == ("HIP_VISIBLE_DEVICES", ("0",), 1)


def test_gpus_that_are_hidden_are_no_lack(four_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert lacking(find_gpus()) == (
        "the driver lists 4 GPUs, and CUDA_VISIBLE_DEVICES='' hides them: unset it, or name the GPUs to use"
    )


def test_gpus_that_torch_cannot_use_are_one_sentence_with_both_facts():
    listed = Gpus(entries=("0", "1"), names=("H200", "H200"), driver="535.1", listed=2)
    text = unusable(listed, "2.13.0+cpu", "")
    assert "the driver lists 2 NVIDIA GPUs (H200, driver 535.1), and torch 2.13.0+cpu is built without CUDA" in text
    assert "install a torch for CUDA, or give --no-gpu" in text
    assert "is built for CUDA 13.0" in unusable(listed, "2.13.0", "CUDA 13.0")
    assert "install a driver that knows CUDA 13.0" in unusable(listed, "2.13.0", "CUDA 13.0")
    amd = Gpus("HIP_VISIBLE_DEVICES", ("0",), listed=1)
    assert "1 AMD GPU, and torch 2.13.0 is built for CUDA 13.0 and can use none" in unusable(amd, "2.13.0", "CUDA 13.0")
