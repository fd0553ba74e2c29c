"""Inductor's autotuning as a system under test: selection, caches, tuning processes."""
