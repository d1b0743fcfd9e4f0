"""A session-centric server for live spoken conversation."""
