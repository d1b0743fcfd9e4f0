"""Transports: how bytes reach a client and come back. None of them knows what a turn is."""
