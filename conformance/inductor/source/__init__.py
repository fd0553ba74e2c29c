"""Reads the source that Inductor generated, and checks what it says."""
