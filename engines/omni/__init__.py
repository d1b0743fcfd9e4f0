"""Engines of the Omni kind on the transformers classes: a thinker that hears, a talker, a code-to-wave vocoder."""
