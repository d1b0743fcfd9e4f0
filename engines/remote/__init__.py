"""Engines that run elsewhere and are reached over the network."""
