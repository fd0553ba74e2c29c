"""What is known of one run: its records, its environment, the code that judged it."""
