"""Definitions that are copied into scripts unchanged. They use nothing but Python, torch and triton."""
