"""The kernels that are judged: host code here, one file per family, and in ``device`` what Triton compiles."""
