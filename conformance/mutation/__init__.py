"""The mutation score: faults derived from the kernels' syntax trees, judged by the cases of a tier."""
