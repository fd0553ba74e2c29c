"""The scenarios, one topic a file. Run them by ``pytest`` in a checkout, or by ``pytest --pyargs conformance.suites``."""
