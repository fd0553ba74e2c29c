"""Verifies a bundle offline, without torch and triton, trusting nothing but one public key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conformance.gate.evidence.archive import Rejected, RejectReason, decode_object, encode, read_archive
from conformance.gate.evidence.contents import (
    ENVELOPE_FILE,
    MUSTPASS,
    OPTIONAL,
    REQUIRED,
    WAIVERS,
    Contents,
    check_owed,
    checked_options,
    parse,
)
from conformance.gate.evidence.selftest_result import SELFTEST_FILE
from conformance.gate.evidence.signatures import PublicKey, unseal
from conformance.gate.evidence.statement import (
    EXTENSION,
    PREDICATE_TYPE,
    READABLE_SCHEMAS,
    STATEMENT_TYPE,
    build_statement,
    outcome_by,
    qualified,
    sha256,
)
from conformance.gate.shards.union import Part, UnionError, check_parts, code_digests, combined_run, narrowing
from conformance.proof_level import ProofCount
from conformance.records import RunInfo, Status


@dataclass(frozen=True)
class Policy:
    """The demands of a verifier: bundles signed by ``key``, judged by code of one of ``code_digests``. ``waivers`` and
    ``mustpass`` (name to content) are demanded if given; ``allow_partial`` takes runs of chosen cases."""

    key: PublicKey
    code_digests: Sequence[str]
    waivers: Mapping[str, bytes] | None = None
    mustpass: Mapping[str, bytes] | None = None
    allow_partial: bool = False


@dataclass(frozen=True)
class VerifiedBundle:
    """A bundle that holds: its members (all but the envelope), their contents and the signed statement."""

    members: Mapping[str, bytes]
    contents: Contents
    statement: Mapping[str, Any]


@dataclass(frozen=True)
class VerifiedUnion:
    """The bundles of all shards of one run: the ``run`` that they make together, which is not named. ``statuses`` are
    counts of cases, ``result`` is that of all of them."""

    run: RunInfo
    statuses: Mapping[str, int]
    proven: ProofCount
    result: str


def verify_union(bundles: Iterable[bytes], policy: Policy) -> VerifiedUnion:
    """Returns what the ``bundles`` of single shards show together. Each must hold by itself, and together they must be
    all shards of one plan, each once. One bundle is held at a time. Raises :class:`Rejected`."""
    parts: list[Part] = []
    statuses: Counter[Status] = Counter()
    proven, judged = ProofCount(), False
    for number, data in enumerate(bundles, 1):
        try:
            contents = verify(data, replace(policy, allow_partial=True)).contents
            part = Part(contents.run, contents.environment)
            _check_part(contents, part, policy)
        except Rejected as rejected:
            raise Rejected(rejected.reason, f"bundle {number}: {rejected}") from None
        parts.append(part)
        statuses.update(record.status for record in contents.records)
        for record in contents.records:
            proven.add(record)
            judged |= record.is_judged(bool(part.shard.plan.options.get("compile_only")))
    try:
        check_parts(parts, mixed_devices=True)
    except UnionError as error:
        raise Rejected(RejectReason.SHARDS, f"bundle {error.place + 1}: {error}") from None
    parts.sort(key=lambda one: one.shard.number)
    result = qualified(outcome_by({*statuses}, [part.run for part in parts]), proven)
    counts = {status.value: statuses[status] for status in Status if statuses[status]}
    return VerifiedUnion(combined_run(parts, "", judged), counts, proven, result)


def _check_part(contents: Contents, part: Part, policy: Policy) -> None:
    """Raises :class:`Rejected` unless the bundle is of one shard, judged by the code of its plan, of a whole
    selection unless the policy takes others."""
    if contents.run.shard is None:
        raise Rejected(RejectReason.SHARDS, "this is the run of no single shard: verify it alone")
    chosen = narrowing(part.environment)
    if chosen and not policy.allow_partial:
        text = f"only some cases were run ({', '.join(chosen)}); --allow-partial takes such runs"
        raise Rejected(RejectReason.PARTIAL, text)


def verify(data: bytes, policy: Policy) -> VerifiedBundle:
    """Returns the verified contents of the bundle in ``data``. The archive is read within its limits, then the
    signature is checked, and only then is anything believed. Raises :class:`Rejected` with the first thing that is
    wrong."""
    members = read_archive(data)
    if ENVELOPE_FILE not in members:
        raise Rejected(RejectReason.MEMBERS, f"{ENVELOPE_FILE} is missing: the bundle is not signed")
    payload = unseal(members.pop(ENVELOPE_FILE), policy.key, ENVELOPE_FILE)
    statement = _statement(payload)
    _check_members(statement, members)
    contents = parse(members)
    check_owed(members, contents)
    _check_claims(payload, statement, build_statement(members, contents, statement["predicate"][EXTENSION]["schema"]))
    _check_policy(contents, members, policy)
    return VerifiedBundle(members, contents, statement)


def _statement(payload: bytes) -> dict[str, Any]:
    statement = decode_object(payload, "the statement")
    for name, required in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if statement.get(name) != required:
            raise Rejected(
                RejectReason.STATEMENT, f"the statement's {name} is {statement.get(name)!r:.80}, not {required}"
            )
    predicate = statement.get("predicate")
    extension = predicate.get(EXTENSION) if isinstance(predicate, dict) else None
    if not isinstance(extension, dict) or extension.get("schema") not in READABLE_SCHEMAS:
        schemas = " or ".join(map(str, READABLE_SCHEMAS))
        raise Rejected(RejectReason.STATEMENT, f"the statement's predicate needs {EXTENSION!r} of schema {schemas}")
    return statement


def _check_members(statement: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
    """Raises :class:`Rejected` unless the archive holds exactly the files that the statement lists, all of them files
    that a bundle may have."""
    listed = statement["predicate"][EXTENSION].get("members")
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise Rejected(RejectReason.STATEMENT, "the statement lists no members")
    signed = {str(entry.get("name")): (entry.get("sha256"), entry.get("size")) for entry in listed}
    for name in sorted(signed.keys() | members.keys()):
        if name not in members:
            problem = "is in the signed statement and not in the archive"
        elif name not in signed:
            problem = "is in the archive and not in the signed statement"
        elif signed[name] != (sha256(members[name]), len(members[name])):
            problem = f"is not the file that was signed: its sha256 is {sha256(members[name])}"
        elif name not in (*REQUIRED, *OPTIONAL, SELFTEST_FILE) and not name.startswith((WAIVERS, MUSTPASS)):
            problem = "is no file that a bundle may have"
        else:
            continue
        raise Rejected(RejectReason.MEMBERS, f"{name[:120]!r} {problem}")


def _check_claims(payload: bytes, statement: Mapping[str, Any], computed: Mapping[str, Any]) -> None:
    """Raises :class:`Rejected` unless the statement is, to the last byte, the one that follows from the members."""
    if payload == encode(computed):
        return
    theirs, ours = statement["predicate"], computed["predicate"]
    pairs = ((computed, statement), (ours, theirs), (ours[EXTENSION], theirs[EXTENSION]))
    parts = [
        f"{name[:80]} is {claimed.get(name)!r:.200}, by the files {computed_part.get(name)!r:.200}"
        for computed_part, claimed in pairs
        for name in {**computed_part, **claimed}
        if computed_part.get(name) != claimed.get(name) and name not in ("predicate", EXTENSION)
    ]
    text = "; ".join(parts) or "it is spelt in another way"
    raise Rejected(RejectReason.STATEMENT, f"the statement does not follow from the bundle: {text}")


def _check_policy(contents: Contents, members: Mapping[str, bytes], policy: Policy) -> None:
    checked = checked_options(contents)
    if checked.narrowing and not policy.allow_partial:
        raise Rejected(
            RejectReason.PARTIAL,
            f"only some cases were run ({', '.join(checked.narrowing)}); --allow-partial takes such runs",
        )
    for code in code_digests(contents.environment):
        if code not in policy.code_digests:
            accepted = " or ".join(policy.code_digests)
            raise Rejected(RejectReason.OTHER_CODE, f"judged by code {code!r:.80}; accepted is {accepted}")
    for place, required in ((WAIVERS, policy.waivers), (MUSTPASS, policy.mustpass)):
        if required is not None:
            _check_files(place, required, members)


def _check_files(place: str, required: Mapping[str, bytes], members: Mapping[str, bytes]) -> None:
    """Raises :class:`Rejected` unless the bundle's files below ``place`` are those that the verifier requires."""
    packed = {name.removeprefix(place): content for name, content in members.items() if name.startswith(place)}
    for name in sorted(packed.keys() | required.keys()):
        if name not in packed:
            raise Rejected(RejectReason.OTHER_FILE, f"the bundle has no {place}{name}, which was given here")
        if name not in required:
            raise Rejected(RejectReason.OTHER_FILE, f"the bundle's {place}{name} was not given here")
        if packed[name] != required[name]:
            raise Rejected(
                RejectReason.OTHER_FILE, f"the bundle's {place}{name} is not the file of that name given here"
            )
