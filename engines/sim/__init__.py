"""Seeded deterministic engines with a cost model: simulations, and they say so."""
