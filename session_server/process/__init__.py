"""Clocks, threads, the life of a process, memory that two processes share. Imports nothing: BLAS is told of its thread before numpy."""
