"""Says what a run owes: the mustpass lists of cases, and the profiles that a target claims."""
