"""Data files that the package reads: expected failures, declared spills, profiles and mustpass lists. No code."""
