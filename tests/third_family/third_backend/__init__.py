"""A backend of Triton that is neither NVIDIA's nor AMD's, and targets for it: what a third vendor would install."""
