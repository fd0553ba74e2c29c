"""Stacks: their environments, the runs in them, scripts tried with both."""
