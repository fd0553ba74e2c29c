"""Scripts of one file that show a fault with torch and triton alone, for whoever has to find its cause."""
