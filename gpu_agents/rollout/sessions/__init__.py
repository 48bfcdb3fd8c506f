"""Agent sessions: an OpenAI-compatible endpoint through which any agent code makes trajectories of a run.

A session is one rollout of a group. `conversation_tree` records what the policy sampled as a tree of turns, `export`
converts it into trajectories, `openai_chat` parses and renders OpenAI's format, `manager` opens and closes sessions
at the admission gate, and `server` is the HTTP server.
"""
