"""TOML of expected failures, for the tests of their files and of runs that have them."""

from __future__ import annotations

LINK = "https://example.org/42"


KEYS = {
    "id": '"known"',
    "cases": '"test_bad.py::test_*"',
    "stack": '{ python = ">=3" }',
    "upstream": f'"{LINK}"',
    "seen": '"Unregistered range"',
    "owner": '"me"',
    "expires": "2999-12-31",
}


def entry(**changed: str | None) -> str:
    """TOML of an entry that holds here; a key that is None is left out."""
    lines = [f"{key} = {value}" for key, value in {**KEYS, **changed}.items() if value is not None]
    return "\n".join(["[[expected_failure]]", *lines]) + "\n"
