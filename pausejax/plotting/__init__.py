"""Charts of a result as plain data, and the renderers that draw them."""

FORMATS = ("png", "pdf", "svg", "csv", "json")
"""File formats of `Chart.save`: pictures (png, pdf, svg), the numbers (csv), and Vega-Lite (json)."""
