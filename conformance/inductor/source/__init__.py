"""Reads the source that Inductor generates."""
