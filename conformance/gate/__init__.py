"""Compares two runs and says whether one stack may replace the other. Imports neither torch nor triton."""
