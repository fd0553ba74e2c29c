"""Checks of the suites about Inductor, as verdicts.

The suite ``test_inductor_x`` has its checks in ``x``, if it needs more than those of the judge. ``split_k`` serves the
suite about choices, ``dropout`` the one about operations.
"""
