"""A bundle of a merged run holds if every case is of one shard of its plan, and its lines are those of that shard."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from conformance.commands import verify as verify_command
from conformance.gate.evidence.archive import Rejected, RejectReason, encode, read_archive, write_archive
from conformance.gate.evidence.contents import ENVELOPE_FILE, parse
from conformance.gate.evidence.pack import pack
from conformance.gate.evidence.signatures import seal
from conformance.gate.evidence.statement import EXTENSION, build_statement
from conformance.gate.evidence.verify import Policy, verify, verify_union
from conformance.gate.shards.merge import merge
from conformance.records import Status, read_run
from tests.command_runs import call
from tests.gate.sample_bundles import CODE, key_pair, record
from tests.gate.sample_shards import RECORDS, edit_environment, edit_lines, edit_plan, edit_run, write_shards

DEVICES = {1: "NVIDIA H100", 2: "NVIDIA H100", 3: "NVIDIA H200"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("merged")
    merge(write_shards(base), base / "whole")
    return base


@pytest.fixture(scope="module")
def key(folder):
    return key_pair(folder, "ours")


@pytest.fixture(scope="module")
def bundle(folder, key):
    return pack(folder / "whole", key, (), {})


def policy(key, **changes):
    return replace(Policy(key.public_key, (CODE,)), **changes)


def test_the_statement_names_every_shard_with_its_digest(folder, key, bundle):
    statement = verify(bundle, policy(key)).statement["predicate"][EXTENSION]
    own = [read_run(folder / f"shard-{number}").shard for number in (1, 2, 3)]
    assert statement["shards"] == [
        {
            "number": one.number,
            "run": f"shard-{one.number}",
            "cases": one.plan.cases[one.number - 1],
            "records_sha256": one.records,
        }
        for one in own
    ]
    assert statement["plan_sha256"] == own[0].digest
    assert statement["mixed_devices"] is False
    assert statement["partial"] == []
    assert statement["selected"] == 11


def test_verify_says_the_shards(folder, key, bundle, tmp_path, capsys):
    (tmp_path / "b.zip").write_bytes(bundle)
    assert call(verify_command, tmp_path / "b.zip", "--key", folder / "ours.pub.pem", "--code-digest", CODE) == 0
    digest = read_run(folder / "whole").merged.digest
    assert re.search(rf"^shards +3 shards, all of the plan {digest}: shard-1, 4 cases", capsys.readouterr().out, re.M)


def test_a_bundle_of_one_shard_is_partial(folder, key):
    data = pack(folder / "shard-2", key, (), {})
    with pytest.raises(Rejected, match=r"only some cases were run .--shard 2/3."):
        verify(data, policy(key))
    statement = verify(data, policy(key, allow_partial=True)).statement["predicate"][EXTENSION]
    assert statement["shard"] == "2/3"
    assert statement["plan_sha256"] == read_run(folder / "shard-2").shard.digest


def test_the_statement_and_verify_name_the_parts_of_a_run_that_went_on(folder, key, tmp_path, capsys):
    shutil.copytree(folder / "shard-2", tmp_path / "shard-2")
    run = json.loads((tmp_path / "shard-2" / "run.json").read_text())
    part = {"began": "2026-01-01", "next_began": "2026-01-02", "records": 3, "unfinished": ["a"], "unusable": 0}
    (tmp_path / "shard-2" / "run.json").write_text(json.dumps({**run, "parts": [part]}))
    data = pack(tmp_path / "shard-2", key, (), {})
    statement = verify(data, policy(key, allow_partial=True)).statement["predicate"][EXTENSION]
    assert statement["parts"] == [{"began": "2026-01-01", "records": 3, "under_way": ["a"], "unusable": 0}]
    (tmp_path / "b.zip").write_bytes(data)
    words = ("--key", folder / "ours.pub.pem", "--code-digest", CODE, "--allow-partial")
    assert call(verify_command, tmp_path / "b.zip", *words) == 0
    said = capsys.readouterr().out
    assert re.search(r"^parts +2: begun 2026-01-01, 3 records kept, 1 under way; then the last one$", said, re.M)


def test_shards_of_several_devices(tmp_path):
    merge(write_shards(tmp_path, devices=DEVICES), tmp_path / "whole", mixed_devices=True)
    key = key_pair(tmp_path, "ours")
    verified = verify(pack(tmp_path / "whole", key, (), {}), policy(key))
    assert verified.statement["predicate"][EXTENSION]["mixed_devices"] is True


def tampered(bundle: bytes, key: Any, members: Mapping[str, bytes]) -> bytes:
    """The bundle with other ``members``, whose digests are signed."""
    honest = {name: content for name, content in read_archive(bundle).items() if name != ENVELOPE_FILE}
    statement = build_statement({**honest, **members}, parse(honest))
    return write_archive({**honest, **members, ENVELOPE_FILE: seal(encode(statement), key)})


def lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def with_json(name, change):
    def changed(members):
        data = json.loads(members[name])
        change(data)
        return {name: json.dumps(data).encode()}

    return changed


def exchanged_cases(members):
    """The first case of the first shard and of the second change places."""
    listed = lines(members["selected.txt"])
    listed[0], listed[4] = listed[4], listed[0]
    return {"selected.txt": b"".join(listed)}


def other_status(members):
    return {"records.jsonl": members["records.jsonl"].replace(b'"text":"bounded"', b'"text":"exact"', 1)}


def exchanged_shards(data):
    data["shards"][0], data["shards"][1] = data["shards"][1], data["shards"][0]


def other_seed(data):
    data["merged"]["plan"]["seed"] = 7


TAMPERINGS = {
    "a shard left out": (with_json("shards.json", lambda data: data["shards"].pop()), "missing: 3/3"),
    "a shard twice": (
        with_json("shards.json", lambda data: data["shards"].append(data["shards"][0])),
        "the shard 1/3 comes twice",
    ),
    "no shard": (with_json("shards.json", lambda data: data["shards"].clear()), "shards.json has no shard"),
    "shards in another order": (with_json("shards.json", exchanged_shards), "the cases of the shard 1 in its place"),
    "cases of other shards": (exchanged_cases, "does not have the cases of the shard 1 in its place"),
    "a record that was changed": (other_status, "does not have the lines that the run of the shard 1 wrote"),
    "a shard's digest that was changed": (
        with_json("shards.json", lambda data: data["shards"][1]["run"]["shard"].update(records="0" * 64)),
        "does not have the lines that the run of the shard 2 wrote",
    ),
    "a fault left out": (
        with_json("run.json", lambda data: data.update(exit_status=0)),
        "run.json does not follow from the runs in shards.json",
    ),
    "a shorter run": (with_json("run.json", lambda data: data.update(wall_s=0.5)), "run.json does not follow"),
    "another plan": (with_json("run.json", other_seed), "its plan has another digest than the one that it names"),
    "other judging code of a shard": (
        with_json("shards.json", lambda data: data["shards"][2]["environment"]["code"].update(sha256="0" * 64)),
        "it was judged by other code than its plan says",
    ),
    "other options": (
        with_json("environment.json", lambda data: data.update(options=["-v"])),
        "environment.json does not follow from those in shards.json",
    ),
    "a shard with other cases chosen": (
        with_json("shards.json", lambda data: data["shards"][1]["environment"]["options"].extend(["-k", "case"])),
        "its cases were chosen by -k case",
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_union_that_is_none_is_refused(bundle, key, name):
    change, sentence = TAMPERINGS[name]
    data = tampered(bundle, key, change(read_archive(bundle)))
    with pytest.raises(Rejected) as refused:
        verify(data, policy(key))
    assert refused.value.reason is RejectReason.SHARDS, str(refused.value)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_json("shards.json", lambda data: data.update(schema=2)), RejectReason.UNREADABLE),
        (with_json("shards.json", lambda data: data.update(shards=[1])), RejectReason.UNREADABLE),
        (with_json("shards.json", lambda data: data["shards"][0].pop("environment")), RejectReason.UNREADABLE),
        (with_json("shards.json", lambda data: data["shards"][0]["run"].pop("id")), RejectReason.UNREADABLE),
        (
            with_json(
                "shards.json",
                lambda data: data["shards"][1]["environment"]["options"].append("--calibration=measured.json"),
            ),
            RejectReason.FORBIDDEN_OPTION,
        ),
    ],
)
def test_shards_that_cannot_be_used_are_refused(bundle, key, change, reason):
    data = tampered(bundle, key, change(read_archive(bundle)))
    with pytest.raises(Rejected) as refused:
        verify(data, policy(key))
    assert refused.value.reason is reason, str(refused.value)


def test_a_merged_run_without_its_shards_is_refused(bundle, key):
    honest = {name: content for name, content in read_archive(bundle).items() if name != ENVELOPE_FILE}
    statement = build_statement({k: v for k, v in honest.items() if k != "shards.json"}, parse(honest))
    members = {name: content for name, content in honest.items() if name != "shards.json"}
    with pytest.raises(Rejected, match=r"run.json is of a run that was merged, and shards.json is missing"):
        verify(write_archive({**members, ENVELOPE_FILE: seal(encode(statement), key)}), policy(key))


def test_a_merged_run_that_is_too_large_is_packed_by_its_shards(folder, key, monkeypatch):
    monkeypatch.setattr("conformance.gate.evidence.pack.CONTENT_LIMIT", 5000)
    with pytest.raises(Rejected, match="the most that a bundle holds; bundle each of its shards"):
        pack(folder / "whole", key, (), {})


# The bundles of all shards, each by itself: for runs that are larger than a bundle


@pytest.fixture(scope="module")
def three(folder, key):
    return [pack(folder / f"shard-{number}", key, (), {}) for number in (1, 2, 3)]


def test_the_bundles_of_all_shards_show_what_the_merged_run_shows(folder, key, bundle, three):
    union = verify_union([three[2], *three[:2]], policy(key))
    whole = verify(bundle, policy(key))
    predicate = whole.statement["predicate"]
    assert union.result == predicate[EXTENSION]["result"] == "FAILED"
    assert union.statuses == predicate[EXTENSION]["statuses"]
    assert union.proven.by_name() == predicate[EXTENSION]["proven_by"]
    assert union.run == replace(whole.contents.run, id="")


def test_verify_takes_the_bundles_of_all_shards(folder, three, tmp_path, capsys):
    for number, data in enumerate(three, 1):
        (tmp_path / f"{number}.zip").write_bytes(data)
    files = [tmp_path / f"{number}.zip" for number in (1, 2, 3)]
    words = ["--key", folder / "ours.pub.pem", "--code-digest", CODE]
    assert call(verify_command, *files, *words) == 0
    said = capsys.readouterr().out
    assert said.startswith("VERIFIED  3 bundles\nresult     FAILED\n")
    assert "11 selected: 1 fail, 1 not-applicable, 9 pass" in said
    assert call(verify_command, *files[:2], *words) == 1
    assert "shards: bundle 1: the other shards of its run are missing: 3/3" in capsys.readouterr().out


def passing_shards(base):
    """Shards of which the second has no case that passed."""
    statuses = {1: Status.NOT_APPLICABLE, 4: Status.NOT_APPLICABLE}
    return write_shards(base, [record(number, statuses.get(number, Status.PASS)) for number in range(6)])


def test_a_shard_without_a_case_that_passed_does_not_spoil_the_result(tmp_path):
    key = key_pair(tmp_path, "ours")
    bundles = [pack(folder, key, (), {}) for folder in passing_shards(tmp_path)]
    assert verify_union(bundles, policy(key)).result == "PASSED"


@pytest.mark.parametrize(
    ("choose", "sentence"),
    [
        (lambda three, whole: [three[0], three[1], three[1]], "bundle 3: the shard 2/3 comes twice"),
        (lambda three, whole: three[:2], "bundle 1: the other shards of its run are missing: 3/3"),
        (lambda three, whole: [*three[:2], whole], "bundle 3: this is the run of no single shard: verify it alone"),
    ],
)
def test_bundles_that_are_not_all_shards_are_refused(key, bundle, three, choose, sentence):
    with pytest.raises(Rejected) as refused:
        verify_union(choose(three, bundle), policy(key))
    assert refused.value.reason is RejectReason.SHARDS
    assert str(refused.value) == sentence or sentence in str(refused.value)


def test_bundles_of_two_plans_are_refused(folder, key, three, tmp_path):
    write_shards(tmp_path, seed=1, records=[replace(one, seed=1) for one in RECORDS])
    other = pack(tmp_path / "shard-3", key, (), {})
    with pytest.raises(Rejected, match=r"bundle 3: its plan differs from the first shard's in seed: 1, and 0 there"):
        verify_union([*three[:2], other], policy(key))


def test_a_narrowed_selection_is_partial(tmp_path):
    key = key_pair(tmp_path, "ours")
    folders = write_shards(tmp_path)
    for number, folder in enumerate(folders, 1):
        edit_environment(folder, options=["-q", "--tier", "quick", "-k", "case", f"--shard={number}/3"])
    bundles = [pack(folder, key, (), {}) for folder in folders]
    with pytest.raises(Rejected, match=r"bundle 1: only some cases were run \(-k case\)"):
        verify_union(bundles, policy(key))
    assert verify_union(bundles, policy(key, allow_partial=True)).statuses["pass"] == 9


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda shard: edit_lines(shard, lambda lines: lines[1:]), "recorded"),
        (
            lambda shard: edit_lines(shard, lambda lines: [line.replace(b"bounded", b"exact") for line in lines]),
            "records.jsonl does not have the lines that the run of the shard 2/3 wrote",
        ),
        (
            lambda shard: edit_plan(shard, case_lists=("0" * 64,) * 3),
            "selected.txt does not have the cases of the shard",
        ),
        (
            lambda shard: edit_run(shard, lambda info: replace(info, shard=replace(info.shard, number=7))),
            "run.json is of the shard 7/3, which there is not",
        ),
    ],
)
def test_a_shard_with_other_cases_than_its_own_is_refused(tmp_path, spoil, sentence):
    shard = write_shards(tmp_path)[1]
    spoil(shard)
    with pytest.raises(Rejected, match=sentence):
        pack(shard, key_pair(tmp_path, "ours"), (), {})
