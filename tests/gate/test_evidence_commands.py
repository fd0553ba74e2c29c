"""``conformance keygen``, ``bundle`` and ``verify``, as a person uses them."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance.commands import CommandError, bundle, keygen, verify
from conformance.gate.evidence.archive import Rejected, RejectReason
from conformance.gate.evidence.pack import pack
from conformance.records import Status
from tests.command_runs import call
from tests.gate.sample_bundles import CODE, Sample, sample, write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def evidence(tmp_path) -> Sample:
    return sample(tmp_path)


@pytest.fixture
def verified(tmp_path, capsys):
    """Verifies a bundle with a key's file: the exit status and the output."""

    def run(data: bytes, key: str = "ours", code: str = CODE) -> tuple[int, str]:
        (tmp_path / "b.zip").write_bytes(data)
        status = call(verify, tmp_path / "b.zip", "--key", tmp_path / f"{key}.pub.pem", "--code-digest", code)
        return status, capsys.readouterr().out

    return run


def test_from_keys_to_a_verified_bundle(tmp_path, capsys):
    private, public, folder = tmp_path / "mine.pem", tmp_path / "mine.pub.pem", write_run(tmp_path / "run")
    lists = ["--waivers", tmp_path / "waivers.toml", "--mustpass", tmp_path / "lists"]
    assert call(keygen, private, public) == 0
    assert call(bundle, folder, "--key", private, *lists) == 0
    capsys.readouterr()
    assert call(verify, tmp_path / "run.zip", "--key", public, "--code-digest", CODE, *lists) == 0
    output = capsys.readouterr().out
    assert output.startswith("VERIFIED")
    for line in ("result", "FAILED", "4 selected, 4 recorded: 1 fail, 1 not-applicable, 2 pass", "the same as yours"):
        assert line in output


def test_the_lists_are_those_of_a_folder_with_its_folders(tmp_path, capsys):
    evidence, lists = sample(tmp_path), tmp_path / "lists"
    (lists / "older").mkdir()
    (lists / "older" / "baseline.txt").write_text((lists / "baseline.txt").read_text().replace("==3.7.*", "==3.6.*"))
    keys = ["--key", tmp_path / "ours.pem", "--mustpass", lists]
    assert call(bundle, evidence.folder, *keys, "--output", tmp_path / "b.zip") == 0
    judged = [tmp_path / "b.zip", "--key", tmp_path / "ours.pub.pem", "--code-digest", CODE, "--mustpass", lists]
    assert call(verify, *judged) == 0
    assert "baseline.txt, older/baseline.txt (the same as yours)" in capsys.readouterr().out
    (lists / "older" / "baseline.txt").unlink()
    assert call(verify, *judged) == 1
    assert "mustpass/older/baseline.txt was not given here" in capsys.readouterr().out


@pytest.mark.parametrize("command", [bundle, verify])
def test_a_folder_without_lists_is_an_error_and_not_none(evidence, tmp_path, command):
    (tmp_path / "b.zip").write_bytes(evidence.data)
    (tmp_path / "empty").mkdir()
    words = {bundle: (evidence.folder, "--key", tmp_path / "ours.pem")}
    words[verify] = (tmp_path / "b.zip", "--key", tmp_path / "ours.pub.pem", "--code-digest", CODE)
    with pytest.raises(CommandError, match="empty holds no mustpass list"):
        call(command, *words[command], "--mustpass", tmp_path / "empty")


def test_what_is_no_folder_is_no_run(evidence, tmp_path):
    with pytest.raises(CommandError, match="nowhere is no run's folder"):
        call(bundle, tmp_path / "nowhere", "--key", tmp_path / "ours.pem")


def test_packing_a_run_twice_gives_the_same_bytes(evidence):
    assert evidence.packed(evidence.folder) == evidence.data


def test_a_refused_bundle_is_a_no_with_its_reason(evidence, verified):
    status, output = verified(evidence.data, key="theirs")
    assert (status, "other-key: signed by key" in output) == (1, True)


def test_without_a_digest_only_the_code_of_this_installation_is_accepted(evidence, tmp_path, capsys):
    (tmp_path / "b.zip").write_bytes(evidence.data)
    assert call(verify, tmp_path / "b.zip", "--key", tmp_path / "ours.pub.pem") == 1
    assert "other-code: judged by code" in capsys.readouterr().out


def test_text_of_a_stranger_cannot_move_the_cursor(tmp_path, verified):
    status, output = verified(sample(tmp_path, options=["--run-dir=\x1b[2J\nVERIFIED"]).data)
    assert status == 0
    assert "\x1b" not in output
    assert sum(line.startswith("VERIFIED") for line in output.splitlines()) == 1


def test_a_bundle_never_overwrites(evidence, tmp_path):
    (tmp_path / "sample.zip").write_bytes(b"earlier")
    with pytest.raises(CommandError, match="never overwritten"):
        call(bundle, evidence.folder, "--key", tmp_path / "ours.pem")
    assert (tmp_path / "sample.zip").read_bytes() == b"earlier"


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_a_write_that_fails_leaves_nothing_behind(evidence, tmp_path, monkeypatch, step):
    def full(*arguments: object) -> None:
        raise OSError("no space left on device")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(bundle.os, step, full)
    with pytest.raises(CommandError, match="no space left"):
        call(bundle, evidence.folder, "--key", tmp_path / "ours.pem")
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.undo()
    assert call(bundle, evidence.folder, "--key", tmp_path / "ours.pem") == 0
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "sample.zip"])
    assert (tmp_path / "sample.zip").read_bytes() == pack(evidence.folder, evidence.key, [], {})


@pytest.mark.parametrize(
    ("missing", "says"), [("environment.json", "run again with this version"), ("records.jsonl", "a run that ended")]
)
def test_a_run_without_its_files_gives_no_bundle(evidence, tmp_path, missing, says):
    (evidence.folder / missing).unlink()
    with pytest.raises(CommandError, match=says):
        call(bundle, evidence.folder, "--key", tmp_path / "ours.pem")
    assert not (tmp_path / "sample.zip").exists()


def test_a_refusal_cannot_add_lines_of_its_own(evidence, verified):
    status, output = verified(evidence.data.replace(b"summary.md", b"s\nVERIFIED"))
    assert status == 1
    assert [line.split(maxsplit=1)[0] for line in output.splitlines()] == ["REFUSED", "archive:"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"distributions": {"triton": {"altered_files": 3}}}, "3 files ALTERED"),
        ({"distributions": {"triton": {"is_imported": False}}}, "NOT what was imported"),
        ({"distributions": {"triton": None}}, "not installed"),
        ({"git": {"commit": "abc", "dirty": True}}, "commit abc with changes"),
        ({"git": None}, "not from a checkout"),
        ({"extensions": [{"distribution": "vendor 1.0"}]}, "vendor 1.0"),
        ({"variables": {"TRITON_F32_DEFAULT": "tf32"}}, "TRITON_F32_DEFAULT=tf32"),
    ],
)
def test_what_a_reader_should_know_is_shown(tmp_path, verified, changes, says):
    status, output = verified(sample(tmp_path, **changes).data)
    assert (status, says in output) == (0, True)


def edited(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("environment.json", '"quick"', '"quick", "-p", "mine"', RejectReason.FORBIDDEN_OPTION),
        ("run.json", '"wall_s": 1.5', '"wall_s": null', RejectReason.INCOMPLETE),
        ("records.jsonl", '"seed":0', '"seed":9', RejectReason.MIXED_RUNS),
        ("selected.txt", "case-00001", "case-00009", RejectReason.INCOMPLETE),
    ],
)
def test_what_no_verifier_would_take_is_not_packed(evidence, file, old, new, reason):
    edited(evidence.folder, file, old, new)
    with pytest.raises(Rejected) as refused:
        pack(evidence.folder, evidence.key, [], {})
    assert refused.value.reason is reason


def test_two_waiver_files_of_one_name_are_refused(evidence, tmp_path):
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "waivers.toml", tmp_path / "other")
    with pytest.raises(Rejected) as refused:
        pack(evidence.folder, evidence.key, [tmp_path / "waivers.toml", tmp_path / "other/waivers.toml"], {})
    assert refused.value.reason is RejectReason.MEMBERS


def test_a_private_key_is_its_owners_and_never_overwritten(tmp_path):
    assert call(keygen, tmp_path / "a.pem", tmp_path / "a.pub.pem") == 0
    assert stat.S_IMODE((tmp_path / "a.pem").stat().st_mode) == 0o600
    before = (tmp_path / "a.pem").read_bytes()
    with pytest.raises(CommandError, match="never overwritten"):
        call(keygen, tmp_path / "a.pem", tmp_path / "b.pub.pem")
    assert (tmp_path / "a.pem").read_bytes() == before
    with pytest.raises(CommandError, match="never overwritten"):
        call(keygen, tmp_path / "b.pem", tmp_path / "a.pub.pem")
    assert not (tmp_path / "b.pem").exists(), "half a pair is left"


def test_unusable_keys_are_named(evidence, tmp_path):
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    (tmp_path / "b.zip").write_bytes(evidence.data)
    other = generate_private_key(SECP256R1())
    lock = form.BestAvailableEncryption(b"word")
    private = form.Encoding.PEM, form.PrivateFormat.PKCS8
    (tmp_path / "ec.pem").write_bytes(other.private_bytes(*private, form.NoEncryption()))
    (tmp_path / "locked.pem").write_bytes(other.private_bytes(*private, lock))
    public = other.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "ec.pub.pem").write_bytes(public)
    for name, says in [("ec.pem", "an Ed25519 private"), ("locked.pem", "encrypted"), ("ours.pub.pem", "no private")]:
        with pytest.raises(CommandError, match=says):
            call(bundle, evidence.folder, "--key", tmp_path / name)
    for name, says in [("ec.pub.pem", "an Ed25519 public"), ("ours.pem", "no public"), ("none.pem", "cannot be read")]:
        with pytest.raises(CommandError, match=says):
            call(verify, tmp_path / "b.zip", "--key", tmp_path / name)
    with pytest.raises(CommandError, match=r"none\.zip"):
        call(verify, tmp_path / "none.zip", "--key", tmp_path / "ours.pub.pem")


BLOCKED = """
import sys

def refuse(event, arguments):
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event.startswith(("socket.", "pickle.", "subprocess.")):
        raise SystemExit(f"{{event}} {{arguments}}")

for name in {names}:
    sys.modules[name] = None
import argparse
from conformance.commands import CommandError, {command} as command
parser = argparse.ArgumentParser()
command.configure(parser)
sys.addaudithook(refuse)
try:
    status = command.run(parser.parse_args(sys.argv[1:]))
except CommandError as error:
    print(error)
    status = 2
sys.exit(status)
"""


def blocked(command: str, names: list[str], *words: object) -> subprocess.CompletedProcess[str]:
    """``command`` in a process that cannot import ``names``, and ends where a file is written, a socket used, a process
    started or something unpickled."""
    code = BLOCKED.format(names=names, command=command)
    return subprocess.run(
        [sys.executable, "-B", "-c", code, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )


def test_verifying_needs_no_stack_no_pytest_no_network_and_no_disk(evidence, tmp_path):
    (tmp_path / "b.zip").write_bytes(evidence.data)
    names = ["torch", "triton", "numpy", "pytest"]
    words = (tmp_path / "b.zip", "--key", tmp_path / "ours.pub.pem", "--code-digest", CODE)
    done = blocked("verify", names, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VERIFIED")


def test_the_process_of_these_tests_does_end_where_a_file_is_written(evidence, tmp_path):
    done = blocked("bundle", [], evidence.folder, "--key", tmp_path / "ours.pem")
    assert done.returncode == 1
    assert "open" in done.stderr
    assert "sample.zip" in done.stderr


@pytest.mark.parametrize("library", ["securesystemslib", "cryptography"])
@pytest.mark.parametrize("command", ["keygen", "bundle", "verify"])
def test_without_the_libraries_the_message_says_what_to_install(command, library, tmp_path):
    words = {"keygen": ["a", "b"], "bundle": ["a", "--key", "b"], "verify": ["a", "--key", "b"]}[command]
    done = blocked(command, [library], *words)
    assert done.returncode == 2, done.stderr
    assert f"{command} needs {library}" in done.stdout
    assert "triton-conformance[evidence]" in done.stdout


def test_many_records_are_packed_and_verified_in_seconds(tmp_path, evidence, verified):
    folder = write_run(tmp_path / "large" / "run", (Status.PASS,) * 5000)
    began = time.perf_counter()
    assert verified(pack(folder, evidence.key, [], {}))[0] == 0
    assert time.perf_counter() - began < 30, "a quiet machine needs about a second"


def test_records_of_a_real_run_are_taken(evidence):
    """Records with everything in them that the harness writes or wrote, as far as one line shows it."""
    line = json.loads((evidence.folder / "records.jsonl").read_text().splitlines()[0])
    line |= {
        "diagnosis": "tab\t, \u2028, \U0001f600, \ud800",
        "observed": {"outputs": {"randn": "00" * 32}, "n": 1e300},
    }
    rest = (evidence.folder / "records.jsonl").read_text().splitlines(keepends=True)[1:]
    (evidence.folder / "records.jsonl").write_text(json.dumps(line, separators=(",", ":")) + "\n" + "".join(rest))
    assert evidence.packed(evidence.folder)
