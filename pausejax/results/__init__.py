"""Writes and reads results: their variables, their layout, and the folder that stores them."""
