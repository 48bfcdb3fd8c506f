"""A chat with one model: an engine, and a server with OpenAI's chat completions API in front of it."""
