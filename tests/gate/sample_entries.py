"""TOML of expected failures and of waivers, for the tests of their files and of what has them."""

from __future__ import annotations

LINK = "https://example.org/42"
EXPECTED_FAILURE = {
    "id": '"known"',
    "cases": '"test_bad.py::test_*"',
    "stack": '{ python = ">=3" }',
    "upstream": f'"{LINK}"',
    "seen": '"Unregistered range"',
    "owner": '"me"',
    "expires": "2999-12-31",
}
WAIVER = {
    "cases": '"test_scaling.py::test_scales[mm-fp16-1-*"',
    "stack": '{ triton = "==3.9.*" }',
    "reason": '"slow path until the fix"',
    "issue": '"https://example.org/7"',
    "owner": '"me"',
    "expires": "2026-12-31",
}


def entry(**changed: str | None) -> str:
    """TOML of an expected failure that holds here; a key that is None is left out."""
    return _table("expected_failure", {**EXPECTED_FAILURE, **changed})


def waiver(**changed: str | None) -> str:
    """TOML of a waiver; a key that is None is left out."""
    return _table("waiver", {**WAIVER, **changed})


def _table(name: str, keys: dict[str, str | None]) -> str:
    return "\n".join([f"[[{name}]]", *(f"{key} = {text}" for key, text in keys.items() if text is not None)]) + "\n"
