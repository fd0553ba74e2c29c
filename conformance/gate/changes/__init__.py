"""Finds what changed between two records of one case: its status, its code, its time."""
