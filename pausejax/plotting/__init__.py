"""Charts of a result as plain data, and what draws them."""

FORMATS = ("png", "pdf", "svg", "csv", "json")
"""What `Chart.save` writes: pictures, the numbers, and Vega-Lite."""
