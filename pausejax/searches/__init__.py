"""Searches a spec's ranges and lists for the best settings."""
