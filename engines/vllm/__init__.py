"""Thinkers on vLLM, in this process's own AsyncLLM. Nothing here imports vllm or torch before an engine is loaded."""
