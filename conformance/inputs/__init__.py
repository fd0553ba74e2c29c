"""The fills: input values whose right result is known exactly or within a proven bound. Also guarded memory."""
