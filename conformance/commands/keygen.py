"""``conformance keygen PRIVATE PUBLIC``: a key pair to sign evidence with."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "private", metavar="PRIVATE", type=Path, help="new PEM file for the private key: keep it secret"
    )
    parser.add_argument(
        "public", metavar="PUBLIC", type=Path, help="new PEM file for the public key: give it to verifiers"
    )


def run(given: argparse.Namespace) -> int:
    try:
        from conformance.gate.evidence import signing
    except ModuleNotFoundError as error:
        raise CommandError(f"keygen needs {error.name}: pip install 'triton-conformance[evidence]'") from None
    try:
        key = signing.write_key_pair(given.private, given.public)
    except signing.KeyFileError as error:
        raise CommandError(str(error)) from None
    print(f"key {key}: private in {given.private}, public in {given.public}")
    return 0
