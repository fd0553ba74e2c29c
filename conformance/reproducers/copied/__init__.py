"""Definitions that are copied into scripts as they stand: they use nothing but Python, torch and triton."""
