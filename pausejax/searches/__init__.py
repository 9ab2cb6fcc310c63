"""Search: the best settings of a spec for a budget of rounds, in the lanes of compiled programs."""
