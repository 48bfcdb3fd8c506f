"""The RunSpec: everything a run needs to know, as people write it in YAML, JSON or the form.

One file per theme, one class per section. Unknown keys are errors; cross-field rules name the field, the value
and the way out. The resolved spec (every default filled in) is stored with the run and never changes.
"""

from __future__ import annotations

from oolong.contracts.model_faults import SpecError
from oolong.contracts.run_spec.algorithm import (
    AdvantageSection,
    AlgorithmSection,
    CriticSection,
    ImportanceWeightSection,
    KlSection,
    OverlongSection,
)
from oolong.contracts.run_spec.errors import read_spec, spec_errors
from oolong.contracts.run_spec.evaluation import EvaluationSection
from oolong.contracts.run_spec.inputs import (
    DatasetSection,
    LoraSection,
    ModelSection,
    RewardSection,
    WorkflowSection,
)
from oolong.contracts.run_spec.lint import Facts, LintFinding, lint
from oolong.contracts.run_spec.placement import BudgetSection, PlacementSection
from oolong.contracts.run_spec.playground import PlaygroundSection
from oolong.contracts.run_spec.preference import DpoSection
from oolong.contracts.run_spec.reward_options import REWARD_OPTIONS, option_faults
from oolong.contracts.run_spec.reward_test import RewardTestSection
from oolong.contracts.run_spec.rollout import FilterSection, RolloutSection, StalenessSection
from oolong.contracts.run_spec.secrets import SecretSection
from oolong.contracts.run_spec.section import Section
from oolong.contracts.run_spec.spec import RunSpec
from oolong.contracts.run_spec.training import (
    CheckpointSection,
    SftSection,
    TrainerSection,
    WeightSyncSection,
)

__all__ = [
    "REWARD_OPTIONS",
    "AdvantageSection",
    "AlgorithmSection",
    "BudgetSection",
    "CheckpointSection",
    "CriticSection",
    "DatasetSection",
    "DpoSection",
    "EvaluationSection",
    "Facts",
    "FilterSection",
    "ImportanceWeightSection",
    "KlSection",
    "LintFinding",
    "LoraSection",
    "ModelSection",
    "OverlongSection",
    "PlacementSection",
    "PlaygroundSection",
    "RewardSection",
    "RewardTestSection",
    "RolloutSection",
    "RunSpec",
    "SecretSection",
    "Section",
    "SftSection",
    "SpecError",
    "StalenessSection",
    "TrainerSection",
    "WeightSyncSection",
    "WorkflowSection",
    "lint",
    "option_faults",
    "read_spec",
    "spec_errors",
]
