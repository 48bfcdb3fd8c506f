"""Isolation of the jobs of one attempt from the agent, from other attempts and from the rest of the machine.

Each job runs in mount, process and IPC namespaces of its own, made by bubblewrap. As root every attempt also gets a
uid of its own; as a normal user the job runs in a user namespace. See docs/decisions/0036.
"""
