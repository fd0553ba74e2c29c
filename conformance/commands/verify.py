"""``conformance verify BUNDLE --key PUBLIC.pem``: checks a run's evidence, and says what it shows."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.commands import CommandError
from conformance.gate.evidence.archive import ARCHIVE_LIMIT, Rejected
from conformance.gate.evidence.contents import MUSTPASS, WAIVERS
from conformance.gate.evidence.statement import EXTENSION, result_of
from conformance.gate.mustpass.mustpass_lists import MustpassError, list_files
from conformance.gate.runs.bill_of_materials import BACKEND, is_of_backend
from conformance.machine.kept_answers import code_digest
from conformance.proof_level import ProofCount
from conformance.records import RunInfo, first_of, plain_file
from conformance.reporting.run_verdict import many
from conformance.reporting.text import clean

if TYPE_CHECKING:
    from conformance.gate.evidence.verify import Policy, VerifiedBundle, VerifiedUnion

HOLDS, REFUSED = 0, 1


HELP = "Check a bundle of evidence, offline."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundles",
        metavar="BUNDLE",
        type=Path,
        nargs="+",
        help="an archive that 'conformance bundle' wrote; or those of all shards of a run",
    )
    parser.add_argument("--key", metavar="PEM", type=Path, required=True, help="public key of who must have signed it")
    parser.add_argument(
        "--code-digest",
        metavar="HEX",
        action="append",
        help="digest of judging code to accept, repeatable (default: that of this installation)",
    )
    parser.add_argument(
        "--waivers", metavar="FILE", type=Path, action="append", help="waivers it must have, repeatable"
    )
    parser.add_argument("--mustpass", metavar="DIR", type=Path, help="mustpass lists that it must have, and no others")
    parser.add_argument("--allow-partial", action="store_true", help="accept a run of chosen cases")
    parser.epilog = (
        "Exit status: 0 if the evidence holds, even if it shows failures; 1 if it is rejected; 2 if it cannot be read."
    )


def run(arguments: argparse.Namespace) -> int:
    """Checks the bundle and prints what it shows. Returns 0 if it holds, 1 if it is refused. Raises
    :class:`CommandError` for files that cannot be read."""
    try:
        from conformance.gate.evidence import signatures, verify
    except ModuleNotFoundError as error:
        raise CommandError(f"verify needs {error.name}: pip install 'triton-conformance[evidence]'") from None
    try:
        policy = verify.Policy(
            key=signatures.read_public_key(arguments.key),
            code_digests=arguments.code_digest or (code_digest(),),
            waivers=_named(arguments.waivers),
            mustpass=_lists(arguments.mustpass),
            allow_partial=arguments.allow_partial,
        )
        if len(arguments.bundles) > 1:
            union = verify.verify_union(map(_content, arguments.bundles), policy)
            answer = f"VERIFIED  {len(arguments.bundles)} bundles\n{describe_union(union, policy)}"
        else:
            verified = verify.verify(_content(arguments.bundles[0]), policy)
            answer = f"VERIFIED  {_line(arguments.bundles[0])}\n{describe(verified, policy)}"
    except Rejected as rejected:
        print(f"REFUSED  {', '.join(map(_line, arguments.bundles))}\n{rejected.reason.value}: {_line(rejected)}")
        return REFUSED
    except (signatures.KeyFileError, MustpassError, OSError) as error:
        raise CommandError(error) from None
    print(answer)
    return HOLDS


def _content(bundle: Path) -> bytes:
    with plain_file(bundle).open("rb") as file:
        return file.read(ARCHIVE_LIMIT + 1)


def _named(files: Iterable[Path] | None) -> dict[str, bytes] | None:
    if files is None:
        return None
    named: dict[str, bytes] = {}
    for path in files:
        if path.name in named:
            raise CommandError(f"two files are called {path.name}: a bundle has one of a name; give one of them")
        named[path.name] = plain_file(path).read_bytes()
    return named


def _lists(folder: Path | None) -> dict[str, bytes] | None:
    return (
        None if folder is None else {name: plain_file(path).read_bytes() for name, path in list_files(folder).items()}
    )


def describe(verified: VerifiedBundle, policy: Policy) -> str:
    """Returns a text of what was verified and what a reader should know of the run, in lines that are safe to print."""
    run, records, environment = verified.contents.run, verified.contents.records, verified.contents.environment
    extension = verified.statement["predicate"][EXTENSION]
    counts = ", ".join(f"{count} {status}" for status, count in sorted(extension["statuses"].items()))
    rows = {
        "result": result_of(records, run),
        "proven by": str(ProofCount(records)),
        "signed by": f"key {policy.key.keyid}",
        "run": f"{run.id}, started {run.started}, {run.wall_s} s",
        "cases": f"{extension['selected']} selected, {len(records)} recorded: {counts}",
        "tier": f"{run.tier}, targets {' '.join(run.targets) or 'default'}, seed {run.seed}",
        "shards": _shards(run),
        "parts": _parts(run),
        "options": " ".join(environment["options"]) or "none",
        "partial": ", ".join(extension["partial"]) or "no",
        "judged by": f"code {' and '.join(extension['code_sha256'])}{_checkout(environment['git'])}",
        **{name: _distribution(facts) for name, facts in sorted(environment["distributions"].items())},
        "stack": ", ".join(f"{name} {value}" for name, value in sorted(run.stack.items()) if value is not None),
        "backends": "; ".join(
            f"{name.removeprefix(BACKEND)} {value}" for name, value in sorted(run.bill.items()) if is_of_backend(name)
        )
        or "not recorded",
        "extensions": ", ".join(sorted({str(entry.get("distribution")) for entry in environment["extensions"]}))
        or "none",
        "declared": "; ".join(_declared(verified)) or "nothing by third-party kernels",
        "variables": " ".join(f"{name}={value}" for name, value in sorted(environment["variables"].items())) or "none",
        "selftest": _selftest(verified),
        "waivers": _files(verified.members, WAIVERS, policy.waivers),
        "mustpass": _files(verified.members, MUSTPASS, policy.mustpass),
        "members": f"{len(verified.members)} files, {sum(map(len, verified.members.values()))} bytes, all as signed",
    }
    width = max(map(len, rows)) + 2
    return "\n".join(_line(f"{name:{width}}{value}") for name, value in rows.items())


def describe_union(union: VerifiedUnion, policy: Policy) -> str:
    """Returns a text of what the bundles of all shards show together, in lines that are safe to print."""
    run = union.run
    rows = {
        "result": union.result,
        "proven by": str(union.proven),
        "signed by": f"key {policy.key.keyid}",
        "cases": f"{run.selected} selected: {', '.join(f'{n} {name}' for name, n in sorted(union.statuses.items()))}",
        "tier": f"{run.tier}, targets {' '.join(run.targets) or 'default'}, seed {run.seed}",
        "shards": _shards(run),
        "stack": ", ".join(f"{name} {value}" for name, value in sorted(run.stack.items()) if value is not None),
    }
    width = max(map(len, rows)) + 2
    return "\n".join(_line(f"{name:{width}}{value}") for name, value in rows.items())


def _declared(verified: VerifiedBundle) -> Iterable[str]:
    """Yields what each third-party kernel declared, and the cases that its expected failures excused."""
    from conformance.gate.evidence.statement import excused

    failures = excused(verified.contents)
    for kernel, declared in sorted(verified.contents.run.declared.items()):
        parts = []
        for one in failures:
            if one.kernel == kernel:
                cases = f"{len(one.cases)} of its cases: {first_of(one.cases, 3)}" if one.cases else "no case"
                parts.append(f"{one.entry}, owner {one.entry.owner}, until {one.entry.expires}, excused {cases}")
        parts += [f"{len(declared.spills)} lines of spills"] if declared.spills else []
        parts += [f"thresholds of {', '.join(declared.thresholds)}"] if declared.thresholds else []
        yield f"{kernel} by {declared.by}: {', '.join(parts) or 'nothing'}"


def _shards(run: RunInfo) -> str:
    if run.merged is not None:
        shards = "; ".join(f"{one.run}, {one.cases} cases, records {one.records}" for one in run.merged.shards)
        devices = " on SEVERAL DEVICES" if run.merged.mixed_devices else ""
        return f"{many(len(run.merged.shards), 'shard')}{devices}, all of the plan {run.merged.digest}: {shards}"
    return f"the shard {run.shard} of the plan {run.shard.digest}" if run.shard else "none: the run is whole"


def _parts(run: RunInfo) -> str:
    """Returns what the parts of a run that went on have left, each but the last one."""
    parts = [
        f"begun {part.began}, {many(part.records, 'record')} kept, {len(part.unfinished)} under way"
        for part in run.parts
    ]
    return f"{len(parts) + 1}: {'; '.join(parts)}; then the last one" if parts else "1"


def _selftest(verified: VerifiedBundle) -> str:
    result = verified.contents.selftest
    return "no selftest" if result is None else f"{result}, started {result.started}"


def _line(text: object) -> str:
    """``text`` on one line: a name with a line feed could else add lines of its own to the answer."""
    return clean(str(text)).replace("\n", "\\n")


def _checkout(git: Mapping[str, Any] | None) -> str:
    if git is None:
        return ", not from a checkout"
    return f", commit {git.get('commit')}{' with changes' if git.get('dirty') else ''}"


def _distribution(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "not installed"
    digest = facts.get("record_sha256")
    text = f"{facts.get('version')}, {f'wheel record {digest}' if digest else 'no record of its files'}"
    if facts.get("altered_files"):
        text += f"; {facts['altered_files']} files ALTERED since they were installed"
    return text if facts.get("is_imported") else f"{text}; NOT what was imported"


def _files(members: Mapping[str, bytes], place: str, required: Mapping[str, bytes] | None) -> str:
    names = [name.removeprefix(place) for name in sorted(members) if name.startswith(place)]
    compared = "not compared with any of yours" if required is None else "the same as yours"
    return f"{', '.join(names)} ({compared})" if names else "none"
