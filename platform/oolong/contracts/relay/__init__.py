"""The relay: HTTP requests from users to the jobs of a run, over the one WebSocket that each agent keeps open.

The agent dials `/ws/v1/tunnel` with its node credential; every binary message is one frame (`frames`). The control
plane opens a stream per request and names the attempt and the endpoint (`endpoints`); each direction of a stream
flows under credit (`window`), so that neither side holds more than a window of bytes that nobody reads. `pipe` is
one end of a stream for asyncio, the same on both sides. Nothing here knows a socket.
"""
