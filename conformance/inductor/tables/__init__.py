"""The config tables of the installed torch, as its own heuristics list them."""
