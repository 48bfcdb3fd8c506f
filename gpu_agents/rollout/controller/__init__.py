"""The rollout controller: prompt order, admission gate, claims, ledger, replay buffer, policy versions.

`state` has no clock, network or disk. `worker_api`, `trainer_api` and `timers` change it, one per counterpart; `server`
serves them over RPC.
"""
