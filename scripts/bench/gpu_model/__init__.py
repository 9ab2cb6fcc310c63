"""What XLA makes of the package's programs for GPUs that are not there, and what a round would take."""
