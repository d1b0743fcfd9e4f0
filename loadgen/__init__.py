"""Simulated users who listen, acknowledge and interrupt, and what they measured."""
