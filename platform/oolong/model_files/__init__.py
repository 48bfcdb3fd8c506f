"""What makes a directory a base model: one check for every door, on the control plane and on nodes, without torch.

    facts = check_directory(Path("/models/tiny"))      # raises Unusable with all faults at once

Nothing is executed or unpickled. The chat template alone is a program; it is rendered apart (`rendering`).
"""

from oolong.model_files.directory import ModelFacts, check_directory, find_root
from oolong.model_files.faults import Fault, Unusable
from oolong.model_files.rendering import Preview, render_preview

__all__ = ["Fault", "ModelFacts", "Preview", "Unusable", "check_directory", "find_root", "render_preview"]
