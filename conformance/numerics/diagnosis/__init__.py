"""Where an output is wrong, and why: hypotheses about the fault, of which those are named that the data prove."""
