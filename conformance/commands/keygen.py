"""``conformance keygen PRIVATE PUBLIC``: a key pair to sign evidence with."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import CommandError, command_errors

HELP = "Make a pair of keys to sign evidence with."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "private", metavar="PRIVATE", type=Path, help="new PEM file for the private key: keep it secret"
    )
    parser.add_argument(
        "public", metavar="PUBLIC", type=Path, help="new PEM file for the public key: give it to verifiers"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes both files and returns 0. Raises :class:`CommandError` if one cannot be written."""
    try:
        from conformance.gate.evidence import signatures
    except ModuleNotFoundError as error:
        raise CommandError(f"keygen needs {error.name}: pip install 'triton-conformance[evidence]'") from None
    if arguments.private.resolve() == arguments.public.resolve():
        raise CommandError(f"{arguments.private}: two files are required, one for each key")
    with command_errors(signatures.KeyFileError):
        key = signatures.write_key_pair(arguments.private, arguments.public)
    print(f"key {key}: private in {arguments.private}, public in {arguments.public}")
    return 0
