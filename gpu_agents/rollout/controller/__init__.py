"""The rollout controller: prompt order, admission gate, claims, ledger, replay buffer, policy versions.

The rules are pure and live one noun to a file (no clock, no network, no disk); `server` is the thin door.
"""
