"""Reads the files that users write (waivers, expected failures, thresholds, case lists) and run options."""
