"""Runs a compiled or interpreted kernel on its fills and compares every output with the reference."""
