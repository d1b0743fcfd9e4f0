"""Engines: the code that runs one stage of a model graph for a batch of sessions."""
