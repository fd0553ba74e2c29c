"""What the tests of the suites about Inductor share."""

from __future__ import annotations

import pytest

from tests.inductor.planting import planted_table


@pytest.fixture(scope="module")
def failures(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """Fault or healthy case of the module's FAULTS -> the checks that fail."""
    return planted_table(request.module.__name__)
