"""Measures the arithmetic of a device: compares it with the contracts, and proves the model of its tensor core."""
