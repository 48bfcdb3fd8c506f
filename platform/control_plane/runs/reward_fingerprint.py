"""Identity of a reward for its tests: its source or name, and its options."""

from __future__ import annotations

import hashlib
import json

from control_plane.assets.models import FunctionVersion
from oolong.contracts.run_spec import RewardSection


def reward_fingerprint(section: RewardSection, function: FunctionVersion | None) -> str:
    """SHA-256 of the source or name, and the options; without scale and bias, because tests look at the raw score."""
    identity = {"source": function.sha256} if function is not None else {"name": section.name}
    document = {**identity, "options": section.options}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
