"""Discrete-event simulation of the real core, host and scheduler on a virtual clock.

`Replica` runs one host; the engines are cost models from a profile, the transport is a network model, and the users are
whoever is put into its seats: the load generator does, and its `simulation.simulate(spec)` is the way in.
"""
