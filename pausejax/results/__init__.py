"""Results: their variables and layout, and the folder that keeps them."""
