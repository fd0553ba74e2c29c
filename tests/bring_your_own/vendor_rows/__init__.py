"""A family of problems from outside the tree: each row of a matrix times a number of its own.

A family is four files: its problem, its fills with the reference, the kernel's host code and its device code.
"""

from vendor_rows import fills
from vendor_rows.kernel import SCALED_ROWS

__all__ = ["SCALED_ROWS", "fills"]
