"""Values and arithmetic that every package shares. Pure; imports nothing of ours."""
