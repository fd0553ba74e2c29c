"""Writes scripts of one file that show a fault with torch and triton alone."""
