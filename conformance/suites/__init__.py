"""The scenarios, one topic a file: run by ``pytest`` in a checkout or by ``pytest --pyargs conformance.suites``."""
