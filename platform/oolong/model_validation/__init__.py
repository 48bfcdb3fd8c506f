"""Validates the files of a base model, on the control plane and on nodes, without torch.

    report = validate_model(Path("/models/tiny"))     # all faults, or the facts of the model

Nothing is executed or unpickled. The chat template alone is a program; it is rendered apart (`rendering`).
"""

from oolong.model_validation.directory import ModelFacts, check_directory, find_root
from oolong.model_validation.errors import InvalidModel
from oolong.model_validation.report import invalid_report, validate_model

__all__ = ["InvalidModel", "ModelFacts", "check_directory", "find_root", "invalid_report", "validate_model"]
