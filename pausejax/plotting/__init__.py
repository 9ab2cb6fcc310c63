"""Charts of a result as plain data, and what draws them."""
