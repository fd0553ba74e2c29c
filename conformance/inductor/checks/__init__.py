"""Checks of the suites about Inductor, as verdicts: the suite ``test_inductor_x`` has its checks in ``x``."""
