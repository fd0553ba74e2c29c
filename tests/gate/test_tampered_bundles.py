"""Each kind of change to a bundle is refused for its own reason."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from securesystemslib.dsse import Envelope

from conformance.gate.evidence.archive import (
    CONTENT_LIMIT,
    MEMBER_LIMIT,
    Rejected,
    RejectReason,
    encode,
    read_archive,
    write_archive,
)
from conformance.gate.evidence.contents import ENVELOPE_FILE, LINE_LIMIT, parse
from conformance.gate.evidence.pack import pack
from conformance.gate.evidence.signatures import PAYLOAD_TYPE, PrivateKey, seal
from conformance.gate.evidence.statement import EXTENSION, build_statement
from conformance.gate.evidence.verify import verify
from conformance.gate.mustpass import mustpass_lists as mustpass
from conformance.records import Status
from tests.gate.sample_bundles import CODE, Sample, sample, write_run

Tampering = Callable[[Sample], bytes]  # makes the changed bundle
RECORDS, LIST = "records.jsonl", "mustpass/baseline.txt"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return sample(tmp_path_factory.mktemp("evidence"))


# Without the key: the archive's members are changed, or how they are packed.


def without(*left_out: str) -> Callable[[Sample], dict[str, bytes]]:
    return lambda b: {name: content for name, content in read_archive(b.data).items() if name not in left_out}


unsigned = without(ENVELOPE_FILE)


def with_members(members: Mapping[str, bytes]) -> Tampering:
    """The bundle with ``members`` added or in place of its own."""
    return lambda b: write_archive({**read_archive(b.data), **members})


def changed(member: str, change: Callable[[bytes], bytes]) -> Tampering:
    return lambda b: with_members({member: change(read_archive(b.data)[member])})(b)


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda content: b"".join(change(content.splitlines(keepends=True)))


def with_envelope(change: Callable[[dict[str, Any]], object]) -> Tampering:
    def changed_envelope(content: bytes) -> bytes:
        envelope = json.loads(content)
        change(envelope)
        return encode(envelope)

    return changed(ENVELOPE_FILE, changed_envelope)


def edited_payload(envelope: dict[str, Any]) -> None:
    payload = base64.b64decode(envelope["payload"]).replace(b'"result":"FAILED"', b'"result":"PASSED"')
    envelope["payload"] = base64.b64encode(payload).decode()


def payload_of(bundle: Sample) -> bytes:
    return base64.b64decode(json.loads(read_archive(bundle.data)[ENVELOPE_FILE])["payload"])


def signed_by_another(bundle: Sample) -> bytes:
    return with_members({ENVELOPE_FILE: seal(payload_of(bundle), bundle.other_key)})(bundle)


def signed_by_another_in_our_name(bundle: Sample) -> bytes:
    theirs, ours = bundle.other_key.public_key.keyid.encode(), bundle.key.public_key.keyid.encode()
    envelope = seal(payload_of(bundle), bundle.other_key).replace(theirs, ours)
    return with_members({ENVELOPE_FILE: envelope})(bundle)


def other_payload_type(bundle: Sample) -> bytes:
    envelope = Envelope(payload_of(bundle), "application/json", {})
    envelope.sign(bundle.key)
    return with_members({ENVELOPE_FILE: encode(envelope.to_dict())})(bundle)


def zipped(method: int = zipfile.ZIP_DEFLATED, attributes: int = 0o100644 << 16, before: bytes = b"") -> Tampering:
    """The members as another program may zip them, with ``before`` in front."""

    def tampered(bundle: Sample) -> bytes:
        target = io.BytesIO(before)
        with zipfile.ZipFile(target, "a") as archive:
            for name, content in read_archive(bundle.data).items():
                info = zipfile.ZipInfo(name)
                info.external_attr = attributes
                archive.writestr(info, content, method)
        return target.getvalue()

    return tampered


def renamed(name: str) -> Tampering:
    """A member called ``name`` is added, whatever zip programs would write."""
    stand_in = "n" * len(name)
    return lambda b: with_members({stand_in: b"more\n"})(b).replace(stand_in.encode(), name.encode())


def patched(place: int, replacement: bytes) -> Tampering:
    """The archive with other bytes at a ``place`` of the first entry in its directory."""

    def tampered(bundle: Sample) -> bytes:
        at = bundle.data.index(b"PK\x01\x02") + place
        return bundle.data[:at] + replacement + bundle.data[at + len(replacement) :]

    return tampered


def of_many_members(bundle: Sample) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number in range(MEMBER_LIMIT + 1):
            archive.writestr(f"z{number}", b"")
    return target.getvalue()


# With the key: the signer himself is not honest, or careless.


def signed(
    members: Mapping[str, bytes], key: PrivateKey, change: Callable[[dict[str, Any]], object] = lambda predicate: None
) -> bytes:
    statement = build_statement(members, parse(members))
    change(statement["predicate"])
    return write_archive({**members, ENVELOPE_FILE: seal(encode(statement), key)})


def signed_with(members: Mapping[str, bytes]) -> Tampering:
    return lambda b: signed({**unsigned(b), **members}, b.key)


def claiming(**claims: object) -> Tampering:
    return lambda b: signed(unsigned(b), b.key, lambda predicate: predicate.update(claims))


def claiming_in_extension(**claims: object) -> Tampering:
    return lambda b: signed(unsigned(b), b.key, lambda predicate: predicate[EXTENSION].update(claims))


def resigned(member: str, change: Callable[[bytes], bytes]) -> Tampering:
    """A member is changed and its new digest signed; the rest of the statement stays what it was."""

    def tampered(bundle: Sample) -> bytes:
        honest = unsigned(bundle)
        members = {**honest, member: change(honest[member])}
        statement = build_statement(members, parse(honest))
        return write_archive({**members, ENVELOPE_FILE: seal(encode(statement), bundle.key)})

    return tampered


def resigned_with(member: str, content: bytes) -> Tampering:
    """A member is added, and its digest signed."""

    def tampered(bundle: Sample) -> bytes:
        honest = unsigned(bundle)
        members = {**honest, member: content}
        return write_archive(
            {**members, ENVELOPE_FILE: seal(encode(build_statement(members, parse(honest))), bundle.key)}
        )

    return tampered


def replaced(member: str, old: bytes, new: bytes) -> Tampering:
    """The first ``old`` in a member is replaced, and its new digest signed."""
    return resigned(member, lambda content: content.replace(old, new, 1))


def signed_text(payload: Callable[[bytes], bytes]) -> Tampering:
    return lambda b: with_members({ENVELOPE_FILE: seal(payload(payload_of(b)), b.key)})(b)


def run_with(**changes: Any) -> Tampering:
    """The bundle of a run whose environment was another."""

    def tampered(bundle: Sample) -> bytes:
        environment = {**json.loads(unsigned(bundle)["environment.json"]), **changes}
        return signed_with({"environment.json": encode(environment)})(bundle)

    return tampered


def with_option(*words: str) -> Tampering:
    return run_with(options=["-q", "--tier", "quick", *words])


def with_words(*words: str) -> Tampering:
    return resigned("environment.json", lambda content: json.dumps({**json.loads(content), "options": words}).encode())


def list_with(change: Callable[[mustpass.MustpassList], dict[str, Any]]) -> Tampering:
    """The mustpass list with other fields, as if it had been written so, before everything is signed again."""

    def tampered(bundle: Sample) -> bytes:
        honest = mustpass.read_list(bundle.files["mustpass"])
        text = mustpass.written(replace(honest, **change(honest)))
        return signed_with({LIST: text.encode()})(bundle)

    return tampered


def list_cut_short(bundle: Sample) -> bytes:
    return signed_with({LIST: bundle.files["mustpass"].read_bytes().rsplit(b"\n", 2)[0] + b"\n"})(bundle)


def owing_the_device(owed: mustpass.MustpassList) -> dict[str, Any]:
    """A case that passed without a device owes one."""
    ways = {case: "pass:device" if way.startswith("pass") else way for case, way in owed.outcomes.items()}
    return {"outcomes": ways}


def smaller_run(bundle: Sample) -> bytes:
    """A run of fewer cases with a list that owes no more."""
    folder = bundle.folder.parent / "smaller"
    folder.mkdir()
    run = write_run(folder / "run", (Status.PASS,))
    return pack(run, bundle.key, [bundle.files["waivers"]], {"baseline.txt": folder / "lists" / "baseline.txt"})


def excused_by_another(bundle: Sample) -> bytes:
    """A failure that becomes one that is expected, by the entry of a kernel that the case is not about."""
    entry = {"id": "theirs", "cases": "*[theirs-*", "stack": {"triton": ">=3"}, "seen": "bounded", "owner": "them"}
    entry |= {"upstream": "https://example.org/1", "expires": "2099-01-01"}
    honest = unsigned(bundle)
    run = {**json.loads(honest["run.json"]), "declared": {"theirs": {"by": "them", "expected_failures": [entry]}}}
    reason = b'"status":"expected-fail","reason":{"code":"known-defect","subject":"theirs","detail":""}'
    members = {
        **honest,
        "run.json": encode(run),
        RECORDS: honest[RECORDS].replace(FAIL_TO_PASS[0] + b',"reason":null', reason),
    }
    statement = build_statement(members, parse(honest))
    return write_archive({**members, ENVELOPE_FILE: seal(encode(statement), bundle.key)})


FAIL_TO_PASS = (b'"status":"fail"', b'"status":"pass"')
#: For each reason, what has to be refused for it: a name, and what makes the bundle so.
TAMPERINGS: dict[RejectReason, dict[str, Tampering]] = {
    RejectReason.ARCHIVE: {
        "cut short": lambda b: b.data[: len(b.data) // 2],
        "another file": lambda b: b"\x7fELF" * 99,
        "empty": lambda b: b"",
        "trailing data": lambda b: b.data + b"more",
        "a comment": lambda b: b.data[:-2] + b"\x04\x00note",
        "data after the directory": lambda b: b.data[:-22] + b"hidden" + b.data[-22:],
        "prepended data": lambda b: b"#!/bin/sh\n" + b.data,
        "prepended data with offsets mended": zipped(before=b"#!/bin/sh\nexit\n"),
        "a member twice": renamed(RECORDS),
        "a path upwards": renamed("../../escape"),
        "an absolute path": renamed("/etc/passwd"),
        "a backslash": renamed("waivers\\x"),
        "a NUL in a name": renamed("notes\0.txt"),
        "a control character in a name": renamed("run\x1b[2J"),
        "a symbolic link": zipped(attributes=0o120777 << 16),
        "another compression": zipped(zipfile.ZIP_LZMA),
        "encrypted": patched(8, b"\x01\x00"),
        "more behind the size that is claimed": patched(24, struct.pack("<L", 1)),
        "a header with another name": lambda b: b.data.replace(RECORDS.encode(), RECORDS.upper().encode(), 1),
        "a checksum edited": patched(16, b"crc!"),
    },
    RejectReason.TOO_LARGE: {
        "a size past the limit": patched(24, struct.pack("<L", CONTENT_LIMIT + 1)),
        "too many members": of_many_members,
        "a huge line": resigned(RECORDS, lambda c: c + b'{"x":"' + b"x" * LINE_LIMIT + b'"}\n'),
    },
    RejectReason.ENVELOPE: {
        "the signature stripped": with_envelope(lambda e: e["signatures"].clear()),
        "a second signature": with_envelope(lambda e: e["signatures"].append({**e["signatures"][0], "keyid": "b"})),
        "the payload's type edited": with_envelope(lambda e: e.update(payloadType="text/plain")),
        "signed as another type": other_payload_type,
        "a field of its own": with_envelope(lambda e: e.update(note="trust me")),
        "no envelope's fields": with_envelope(lambda e: e.clear()),
    },
    RejectReason.OTHER_KEY: {"signed by another key": signed_by_another},
    RejectReason.BAD_SIGNATURE: {
        "the statement edited": with_envelope(edited_payload),
        "signed by another key in our name": signed_by_another_in_our_name,
    },
    RejectReason.JSON: {
        "a key of the envelope twice": changed(ENVELOPE_FILE, lambda c: c[:-1] + b',"payload":""}'),
        "the statement is no JSON": signed_text(lambda text: text[:-1]),
        "a nest of lists": signed_text(lambda text: b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
        "a name twice in a record": replaced(RECORDS, FAIL_TO_PASS[0], b",".join(FAIL_TO_PASS)),
        "NaN in a record": replaced(RECORDS, b"0.25", b"NaN"),
    },
    RejectReason.MEMBERS: {
        "a status edited": changed(RECORDS, lambda c: c.replace(*FAIL_TO_PASS)),
        "a record dropped": changed(RECORDS, lines(lambda records: records[1:])),
        "the driver edited": changed("environment.json", lambda c: c.replace(b"H200", b"H100")),
        "a member added": with_members({"waivers/more.toml": b"more\n"}),
        "a member removed": lambda b: write_archive(without("summary.md")(b)),
        "waivers swapped": with_members({"waivers/waivers.toml": b"# all is waived\n"}),
        "no envelope": lambda b: write_archive(unsigned(b)),
        "a member that no bundle has": signed_with({"run.sh": b""}),
    },
    RejectReason.STATEMENT: {
        "PASSED claimed over a failure": claiming(result="PASSED"),
        "a failing test left out": claiming(failedTests=[]),
        "counts made up": claiming_in_extension(statuses={"pass": 4}),
        "another tier claimed": claiming_in_extension(tier="full"),
        "other options claimed": claiming_in_extension(options=[]),
        "a field of its own": claiming(note="trust me"),
        "another predicate": signed_text(lambda text: text.replace(b"test-result/v0.1", b"release/v0.1")),
        "the statement spelt otherwise": signed_text(lambda text: text + b" "),
    },
    RejectReason.UNREADABLE: {
        "a status edited and signed": replaced(RECORDS, *FAIL_TO_PASS),
        "an unknown status": replaced(RECORDS, b'"fail"', b'"fine"'),
        "a record cut short": resigned(RECORDS, lambda c: c[:-1]),
        "an environment without its options": replaced("environment.json", b'"options"', b'"opinions"'),
        "an environment without the digests of its suites": replaced("environment.json", b'"suites"', b'"sweets"'),
        "a run without a tier": replaced("run.json", b'"tier"', b'"tear"'),
    },
    RejectReason.MIXED_RUNS: {
        "a record of another seed": replaced(RECORDS, b'"seed":0', b'"seed":1'),
        "a record of another stack": replaced(RECORDS, b"3.7.1", b"3.6.0"),
        "a run of another stack": replaced("run.json", b"3.7.1", b"3.6.0"),
        "an environment of another run": replaced("environment.json", b'"run": "sample"', b'"run": "theirs"'),
        "options of another tier": with_words("--tier", "full"),
        "options of another seed": with_words("--seed=17"),
    },
    RejectReason.INCOMPLETE: {
        "a record dropped and signed": resigned(RECORDS, lines(lambda records: records[1:])),
        "a record doubled and signed": resigned(RECORDS, lines(lambda records: records + records[:1])),
        "a record that was not selected": resigned("selected.txt", lines(lambda records: records[1:])),
        "a run that did not end": replaced("run.json", b"1.5", b"null"),
    },
    # More of them, of a run that was merged, are in test_merged_bundles.py.
    RejectReason.SHARDS: {"shards of a run that was not merged": resigned_with("shards.json", b"{}")},
    RejectReason.OWED_CASES: {
        "a case that no list owes": list_with(lambda owed: {"outcomes": dict(list(owed.outcomes.items())[1:])}),
        "a case that is owed and not there": list_with(
            lambda owed: {"outcomes": {**owed.outcomes, "test_a.py::test_b[another]": "pass"}}
        ),
        "a case that shows less than it owes": list_with(owing_the_device),
        "a list of another tier": list_with(lambda owed: {"tier": "full"}),
        "a line of a list cut out": list_cut_short,
        "a list that is none": signed_with({LIST: b"\xff"}),
    },
    RejectReason.NOT_EXCUSED: {"a failure that another kernel's entry excuses": excused_by_another},
    RejectReason.FORBIDDEN_OPTION: {
        "an unlisted option": with_option("-p", "my_plugin"),
        "kernels overridden": run_with(variables={"TRITON_KERNEL_OVERRIDE": "1"}),
    },
    RejectReason.PARTIAL: {"a filter": with_option("-k", "mm")},
    RejectReason.OTHER_CODE: {
        "judged by other code": run_with(code={"sha256": "0" * 64, "suites": []}),
        "judged by suites of another package": run_with(code={"sha256": CODE, "suites": ["1" * 64]}),
    },
    RejectReason.OTHER_FILE: {
        "a smaller run with a smaller list": smaller_run,
        "other waivers, signed": signed_with({"waivers/waivers.toml": b"# all is waived\n"}),
        "no list, signed": lambda b: signed(without(ENVELOPE_FILE, LIST)(b), b.key),
    },
}


def test_an_untouched_bundle_verifies(bundle):
    verified = verify(bundle.data, bundle.policy)
    assert verified.statement["predicate"]["result"] == "FAILED"
    assert len(verified.contents.records) == 4


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("reason", "name"), [(reason, name) for reason, group in TAMPERINGS.items() for name in group])
def test_tampering_is_refused_with_its_reason(bundle, reason, name):
    data = TAMPERINGS[reason][name](bundle)
    assert data != bundle.data
    with pytest.raises(Rejected) as refused:
        verify(data, bundle.policy)
    assert refused.value.reason is reason, str(refused.value)
    assert str(refused.value)


def test_every_reason_has_a_tampering():
    assert set(TAMPERINGS) == set(RejectReason)


def test_no_flipped_bit_changes_what_is_read(bundle):
    """The last bits of a deflated stream mean nothing: where such a one flips, the same is read."""
    verified = verify(bundle.data, bundle.policy)
    for place in {*range(0, len(bundle.data), 7), *range(len(bundle.data) - 700, len(bundle.data)), *range(60)}:
        data = bytearray(bundle.data)
        data[place] ^= 1 << place % 8
        try:
            assert verify(bytes(data), bundle.policy) == verified
        except Rejected:
            continue


def test_no_shorter_bundle_verifies(bundle):
    for length in range(0, len(bundle.data), 41):
        with pytest.raises(Rejected):
            verify(bundle.data[:length], bundle.policy)


def test_a_filtered_run_verifies_where_partial_runs_are_allowed(bundle):
    verified = verify(with_option("-k", "mm")(bundle), replace(bundle.policy, allow_partial=True))
    assert verified.statement["predicate"][EXTENSION]["partial"] == ["-k mm"]


def test_named_code_is_accepted(bundle):
    theirs = run_with(code={"sha256": "0" * 64, "suites": []})(bundle)
    verify(theirs, replace(bundle.policy, code_digests=("1" * 64, "0" * 64)))


def test_a_passing_run_is_stated_as_passed(tmp_path):
    statuses = (Status.PASS, Status.NOT_APPLICABLE)
    signer = sample(tmp_path)
    data = signer.packed(write_run(tmp_path / "passing", statuses))
    assert verify(data, signer.policy).statement["predicate"]["result"] == "PASSED"


def test_the_payload_type_is_that_of_in_toto():
    assert PAYLOAD_TYPE == "application/vnd.in-toto+json"
