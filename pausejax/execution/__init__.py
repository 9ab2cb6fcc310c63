"""Plays groups of runs on this machine's devices; what a run is, its kind of study says."""
