"""Client selection for federated learning under latency, privacy and generalization pressure."""

__version__ = "0.1.0"
