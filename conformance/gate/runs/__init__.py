"""Reads one run: its records, its environment, and the code that judged it."""
