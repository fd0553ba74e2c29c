"""Topics of the suites about Inductor. For the suite ``test_inductor_x`` the file ``x`` has the functions that it gives
to ``torch.compile``, and its checks as verdicts. ``run`` of a check is a
``conformance.judging.inductor_judge.PinnedRun``.
"""
