"""Reads the TOML files that users write, waivers and expected failures, and proposes edits of them."""
