"""May one stack replace another? Readings of the records of two runs. Imports neither torch nor triton."""
