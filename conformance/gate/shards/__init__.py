"""Merges the runs of all shards of a selection into one run, and proves that it has every case once."""
