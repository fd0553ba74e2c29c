"""What operations other than products of two matrices mean, in fp64, one module per family of problems."""
