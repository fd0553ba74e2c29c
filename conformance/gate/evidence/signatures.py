"""Ed25519 key files, and the DSSE envelope around a statement.

An envelope holds exactly one signature, by the key that the verifier names. With a second one a reader could take the
run for somebody else's.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]  # named in no __all__

from conformance.gate.evidence.archive import Rejected, RejectReason, decode_object, encode
from conformance.records import plain_file

PAYLOAD_TYPE = "application/vnd.in-toto+json"
KEY_FILE_LIMIT = 1 << 16  # bytes


PrivateKey = CryptoSigner
PublicKey = SSlibKey


class KeyFileError(ValueError):
    """A key file that cannot be used or written; the message says which and why."""


def write_key_pair(private: Path, public: Path) -> str:
    """Writes a new key pair as PEM files, the private one readable by its owner only, and returns the key's id. Raises
    :class:`KeyFileError` if a file exists already or cannot be written."""
    signer = CryptoSigner(Ed25519PrivateKey.generate())
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer.public_key.keyval["public"]))
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_new(private, signer.private_bytes, 0o600)
    try:
        _write_new(public, pem, 0o644)
    except KeyFileError:
        private.unlink()
        raise
    return str(signer.public_key.keyid)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise KeyFileError(f"{path} exists: a key is never overwritten; give a new name") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def read_private_key(path: Path) -> PrivateKey:
    """Returns the key of a PEM file. Raises :class:`KeyFileError` unless it holds an unencrypted Ed25519
    private key."""
    content = _key_file(path)
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise KeyFileError(f"{path} is encrypted: an unencrypted PEM file is required") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{path} holds no private key: a PEM file of an Ed25519 private key is required") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} holds a {type(key).__name__}: an Ed25519 private key is required")
    return CryptoSigner(key)


def read_public_key(path: Path) -> PublicKey:
    """Returns the key of a PEM file. Raises :class:`KeyFileError` unless it holds an Ed25519 public key."""
    content = _key_file(path)
    try:
        key = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{path} holds no public key: a PEM file of an Ed25519 public key is required") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path} holds a {type(key).__name__}: an Ed25519 public key is required")
    return SSlibKey.from_crypto(key)


def _key_file(path: Path) -> bytes:
    try:
        with plain_file(path).open("rb") as file:
            return file.read(KEY_FILE_LIMIT)
    except OSError as error:
        raise KeyFileError(f"key file {path} cannot be read: {error}") from None


def seal(payload: bytes, key: PrivateKey) -> bytes:
    """Returns the DSSE envelope of ``payload``, an in-toto statement."""
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(key)
    return encode(envelope.to_dict())


def unseal(content: bytes, key: PublicKey, name: str) -> bytes:
    """Returns the payload of the envelope in ``content``, a file called ``name``. Raises :class:`Rejected` unless its
    one signature is by ``key`` and holds."""
    data = decode_object(content, name)
    wrong = Rejected(
        RejectReason.ENVELOPE, f"{name} is no DSSE envelope: payload, payloadType and signatures are required"
    )
    payload_type, signatures = data.get("payloadType"), data.get("signatures")
    if not isinstance(signatures, list):
        raise wrong
    if len(signatures) != 1:
        raise Rejected(RejectReason.ENVELOPE, f"{name} has {len(signatures)} signatures; exactly one is required")
    if payload_type != PAYLOAD_TYPE:
        raise Rejected(RejectReason.ENVELOPE, f"payloadType is {payload_type!r:.80}; {PAYLOAD_TYPE} is required")
    try:
        envelope = Envelope.from_dict(copy.deepcopy(data))  # it changes what it is given
        if envelope.to_dict() != data:
            raise wrong  # another spelling of base64, or a field of its own
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise wrong from None
    if key.keyid not in envelope.signatures:
        signer = next(iter(envelope.signatures))
        raise Rejected(RejectReason.OTHER_KEY, f"signed by key {signer!r:.80}; the key given is {key.keyid}")
    try:
        envelope.verify([key], 1)
    except VerificationError:
        raise Rejected(
            RejectReason.BAD_SIGNATURE, f"the signature by key {key.keyid} does not fit the statement"
        ) from None
    return bytes(envelope.payload)
