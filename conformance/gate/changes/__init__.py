"""What changed between two records of one case: status, code, time."""
