"""Loads the plugin where the checkout is not installed; see conformance/plugin."""

import importlib.util
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
_SPEC = importlib.util.find_spec("conformance")
if _SPEC is None or _SPEC.origin is None or not Path(_SPEC.origin).resolve().is_relative_to(_HERE):
    raise pytest.UsageError(
        f"the package conformance comes from {_SPEC and _SPEC.origin}, not from the checkout {_HERE}: install the "
        "checkout (pip install -e .), or run 'pytest --pyargs conformance.suites' from elsewhere"
    )


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.import_plugin("conformance.plugin")  # nothing more if its entry point loaded it already
    from conformance.plugin import options

    options.add_short_names(parser)
