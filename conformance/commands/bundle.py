"""``conformance bundle RUN``: packs a run's evidence into one signed archive."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from conformance.commands import CommandError
from conformance.gate.mustpass.mustpass_lists import MustpassError, list_files
from conformance.reporting.text import clean

HELP = "Pack a run's evidence into one signed archive."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a run that ended")
    parser.add_argument("--key", metavar="PEM", type=Path, required=True, help="private key (see 'conformance keygen')")
    parser.add_argument("--output", metavar="FILE", type=Path, help="new archive (default: RUN.zip next to the folder)")
    parser.add_argument(
        "--waivers", metavar="FILE", type=Path, action="append", default=[], help="waivers of the run, repeatable"
    )
    parser.add_argument("--mustpass", metavar="DIR", type=Path, help="lists of what is owed, to be packed with the run")
    parser.add_argument("--selftest", metavar="FILE", type=Path, help="result of 'conformance selftest' on this stack")


def run(arguments: argparse.Namespace) -> int:
    """Packs and signs the run. Returns 0. Raises :class:`CommandError` if there is no bundle to be had."""
    try:
        from conformance.gate.evidence import pack, signatures
        from conformance.gate.evidence.archive import Rejected
    except ModuleNotFoundError as error:
        raise CommandError(f"bundle needs {error.name}: pip install 'triton-conformance[evidence]'") from None
    folder: Path = arguments.run.resolve()
    if not folder.is_dir():
        raise CommandError(f"{arguments.run} is no run's folder: give the folder that holds the records")
    target: Path = arguments.output or folder.with_name(folder.name + ".zip")
    try:
        signer = signatures.read_private_key(arguments.key)
        lists = list_files(arguments.mustpass) if arguments.mustpass else {}
        data = pack.pack(folder, signer, arguments.waivers, lists, arguments.selftest)
        _write_new(target, data)
    except FileExistsError:
        raise CommandError(f"{target} exists: evidence is never overwritten; give a new --output") from None
    except Rejected as rejected:
        raise CommandError(f"no bundle ({rejected.reason.value}): {rejected}") from None
    except (signatures.KeyFileError, MustpassError, OSError) as error:
        raise CommandError(error) from None
    print(clean(f"{target}: {len(data)} bytes, signed by key {signer.public_key.keyid}"))
    return 0


def _write_new(target: Path, data: bytes) -> None:
    """Writes ``data`` to ``target`` whole or not at all. Raises FileExistsError if there is such a file."""
    aside = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, target)  # unlike a renaming it fails where somebody else was faster
    finally:
        aside.unlink(missing_ok=True)
