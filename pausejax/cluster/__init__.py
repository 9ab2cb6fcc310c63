"""A study on a Ray cluster: the driver, its pool of workers, and what a worker does."""
