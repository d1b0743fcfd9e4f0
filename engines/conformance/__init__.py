"""Checks that an engine keeps its contract, for whoever writes one: `docs/engines.md` shows how to run them.

Each check is a function that raises AssertionError naming the rule that was broken. They need no test framework, measure no
times (waits have bounds, nothing has to be fast) and leave the engine as they found it.
"""
