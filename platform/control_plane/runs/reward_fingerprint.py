"""What makes two rewards the same for their tests: the source or the name, and the options."""

from __future__ import annotations

import hashlib
import json

from control_plane.assets.models import FunctionVersion
from oolong.contracts.run_spec import RewardSection


def reward_key(section: RewardSection, function: FunctionVersion | None) -> str:
    """sha256; scale and bias stay out, for a test looks at the score itself."""
    identity = {"source": function.sha256} if function is not None else {"name": section.name}
    document = {**identity, "options": section.options}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
