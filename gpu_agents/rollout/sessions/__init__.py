"""Agent sessions: an OpenAI-compatible endpoint through which any agent code makes trajectories of a run.

A session is one member of a group. `capture` keeps what the policy sampled as a tree of turns, `export` makes
trajectories of it, `chat` speaks OpenAI's form, `desk` opens and closes sessions at the admission gate, `door` is
HTTP.
"""
