"""Makes the small projects of the plugin's tests available to tests of the gate's files."""

from tests.plugin.conftest import bare, project  # noqa: F401
