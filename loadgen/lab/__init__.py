"""The laboratory: simulated runs, searches for the knee, comparisons, profiles, rooflines, reports and their plots."""
