"""A stranger's folder may hold anything instead of a run: every command answers at once, in a line."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance import cli
from conformance.commands import verify
from conformance.gate.evidence import archive
from conformance.records import CaseRecord, Status
from tests.gate.sample_bundles import sample

KINDS = {
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
}


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """A command that waits fails its test."""

    def late(number: int, frame: object) -> None:
        raise AssertionError("the command waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test in a folder of its own: some of the commands write where they are."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, with a key next to it."""
    return sample(tmp_path_factory.mktemp("good")).folder


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit status of a command and its last line."""
    status = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, [*captured.out.splitlines(), *captured.err.splitlines()][-1]


#: Commands that read a run: RUN stands for it, GOOD for a sound one, KEY for a key.
READERS = (
    ("compare", "RUN", "GOOD"),
    ("compare", "GOOD", "RUN"),
    ("report", "RUN"),
    ("report", "GOOD", "--baseline", "RUN"),
    ("show", "case", "--run", "RUN"),
    ("reproduce", "case", "--run", "RUN"),
    ("sweep", "RUN"),
    ("mustpass", "check", "RUN"),
    ("mustpass", "write", "RUN", "--to", "lists"),
    ("bundle", "RUN", "--key", "KEY"),
)


def filled(words: tuple[str, ...], good: Path, run: Path) -> list[object]:
    places = {"RUN": run, "GOOD": good, "KEY": good.parent / "ours.pem", "PUBLIC": good.parent / "ours.pub.pem"}
    return [places.get(word, word) for word in words]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.gz"])
@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_run_whose_records_are_no_file_is_refused(good, tmp_path, capsys, words, name, kind):
    shutil.copytree(good, tmp_path / "strange")
    (tmp_path / "strange" / "records.jsonl").unlink()
    KINDS[kind](tmp_path / "strange" / name)
    status, line = answer(capsys, *filled(words, good, tmp_path / "strange"))
    assert status == 2
    assert "strange" in line


@pytest.mark.parametrize("kind", ["fifo", "device"])
@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_what_is_no_folder_is_no_run(good, tmp_path, capsys, words, kind):
    KINDS[kind](tmp_path / "strange")
    status, line = answer(capsys, *filled(words, good, tmp_path / "strange"))
    assert status == 2
    assert "strange" in line


@pytest.mark.parametrize("name", ["run.json", "environment.json", "selected.txt"])
@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_no_command_waits_for_the_other_files_of_a_run(good, tmp_path, capsys, words, name):
    shutil.copytree(good, tmp_path / "strange")
    (tmp_path / "strange" / name).unlink()
    os.mkfifo(tmp_path / "strange" / name)
    status, _ = answer(capsys, *filled(words, good, tmp_path / "strange"))
    assert status in (0, 1, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "words",
    [
        ("matrix", "RUN"),
        ("compare", "GOOD", "GOOD", "--waivers", "RUN"),
        ("compare", "GOOD", "GOOD", "--mustpass", "LISTS"),
        ("bundle", "GOOD", "--key", "RUN"),
        ("bundle", "GOOD", "--key", "KEY", "--waivers", "RUN"),
        ("verify", "RUN", "--key", "PUBLIC"),
        ("verify", "GOOD/run.json", "--key", "RUN"),
        ("verify", "GOOD/run.json", "--key", "PUBLIC", "--waivers", "RUN"),
    ],
    ids=" ".join,
)
def test_a_file_that_is_none_is_refused(good, tmp_path, capsys, words, kind):
    (tmp_path / "other").mkdir()
    place = tmp_path / "other" / "strange.txt"
    KINDS[kind](place)
    words = tuple(str(good / "run.json") if word == "GOOD/run.json" else word for word in words)
    words = tuple(str(place.parent) if word == "LISTS" else word for word in words)
    status, line = answer(capsys, *filled(words, good, place))
    assert status == 2
    assert "strange.txt" in line


def test_a_damaged_run_is_read_alike(good, tmp_path, capsys):
    """Numbers past any float, a pass without a verdict: no reader takes such a line."""
    lines = (good / "records.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    damages = {"0.25": "1e999", '"details":{': '"details":{"a":1e400,', "{": '{"unread":NaN,'}
    for number, (old, new) in enumerate(damages.items()):
        strange = tmp_path / f"strange{number}"
        shutil.copytree(good, strange)
        damaged = lines[0].replace(old, new, 1)
        assert damaged != lines[0]
        (strange / "records.jsonl").write_text("\n".join([damaged, *lines[1:], ""]))
        assert_refused(capsys, good, strange, first["case"])
    bare = CaseRecord(first["case"], "a", Status.PASS, tier="quick", seed=0, stack=first["stack"])
    strange = tmp_path / "unproven"
    shutil.copytree(good, strange)
    (strange / "records.jsonl").write_text("\n".join([bare.to_line().strip(), *lines[1:], ""]))
    assert_refused(capsys, good, strange, first["case"])


def assert_refused(capsys, good: Path, strange: Path, case: str) -> None:
    """No reader takes the first line of ``strange``, as either side of a comparison."""
    assert answer(capsys, "compare", strange, good)[0] == 2
    assert answer(capsys, "compare", good, strange)[0] == 2
    status, line = answer(capsys, "show", case, "--run", strange)
    assert (status, "no record in" in line) == (2, True)
    assert answer(capsys, "mustpass", "write", strange, "--to", strange / "lists")[0] == 2
    assert answer(capsys, "mustpass", "check", strange, "--mustpass", good.parent / "lists")[0] == 1
    status, line = answer(capsys, "bundle", strange, "--key", good.parent / "ours.pem")
    assert (status, "records.jsonl:1" in line) == (2, True)
    cli.main(["report", str(strange)])
    assert "records.jsonl:1" in (strange / "report.html").read_text()


def test_bad_lines_are_counted_and_the_first_are_shown(good, tmp_path, capsys):
    bad = shutil.copytree(good, tmp_path / "bad")
    with (bad / "records.jsonl").open("a") as file:
        file.write("case-00000\n" * 20_000)
    for words in (("show", "case-00000", "--run", bad), ("compare", bad, bad), ("report", bad)):
        cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        assert len((captured.out + captured.err).splitlines()) < 120
        assert words[0] != "compare" or "20000 problems, the first" in captured.out
        assert words[0] != "show" or "19999 more problems" in captured.err
    assert "19980 more problems are not listed" in (bad / "report.html").read_text()


def _put(old: bytes, new: bytes, count: int = 1):
    return lambda content: content.replace(old, new, count)


#: What may have become of a file of records, and a part of what every reader says.
DAMAGES = {
    "torn": (lambda content: content[:-20], "torn last line"),
    "garbage": (lambda content: b"\xff\0{{{\n" + content, "records.jsonl:1"),
    "deep": (lambda content: b"[" * 200_000 + b"\n" + content, "records.jsonl:1"),
    "twice": (lambda content: content + content.splitlines(True)[0], "recorded more than once"),
    "bom": (lambda content: b"\xef\xbb\xbf" + content, "records.jsonl:1"),
    "bool": (_put(b'"seed":0', b'"seed":true'), "seed: Expected `int | null`, got True"),
    "utf8": (_put(b"randn", b"r\xffndn"), "records.jsonl:1"),
    "long": (lambda content: b'"' + b"x" * (5 << 20) + b'"\n' + content, "bytes, the limit"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_records_is_never_safe(good, tmp_path, capsys, damage):
    change, text = DAMAGES[damage]
    bad = shutil.copytree(good, tmp_path / "bad")
    (bad / "records.jsonl").write_bytes(change((good / "records.jsonl").read_bytes()))
    for words in (("compare", bad, good), ("compare", good, bad), ("bundle", bad, "--key", good.parent / "ours.pem")):
        status = cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        assert status == 2
        assert words[0] == "bundle" or text in captured.out + captured.err
    assert cli.main(["report", str(bad)]) == 0


def test_a_bundle_of_more_than_is_read_is_refused(good, tmp_path, capsys, monkeypatch):
    """A file with a hole, which takes no place on the disk."""
    monkeypatch.setattr(archive, "ARCHIVE_LIMIT", 1000)
    monkeypatch.setattr(verify, "ARCHIVE_LIMIT", 1000)
    with (tmp_path / "big.zip").open("wb") as file:
        file.truncate(10 << 30)
    status = cli.main(["verify", str(tmp_path / "big.zip"), "--key", str(good.parent / "ours.pub.pem")])
    assert status == 1
    assert "the archive has more than 1000 bytes" in capsys.readouterr().out


def test_what_a_link_leads_to_is_not_shown(good, tmp_path, capsys):
    bad = shutil.copytree(good, tmp_path / "bad")
    (tmp_path / "secret").write_text("a secret\n" * 9)
    (bad / "records.jsonl").unlink()
    (bad / "records.jsonl").symlink_to(tmp_path / "secret")
    for words in (
        ("compare", bad, good),
        ("show", "secret", "--run", bad),
        ("report", bad),
        ("mustpass", "check", bad),
    ):
        cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    assert "a secret" not in captured.out + captured.err + (bad / "report.html").read_text()


@pytest.mark.parametrize(
    ("what", "status"),
    [("crlf", 0), ("parts", 0), ("gz", 0), ("gz and another", 0), ("cut gz", 2), ("empty", 2), ("run.json", 2)],
)
def test_a_run_in_another_form(good, tmp_path, capsys, what, status):
    """Other ends of lines, parts of workers that were not merged, compressed records, none, no run.json. Compressed
    records come before plain ones."""
    run = shutil.copytree(good, tmp_path / "run")
    records = run / "records.jsonl"
    if what == "crlf":
        records.write_bytes(records.read_bytes().replace(b"\n", b"\r\n"))
    elif what == "empty":
        records.write_bytes(b"")
    elif what == "run.json":
        (run / "run.json").write_text("{")
    elif what == "parts":
        records.rename(run / "records-gw0.jsonl")
    else:
        packed = gzip.compress(records.read_bytes())
        (run / "records.jsonl.gz").write_bytes(packed[: -9 if what == "cut gz" else None])
        records.write_text("another") if what == "gz and another" else records.unlink()
    assert answer(capsys, "compare", run, good)[0] == answer(capsys, "compare", good, run)[0] == status
    assert what == "parts" or answer(capsys, "bundle", run, "--key", good.parent / "ours.pem")[0] == status


@pytest.mark.parametrize("words", [("matrix", "FILE"), ("compare", "GOOD", "GOOD", "--waivers", "FILE")], ids=" ".join)
def test_deep_nesting_is_an_error_in_a_line(good, tmp_path, capsys, words):
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * 100_000 + "]" * 100_000)
    places = {"FILE": file, "GOOD": good}
    status, line = answer(capsys, *(places.get(word, word) for word in words))
    assert status == 2
    assert "deep.toml" in line
