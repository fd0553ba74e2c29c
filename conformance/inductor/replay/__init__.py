"""Runs what Inductor generated, and judges its results."""
