"""Readings of the records: summaries for people and a digest to publish. Imports neither torch nor triton."""
