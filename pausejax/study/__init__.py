"""The spec language: parameters, axes, and the plan of a study's runs, independent of any simulation."""
