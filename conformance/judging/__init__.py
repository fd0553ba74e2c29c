"""Judges one case: plans, compiles, runs, checks and records it. Imports no pytest."""
