"""Judges numbers: contracts, roundings, error bounds, verdicts, and the likely cause of a wrong result."""
