"""The tables here decide the cases of these tests, not those of the torch that is installed."""

import pytest

from conformance.cases import config_space


@pytest.fixture(autouse=True)
def no_tables_of_torch(monkeypatch):
    """No row is taken from the installed torch's tables unless a test gives some."""
    monkeypatch.setattr(config_space, "torch_rows", lambda kernel, target, tier: {})
