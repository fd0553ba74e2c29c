"""Data files that the package reads: expected failures, declared spills, profiles, mustpass lists. No code."""
