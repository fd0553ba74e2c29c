"""A bundle that was changed in any way is refused, each time for the reason that it must be refused for."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope

from conformance.gate.evidence.archive import _Entry, read_archive, write_archive
from conformance.gate.evidence.contents import ENVELOPE_FILE, parse
from conformance.gate.evidence.pack import pack
from conformance.gate.evidence.rejection import Rejected, RejectReason
from conformance.gate.evidence.signing import PAYLOAD_TYPE, PrivateKey, seal
from conformance.gate.evidence.statement import EXTENSION, build_statement
from conformance.gate.evidence.strict_json import encode
from conformance.gate.evidence.verify import verify
from conformance.gate.mustpass import mustpass_lists as mustpass
from conformance.records import Status
from tests.gate.sample_bundles import CODE, Sample, sample, write_run

TIME = (1980, 1, 1, 0, 0, 0)
FILE = 0o100644 << 16
RECORDS, FIRST = "records.jsonl", ENVELOPE_FILE


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return sample(tmp_path_factory.mktemp("evidence"))


# Without the key: the archive's members are changed, or how they are packed.


def changed(bundle: Sample, **members: Callable[[bytes], bytes]) -> bytes:
    """The bundle with members changed: keywords are names with ``_`` for ``.``."""
    contents = read_archive(bundle.data)
    for keyword, change in members.items():
        name = keyword.replace("_", ".")
        contents[name] = change(contents[name])
    return write_archive(contents)


def unsigned(bundle: Sample) -> dict[str, bytes]:
    """The members without the signed statement."""
    return {name: content for name, content in read_archive(bundle.data).items() if name != ENVELOPE_FILE}


def with_member(bundle: Sample, name: str, content: bytes = b"more\n") -> bytes:
    return write_archive({**read_archive(bundle.data), name: content})


def without(bundle: Sample, name: str) -> bytes:
    return write_archive({key: value for key, value in read_archive(bundle.data).items() if key != name})


def swapped(bundle: Sample, one: str, other: str) -> bytes:
    members = read_archive(bundle.data)
    members[one], members[other] = members[other], members[one]
    return write_archive(members)


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda content: b"".join(change(content.splitlines(keepends=True)))


def of_another_run(bundle: Sample) -> bytes:
    return changed(bundle, records_jsonl=lambda records: records.replace(b"0.25", b"0.75"))


def with_envelope(bundle: Sample, change: Callable[[dict[str, Any]], None]) -> bytes:
    members = read_archive(bundle.data)
    envelope = json.loads(members[ENVELOPE_FILE])
    change(envelope)
    return write_archive({**members, ENVELOPE_FILE: encode(envelope)})


def edited_payload(envelope: dict[str, Any]) -> None:
    payload = base64.b64decode(envelope["payload"]).replace(b'"result":"FAILED"', b'"result":"PASSED"')
    envelope["payload"] = base64.b64encode(payload).decode()


def respelt_payload(envelope: dict[str, Any]) -> None:
    envelope["payload"] = envelope["payload"].replace("/", "_").replace("+", "-")
    envelope["note"] = "a field of its own"


def signed_by_another(bundle: Sample) -> bytes:
    members = read_archive(bundle.data)
    payload = base64.b64decode(json.loads(members[ENVELOPE_FILE])["payload"])
    return write_archive({**members, ENVELOPE_FILE: seal(payload, bundle.other_key)})


def signed_by_another_in_our_name(bundle: Sample) -> bytes:
    members = read_archive(signed_by_another(bundle))
    theirs, ours = bundle.other_key.public_key.keyid.encode(), bundle.key.public_key.keyid.encode()
    return write_archive({**members, ENVELOPE_FILE: members[ENVELOPE_FILE].replace(theirs, ours)})


def signed_twice(bundle: Sample) -> bytes:
    def second(envelope: dict[str, Any]) -> None:
        envelope["signatures"].append({"keyid": "another", "sig": envelope["signatures"][0]["sig"]})

    return with_envelope(bundle, second)


def other_payload_type(bundle: Sample) -> bytes:
    members = read_archive(bundle.data)
    envelope = Envelope(base64.b64decode(json.loads(members[ENVELOPE_FILE])["payload"]), "application/json", {})
    envelope.sign(bundle.key)
    return write_archive({**members, ENVELOPE_FILE: encode(envelope.to_dict())})


def zipped(
    bundle: Sample,
    change: Callable[[zipfile.ZipInfo], None] = lambda info: None,
    method: int = zipfile.ZIP_DEFLATED,
    extra: tuple[tuple[str, bytes], ...] = (),
) -> bytes:
    """The members as another program may zip them: ``change`` is made to the first, ``extra`` are added."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in [*sorted(read_archive(bundle.data).items()), *extra]:
            info = zipfile.ZipInfo(name, TIME)
            info.create_system, info.external_attr = 3, FILE
            if name == FIRST or extra:
                change(info)
            archive.writestr(info, content, method)
    return target.getvalue()


def renamed(name: str) -> Callable[[Sample], bytes]:
    """An archive in which a member has ``name``, whatever zip programs would write."""
    stand_in = "n" * len(name)

    def tampered(bundle: Sample) -> bytes:
        return with_member(bundle, stand_in).replace(stand_in.encode(), name.encode())

    return tampered


def patched(at: Callable[[bytes], int], change: Callable[[bytes], bytes], size: int) -> Callable[[Sample], bytes]:
    """The archive with ``size`` bytes at a place changed."""

    def tampered(bundle: Sample) -> bytes:
        data, place = bundle.data, at(bundle.data)
        return data[:place] + change(data[place : place + size]) + data[place + size :]

    return tampered


def directory(data: bytes) -> int:
    return data.index(b"PK\x01\x02")


def as_link(info: zipfile.ZipInfo) -> None:
    info.external_attr = 0o120777 << 16


def with_time(info: zipfile.ZipInfo) -> None:
    info.date_time = (2020, 1, 1, 0, 0, 0)


def with_extra_field(info: zipfile.ZipInfo) -> None:
    info.extra = b"\x99\x99\x04\x00abcd"


def prepended(bundle: Sample) -> bytes:
    return b"#!/bin/sh\n" + bundle.data


def prepended_and_mended(bundle: Sample) -> bytes:
    """A script in front of the archive, with all offsets right: what a self-extracting archive is."""
    target = io.BytesIO(b"#!/bin/sh\nexit\n")
    target.seek(0, io.SEEK_END)
    with zipfile.ZipFile(target, "a") as archive:
        for name, content in sorted(read_archive(bundle.data).items()):
            info = zipfile.ZipInfo(name, TIME)
            info.create_system, info.external_attr = 3, FILE
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def with_comment(bundle: Sample) -> bytes:
    return bundle.data[:-2] + struct.pack("<H", 4) + b"note"


def with_gap(bundle: Sample) -> bytes:
    """Bytes between the members and the directory, with the directory's place mended."""
    at, end = directory(bundle.data), len(bundle.data) - 22
    place = struct.pack("<L", at + 6)
    return bundle.data[:at] + b"hidden" + bundle.data[at : end + 16] + place + bundle.data[end + 20 :]


def with_hidden_tail(bundle: Sample) -> bytes:
    """Bytes behind the first member's compressed data, with all sizes and places mended."""
    entries, body, hidden = [], b"", b"hidden"
    for name, content in read_archive(bundle.data).items():
        stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        packed = stream.compress(content) + stream.flush() + hidden
        entries.append(_Entry(name, zlib.crc32(content), len(packed), len(content), len(body)))
        body, hidden = body + entries[-1].header + packed, b""
    listed = b"".join(entry.listed for entry in entries)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, len(entries), len(entries), len(listed), len(body), 0)
    return body + listed + end


def bomb(bundle: Sample) -> bytes:
    return zipped(bundle, extra=(("summary2.md", b"\0" * (8 << 20)),))


# With the key: the signer himself is not honest, or careless.


def signed(
    members: Mapping[str, bytes], key: PrivateKey, change: Callable[[dict[str, Any]], None] = lambda statement: None
) -> bytes:
    statement = build_statement(members, parse(members))
    change(statement)
    return write_archive({**members, ENVELOPE_FILE: seal(encode(statement), key)})


def claiming(change: Callable[[dict[str, Any]], None]) -> Callable[[Sample], bytes]:
    def tampered(bundle: Sample) -> bytes:
        members = unsigned(bundle)
        return signed(members, bundle.key, lambda statement: change(statement["predicate"]))

    return tampered


def resigned(member: str, change: Callable[[bytes], bytes]) -> Callable[[Sample], bytes]:
    """A member is changed and its new digest signed; the rest of the statement stays what it was."""

    def tampered(bundle: Sample) -> bytes:
        honest = unsigned(bundle)
        members = {**honest, member: change(honest[member])}
        statement = build_statement(members, parse(honest))
        return write_archive({**members, ENVELOPE_FILE: seal(encode(statement), bundle.key)})

    return tampered


def signed_text(payload: Callable[[bytes], bytes]) -> Callable[[Sample], bytes]:
    def tampered(bundle: Sample) -> bytes:
        members = read_archive(bundle.data)
        text = base64.b64decode(json.loads(members[ENVELOPE_FILE])["payload"])
        return write_archive({**members, ENVELOPE_FILE: seal(payload(text), bundle.key)})

    return tampered


def run_with(**changes: Any) -> Callable[[Sample], bytes]:
    """The bundle of a run whose environment was another."""

    def tampered(bundle: Sample) -> bytes:
        members = unsigned(bundle)
        environment = {**json.loads(members["environment.json"]), **changes}
        return signed({**members, "environment.json": encode(environment)}, bundle.key)

    return tampered


def with_option(*words: str) -> Callable[[Sample], bytes]:
    return run_with(options=["-q", "--tier", "quick", *words])


def with_words(*words: str) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps({**json.loads(content), "options": list(words)}).encode()


def set_to(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda predicate: predicate.update({name: value})


def set_in_extension(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda predicate: predicate[EXTENSION].update({name: value})


def with_list(bundle: Sample, text: bytes, name: str = "baseline.txt") -> bytes:
    members = unsigned(bundle)
    return signed({**members, f"mustpass/{name}": text}, bundle.key)


def list_with(change: Callable[[mustpass.MustpassList], dict[str, Any]]) -> Callable[[Sample], bytes]:
    """The mustpass list with other fields, as if it had been written so, before everything is signed anew."""

    def tampered(bundle: Sample) -> bytes:
        honest = mustpass.read_list(bundle.files["mustpass"])
        return with_list(bundle, mustpass.written(replace(honest, **change(honest))).encode())

    return tampered


def owing_the_device(owed: mustpass.MustpassList) -> dict[str, Any]:
    """What passed without a device owes one."""
    ways = {case: "pass:device" if way.startswith("pass") else way for case, way in owed.outcomes.items()}
    return {"outcomes": ways}


def smaller_run(bundle: Sample) -> bytes:
    """A run of fewer cases with a list that owes no more."""
    folder = bundle.folder.parent / "smaller"
    folder.mkdir(exist_ok=True)
    run = write_run(Path(tempfile.mkdtemp(dir=folder)) / "run", (Status.PASS,))
    return pack(run, bundle.key, [bundle.files["waivers"]], {"baseline.txt": run.parent / "lists" / "baseline.txt"})


def with_other_waivers(bundle: Sample) -> bytes:
    members = unsigned(bundle)
    return signed({**members, "waivers/waivers.toml": b"# all is waived\n"}, bundle.key)


def without_mustpass(bundle: Sample) -> bytes:
    left_out = (ENVELOPE_FILE, "mustpass/baseline.txt")
    members = {name: content for name, content in read_archive(bundle.data).items() if name not in left_out}
    return signed(members, bundle.key)


FAIL_TO_PASS = (b'"status":"fail"', b'"status":"pass"')
#: For each reason, what has to be refused for it: a name, and what makes the bundle so.
TAMPERINGS: dict[RejectReason, dict[str, Callable[[Sample], bytes]]] = {
    RejectReason.ARCHIVE: {
        "cut short": lambda b: b.data[: len(b.data) // 2],
        "its end cut short": lambda b: b.data[:-1],
        "another file": lambda b: b"\x7fELF" * 99,
        "empty": lambda b: b"",
        "trailing data": lambda b: b.data + b"more",
        "prepended data": prepended,
        "prepended data with offsets mended": prepended_and_mended,
        "data between members and directory": with_gap,
        "data after the directory": lambda b: b.data[:-22] + b"hidden" + b.data[-22:],
        "a comment": with_comment,
        "an extra field": lambda b: zipped(b, with_extra_field),
        "another time": lambda b: zipped(b, with_time),
        "a member twice": lambda b: zipped(b, extra=((RECORDS, b"{}\n"),)),
        "members in another order": lambda b: zipped(b, extra=(("a", b"1"),)),
        "a path upwards": renamed("../../escape"),
        "a path upwards inside": renamed("waivers/../x"),
        "an absolute path": renamed("/etc/passwd"),
        "a drive": renamed("C:evil"),
        "a backslash": renamed("waivers\\x"),
        "a NUL in a name": renamed("run.json\0.txt"),
        "a control character in a name": renamed("run\x1b[2J"),
        "a folder": renamed("waivers/"),
        "a symbolic link": lambda b: zipped(b, as_link),
        "a size in the directory past the limit": patched(
            lambda data: directory(data) + 24, lambda size: struct.pack("<L", 1 << 31), 4
        ),
        "data behind a member's own": with_hidden_tail,
        "stored, not deflated": lambda b: zipped(b, method=zipfile.ZIP_STORED),
        "another compression": lambda b: zipped(b, method=zipfile.ZIP_LZMA),
        "encrypted": patched(lambda data: directory(data) + 8, lambda flags: b"\x01\x00", 2),
        "a header with another name": patched(lambda data: 30, lambda name: name.upper(), len(FIRST)),
        "a header with another size": patched(lambda data: 22, lambda size: b"\0" * 4, 4),
        "a checksum edited in both places": lambda b: patched(lambda data: 14, lambda crc: b"crc!", 4)(
            replace(b, data=patched(lambda data: directory(data) + 16, lambda crc: b"crc!", 4)(b))
        ),
        "a compressed byte flipped": patched(
            lambda data: 30 + len(FIRST) + 40, lambda byte: bytes([byte[0] ^ 0xFF]), 1
        ),
    },
    RejectReason.TOO_LARGE: {
        "a bomb": bomb,
        "too many members": lambda b: zipped(b, extra=tuple((f"z{i}", b"") for i in range(64))),
        "a huge line": resigned(
            RECORDS, lambda c: c + b'{"x":"' + random.Random(0).randbytes(600_000).hex().encode() + b'"}\n'
        ),
    },
    RejectReason.ENVELOPE: {
        "the signature stripped": lambda b: with_envelope(b, lambda e: e["signatures"].clear()),
        "a second signature": signed_twice,
        "the payload's type edited": lambda b: with_envelope(b, lambda e: e.update(payloadType="text/plain")),
        "signed as another type": other_payload_type,
        "the envelope spelt otherwise": lambda b: with_envelope(b, respelt_payload),
        "no envelope's fields": lambda b: with_envelope(b, lambda e: e.clear()),
    },
    RejectReason.OTHER_KEY: {"signed by another key": signed_by_another},
    RejectReason.BAD_SIGNATURE: {
        "the statement edited": lambda b: with_envelope(b, edited_payload),
        "signed by another key in our name": signed_by_another_in_our_name,
    },
    RejectReason.JSON: {
        "a key of the envelope twice": lambda b: write_archive(
            {**read_archive(b.data), ENVELOPE_FILE: read_archive(b.data)[ENVELOPE_FILE][:-1] + b',"payload":""}'}
        ),
        "the statement is no JSON": signed_text(lambda text: text[:-1]),
        "a name twice in the statement": signed_text(
            lambda text: text.replace(b'"result":"FAILED"', b'"result":"PASSED","result":"FAILED"')
        ),
        "a nest of lists": signed_text(lambda text: b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        "a name twice in a record": resigned(
            RECORDS, lambda c: c.replace(b'"status":"fail"', b'"status":"fail","status":"pass"')
        ),
        "NaN in a record": resigned(RECORDS, lambda c: c.replace(b"0.25", b"NaN", 1)),
    },
    RejectReason.MEMBERS: {
        "a status edited": lambda b: changed(b, records_jsonl=lambda c: c.replace(*FAIL_TO_PASS)),
        "a record dropped": lambda b: changed(b, records_jsonl=lines(lambda records: records[1:])),
        "a record doubled": lambda b: changed(b, records_jsonl=lines(lambda records: records + records[:1])),
        "records of another run": of_another_run,
        "two members swapped": lambda b: swapped(b, "selected.txt", "summary.md"),
        "the environment replaced": lambda b: changed(b, environment_json=lambda c: c + b" "),
        "the driver edited": lambda b: changed(b, environment_json=lambda c: c.replace(b"H200", b"H100")),
        "the selection edited": lambda b: changed(b, selected_txt=lines(lambda records: records[1:])),
        "a member added": lambda b: with_member(b, "waivers/more.toml"),
        "a member removed": lambda b: without(b, "summary.md"),
        "the records removed": lambda b: without(b, RECORDS),
        "waivers swapped": lambda b: write_archive(
            {**read_archive(b.data), "waivers/waivers.toml": b"# all is waived\n"}
        ),
        "a list shortened": lambda b: write_archive({**read_archive(b.data), "mustpass/baseline.txt": b"one\n"}),
        "no envelope": lambda b: without(b, ENVELOPE_FILE),
        "a member that no bundle has": lambda b: signed({**unsigned(b), "run.sh": b""}, b.key),
    },
    RejectReason.STATEMENT: {
        "PASSED claimed over a failure": claiming(set_to("result", "PASSED")),
        "a failing test left out": claiming(set_to("failedTests", [])),
        "counts made up": claiming(set_in_extension("statuses", {"pass": 4})),
        "another tier claimed": claiming(set_in_extension("tier", "full")),
        "other options claimed": claiming(set_in_extension("options", [])),
        "a field of its own": claiming(set_to("note", "trust me")),
        "another predicate": signed_text(
            lambda text: text.replace(b"attestation/test-result/v0.1", b"attestation/release/v0.1")
        ),
        "the statement spelt otherwise": signed_text(lambda text: text + b" "),
    },
    RejectReason.UNREADABLE: {
        "a status edited and signed": resigned(RECORDS, lambda c: c.replace(*FAIL_TO_PASS)),
        "an unknown status": resigned(RECORDS, lambda c: c.replace(b'"fail"', b'"fine"')),
        "a record cut short": resigned(RECORDS, lambda c: c[:-1]),
        "an environment without its options": resigned(
            "environment.json", lambda c: c.replace(b'"options"', b'"opinions"')
        ),
        "a run without a tier": resigned("run.json", lambda c: c.replace(b'"tier"', b'"tear"')),
        "an environment without the digests of its suites": resigned(
            "environment.json", lambda c: c.replace(b'"suites"', b'"sweets"')
        ),
    },
    RejectReason.MIXED_RUNS: {
        "a record of another seed": resigned(RECORDS, lambda c: c.replace(b'"seed":0', b'"seed":1', 1)),
        "a record of another stack": resigned(RECORDS, lambda c: c.replace(b"3.7.1", b"3.6.0", 1)),
        "an environment of another run": resigned(
            "environment.json", lambda c: c.replace(b'"run": "sample"', b'"run": "theirs"')
        ),
        "options of another tier": resigned("environment.json", with_words("--tier", "full")),
        "options of another seed": resigned("environment.json", with_words("--seed=17")),
    },
    RejectReason.INCOMPLETE: {
        "a record dropped and signed": resigned(RECORDS, lines(lambda records: records[1:])),
        "a record doubled and signed": resigned(RECORDS, lines(lambda records: records + records[:1])),
        "a record that was not selected": resigned("selected.txt", lines(lambda records: records[1:])),
        "a run that did not end": resigned("run.json", lambda c: c.replace(b"1.5", b"null")),
    },
    RejectReason.OWED_CASES: {
        "a case that no list owes": list_with(lambda owed: {"outcomes": dict(list(owed.outcomes.items())[1:])}),
        "a case that is owed and not there": list_with(
            lambda owed: {"outcomes": {**owed.outcomes, "test_a.py::test_b[another]": "pass"}}
        ),
        "a case that shows less than it owes": list_with(owing_the_device),
        "a list of another tier": list_with(lambda owed: {"tier": "full"}),
        "a line of a list cut out": lambda b: with_list(
            b, b.files["mustpass"].read_bytes().rsplit(b"\n", 2)[0] + b"\n"
        ),
        "a list that is none": lambda b: with_list(b, b"\xff"),
    },
    RejectReason.FORBIDDEN_OPTION: {
        "an unlisted option": with_option("-p", "my_plugin"),
        "an unknown option": with_option("--forgive-all"),
        "an ini value overridden": with_option("-o", "addopts="),
        "kernels overridden": run_with(variables={"TRITON_KERNEL_OVERRIDE": "1"}),
    },
    RejectReason.PARTIAL: {
        "a filter": with_option("-k", "mm"),
        "a filter in one word": with_option("--deselect=test_a.py"),
        "one file only": with_option("conformance/suites/test_scaling.py"),
    },
    RejectReason.OTHER_CODE: {
        "judged by other code": run_with(code={"sha256": "0" * 64, "suites": []}),
        "judged by suites of another package": run_with(code={"sha256": CODE, "suites": ["1" * 64]}),
    },
    RejectReason.OTHER_FILE: {
        "a smaller run with a smaller list": smaller_run,
        "other waivers, signed": with_other_waivers,
        "no list, signed": without_mustpass,
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
