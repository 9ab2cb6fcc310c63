"""Plays groups of runs on this machine's devices. The kind of study defines what a run is."""
