"""The scenarios: one topic a file, run by ``pytest`` from a checkout or by ``pytest --pyargs conformance.suites``."""
