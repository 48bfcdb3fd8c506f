"""What the lint may know besides the spec: the rows, the model and the pool that it names."""

from __future__ import annotations

from control_plane.accounts.caller import Caller
from control_plane.catalog.models import BaseModel, DatasetVersion
from control_plane.fleet import selectors as fleet
from control_plane.fleet.models import Slot
from oolong.contracts.run_spec import Facts, RunSpec
from oolong.contracts.run_spec.memory import kv_bytes_per_token, shape_of


def facts_of(caller: Caller, spec: RunSpec, version: DatasetVersion | None, model: BaseModel | None) -> Facts:
    """Of what could be resolved; the rest stays unknown. A model that starts from a checkpoint is not looked into."""
    config = model.config if model is not None else {}
    context = config.get("max_position_embeddings")
    gpus = Slot.objects.filter(
        node__pool=spec.placement.pool, device="cuda", present=True, memory_bytes__gt=0
    )
    nodes = fleet.node_views(spec.placement.pool)
    return Facts(
        train_rows=version.splits.get(spec.dataset.split) if version is not None else None,
        parameters=model.parameters if model is not None else None,
        context_tokens=context if isinstance(context, int) else None,
        kv_bytes_per_token=kv_bytes_per_token(config),
        shape=shape_of(config),
        slot_memory_bytes=min(gpus.values_list("memory_bytes", flat=True), default=None),
        largest_node_slots=max((node.total for node in nodes), default=None),
        team_limit_slots=fleet.limits(spec.placement.pool).get(caller.project.team_id),
    )
