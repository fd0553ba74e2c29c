"""What the tests of the suites about Inductor share."""

from __future__ import annotations

import pytest

from tests.inductor.planting import planted_table


@pytest.fixture(scope="session", autouse=True)
def known_marks(pytestconfig: pytest.Config) -> None:
    """The plugin makes the suites' marks known only where the suites run."""
    pytestconfig.addinivalue_line("markers", "generated(...): the cases of a test about Inductor's code")


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """Fault or healthy case of the module's FAULTS -> the checks that fail."""
    return planted_table(request.module.__name__)
