"""Explains where an output is wrong, and why: hypotheses about the fault; the diagnosis names those that the data
prove."""
