"""Models that hear and speak at once: one tick for all of their sessions."""
