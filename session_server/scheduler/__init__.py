"""Scheduling decisions: order, chunk size, cost, admission. Pure: no clock, I/O or randomness."""
