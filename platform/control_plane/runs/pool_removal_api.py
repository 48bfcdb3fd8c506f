"""Pool endpoints that affect runs: revoke a node, delete a pool."""

from __future__ import annotations

from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.infra import clock
from control_plane.fleet import pool_api
from control_plane.fleet.access import managed_node
from control_plane.fleet.api import NodeSerializer
from control_plane.runs import pool_removal


class RevokeView(ApiView):
    scopes = {"POST": "pool:admin"}

    @idempotent
    @endpoint("revoke_node", returns=NodeSerializer)
    def post(self, request: Request, node_id: str) -> object:
        """Revoke a node.

        Rejects its credential with 403 `node_revoked` and removes the node from its pool for good. Its agent
        stops the jobs and exits. Runs return to the queue and resume on other nodes from their last stored
        checkpoint. The machine can join again as a new node, with a new join token.
        """
        node = managed_node(caller_of(request), node_id)
        return pool_removal.revoke_node(node, now=clock.now())


class PoolView(pool_api.PoolView):
    scopes = {**pool_api.PoolView.scopes, "DELETE": "installation:admin"}

    @endpoint("delete_pool")
    def delete(self, request: Request, pool_name: str) -> None:
        """Delete a pool.

        Deletes its team bindings, admins, quotas and join tokens too. 409 `pool_in_use`, with the reason,
        while it has nodes, or active runs or sweeps name it, and for the pool `default`.
        """
        pool_removal.delete_pool(pool_api.get_pool(pool_name))
