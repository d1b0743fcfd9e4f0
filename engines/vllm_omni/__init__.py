"""Qwen3-Omni whole on vllm-omni, its three stages steered by this server. Nothing here imports vllm or torch before an engine is loaded."""
