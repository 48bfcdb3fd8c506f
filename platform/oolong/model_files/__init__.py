"""What makes a directory a base model: one check for every door, on the control plane and on nodes, without torch.

    report = report_on(Path("/models/tiny"))     # with every fault, or with what the model is

Nothing is executed or unpickled. The chat template alone is a program; it is rendered apart (`rendering`).
"""

from oolong.model_files.directory import ModelFacts, check_directory, find_root
from oolong.model_files.faults import Unusable
from oolong.model_files.report import refused, report_on

__all__ = ["ModelFacts", "Unusable", "check_directory", "find_root", "refused", "report_on"]
