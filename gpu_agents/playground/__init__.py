"""A chat with one model: an engine, and a door that speaks OpenAI's chat completions to it."""
