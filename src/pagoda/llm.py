"""LLM and AsyncLLM: generation from Python, without a server."""
