"""Tests Inductor's autotuning itself: the selection of choices, the caches, the tuning processes."""
