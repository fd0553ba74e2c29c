"""Compares two runs, applies what the user accepts, and gives the answer."""
