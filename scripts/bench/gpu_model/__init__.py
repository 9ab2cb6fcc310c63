"""Compiles the package's programs for GPUs that are not present, and estimates the time of a round."""
