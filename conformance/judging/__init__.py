"""Judges one case: plan, compile, run, check, record. No pytest."""
