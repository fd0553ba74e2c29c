"""How pytest is asked for the suites."""

from __future__ import annotations

#: What makes pytest collect the suites, with the plugin loaded wherever this package lies.
SUITE_ARGUMENTS = ["-p", "conformance.plugin", "--pyargs", "conformance.suites"]
#: Options that a user may want, for help texts.
FILTERS = "such as --suite, --kernel, --target, --tier, -k"
