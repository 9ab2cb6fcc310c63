"""Plays a study on a Ray cluster, with a driver and a pool of workers."""
