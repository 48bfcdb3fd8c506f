"""The RunSpec itself, and the rules between its sections."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec.algorithm import AlgorithmSection
from oolong.contracts.run_spec.evaluation import EvaluationSection
from oolong.contracts.run_spec.inputs import DatasetSection, ModelSection, RewardSection, WorkflowSection
from oolong.contracts.run_spec.placement import BudgetSection, PlacementSection
from oolong.contracts.run_spec.playground import PlaygroundSection
from oolong.contracts.run_spec.preference import DpoSection
from oolong.contracts.run_spec.reward_test import RewardTestSection
from oolong.contracts.run_spec.rollout import RolloutSection, StalenessSection
from oolong.contracts.run_spec.secrets import MOST_SECRETS, SecretSection
from oolong.contracts.run_spec.section import Section, refuse
from oolong.contracts.run_spec.training import (
    CheckpointSection,
    SftSection,
    TrainerSection,
    WeightSyncSection,
)

TRAINER_ONLY_KINDS = ("sft", "dpo")  # no engines, controller and reward service
TRAINING_KINDS = ("rl", *TRAINER_ONLY_KINDS)


class RunSpec(Section):
    kind: Literal["rl", "sft", "dpo", "eval", "reward_test", "playground"] = Field(
        "rl",
        description="rl: asynchronous RL; sft: supervised warm start; dpo: direct preference optimization on pairs of "
        "completions; eval: score the model on dataset.split. "
        "reward_test and playground are made by endpoints of their own",
    )
    name: Annotated[str, Field(min_length=1, max_length=120, description="shown in lists")]
    model: ModelSection
    dataset: DatasetSection
    workflow: WorkflowSection = WorkflowSection()
    reward: RewardSection = RewardSection()
    rollout: RolloutSection = RolloutSection()
    staleness: StalenessSection = StalenessSection()
    trainer: TrainerSection = TrainerSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    weight_sync: WeightSyncSection = WeightSyncSection()
    checkpoint: CheckpointSection = CheckpointSection()
    evaluation: EvaluationSection | None = None
    sft: SftSection = SftSection()
    dpo: DpoSection = DpoSection()
    reward_test: RewardTestSection | None = None
    playground: PlaygroundSection | None = None
    budget: BudgetSection = BudgetSection()
    placement: PlacementSection = PlacementSection()
    secrets: Annotated[list[SecretSection], Field(default_factory=list, max_length=MOST_SECRETS)]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        1,
        description="order of the prompts and of a batch's groups, and the trainer's random numbers. Completions "
        "repeat only with rollout.repeatable_sampling",
    )
    notes: str = Field("", description="free text")

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.trainer.groups_per_step % self.trainer.minibatches:
            raise refuse(
                "batch_divides",
                f"groups_per_step={self.trainer.groups_per_step} is not divisible by "
                f"minibatches={self.trainer.minibatches}",
                "trainer", "minibatches",
            )  # fmt: skip
        advantage = self.algorithm.advantage
        if self.kind == "rl" and self.rollout.group_size == 1 and "group" in (advantage.mean, advantage.std):
            raise refuse(
                "group_of_one",
                "group_size=1 gives every advantage the value 0 under group normalization; take "
                "group_size >= 2 or advantage.mean: batch",
                "rollout", "group_size",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _a_turn_fits_its_trajectory(self) -> Self:
        most = self.workflow.max_trajectory_tokens
        if most is not None and most < self.rollout.max_new_tokens:
            raise refuse(
                "turn_over_trajectory",
                f"max_trajectory_tokens={most} is less than one turn of rollout.max_new_tokens="
                f"{self.rollout.max_new_tokens}; raise the one or lower the other",
                "workflow", "max_trajectory_tokens",
            )  # fmt: skip
        if self.kind == "rl" and self.rollout.group_size == 1 and self.rollout.filter.kind != "none":
            raise refuse(
                "group_of_one",
                f"group_size=1 leaves filter.kind={self.rollout.filter.kind} nothing: a group of one has no variance "
                "and a success rate of 0 or 1; take group_size >= 2 or filter.kind: none",
                "rollout", "filter", "kind",
            )  # fmt: skip
        evaluation = self.evaluation if self.kind == "rl" else None
        every = evaluation.every_steps if evaluation is not None and not evaluation.allow_blocking else None
        if every is not None and self.rollout.engines == 1:
            raise refuse(
                "evaluation_takes_the_only_engine",
                f"evaluation.every_steps={every} leases an engine, and rollout.engines=1: nothing is generated while "
                "it lasts. Say evaluation.allow_blocking: true, take 2 engines, or leave every_steps out",
                "evaluation", "every_steps",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _the_overlong_margin_fits(self) -> Self:
        overlong = self.algorithm.overlong
        if overlong is not None and overlong.margin_tokens >= self.rollout.max_new_tokens:
            raise refuse(
                "margin_too_wide",
                f"margin_tokens={overlong.margin_tokens} must be below "
                f"rollout.max_new_tokens={self.rollout.max_new_tokens}: the penalty would begin before the first token",
                "algorithm", "overlong", "margin_tokens",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _lora_trains_a_policy(self) -> Self:
        if self.model.lora is None:
            return self
        if not self.trains:
            raise refuse(
                "option_of_training",
                f"kind: {self.kind} trains nothing; leave lora out. Checkpoints of LoRA runs bring their base model",
                "model", "lora",
            )  # fmt: skip
        if self.algorithm.critic is not None:
            raise refuse(
                "critic_with_lora",
                "a critic trains all weights of a second model, which model.lora is there to avoid; leave the critic "
                "out (values are then 0), or leave model.lora out",
                "algorithm", "critic",
            )  # fmt: skip
        if self.trainer.compile:
            raise refuse(
                "compile_with_lora",
                "compile=true is not supported with model.lora; leave one of them out",
                "trainer", "compile",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _only_a_trainer_is_spread_over_nodes(self) -> Self:
        nodes = self.placement.nodes
        if nodes == 1:
            return self
        if not self.trains:
            raise refuse(
                "option_of_training",
                f"nodes={nodes}: kind: {self.kind} has no trainer whose ranks could be spread; leave nodes out",
                "placement", "nodes",
            )  # fmt: skip
        if nodes > self.trainer.num_ranks:
            raise refuse(
                "more_nodes_than_ranks",
                f"nodes={nodes} is more than trainer.num_ranks={self.trainer.num_ranks}, and each node has a rank at "
                "least; raise the one or lower the other",
                "placement", "nodes",
            )  # fmt: skip
        if self.trainer.offload_optimizer:
            raise refuse(
                "offload_over_nodes",
                f"nodes={nodes} is not supported with trainer.offload_optimizer; leave one of them out",
                "placement", "nodes",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _only_rl_samples_by_weight(self) -> Self:
        if self.dataset.weights and self.kind != "rl":
            raise refuse(
                "option_of_rl",
                f"kind: {self.kind} uses the rows of a split in their order and reads no weights; leave them out, or "
                "upload the rows that you want as a split of their own",
                "dataset", "weights",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _dpo_generates_nothing_to_score(self) -> Self:
        if self.kind == "dpo" and self.evaluation is not None:
            raise refuse(
                "option_of_rl",
                "kind: dpo generates no completions that could be scored; leave the section out, set "
                "dpo.validation_split, and score the checkpoint with a run of kind: eval",
                "evaluation",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _an_eval_run_scores_its_dataset(self) -> Self:
        if self.kind != "eval":
            return self
        scoring, fresh = self.scoring, EvaluationSection()
        for name in ("dataset", "split", "reward", "at_start", "at_end", "every_steps", "allow_blocking"):
            value = getattr(scoring, name)
            if value != getattr(fresh, name):
                instead = {
                    "dataset": "dataset.version", "split": "dataset.split", "reward": "the reward section",
                }.get(name, "nothing")  # fmt: skip
                raise refuse(
                    "option_of_training",
                    f"{name}={value!r} is of a training run's evaluations; in kind: eval, {instead} stands for it",
                    "evaluation", name,
                )  # fmt: skip
        if self.rollout.engines != 1:
            raise refuse(
                "one_engine",
                f"engines={self.rollout.engines}: an eval run scores on one engine; leave engines out, and start one "
                "run per split or checkpoint to score them side by side",
                "rollout", "engines",
            )  # fmt: skip
        if self.workflow.name == "agent_session":
            raise refuse(
                "no_sessions",
                "workflow.name=agent_session waits for agents outside the run; an eval run plays its rows itself",
                "workflow", "name",
            )  # fmt: skip
        return self

    @property
    def scoring(self) -> EvaluationSection:
        """How an eval run scores its rows; the section's defaults when the spec leaves it out."""
        return self.evaluation or EvaluationSection()

    @model_validator(mode="after")
    def _a_reward_test_scores_something(self) -> Self:
        if (self.kind == "reward_test") != (self.reward_test is not None):
            raise refuse(
                "reward_test_section",
                "the reward_test section belongs to kind: reward_test, and that kind needs it",
                "reward_test",
            )
        test = self.reward_test
        if test is not None and not test.samples and not test.probes and test.stored is None:
            raise refuse(
                "nothing_scored",
                "samples=0, probes=[] and no stored completions leave nothing to score; take samples >= 1",
                "reward_test", "samples",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _a_playground_has_its_section(self) -> Self:
        if (self.kind == "playground") != (self.playground is not None):
            raise refuse(
                "playground_section",
                "the playground section belongs to kind: playground, and that kind needs it",
                "playground",
            )
        return self

    @model_validator(mode="after")
    def _each_variable_has_one_secret_and_a_job(self) -> Self:
        given: dict[tuple[JobKind, str], str] = {}
        for index, secret in enumerate(self.secrets):
            for job in secret.jobs:
                if job not in self.job_kinds:
                    raise refuse(
                        "no_such_job",
                        f"a run of kind: {self.kind} has no {job} job; it has "
                        f"{', '.join(kind for kind in JobKind if kind in self.job_kinds)}",
                        "secrets", index, "jobs",
                    )  # fmt: skip
                place = (job, secret.variable_name)
                if place in given:
                    raise refuse(
                        "doubled",
                        f"the {job} job is given {secret.variable_name} twice, as the secret {given[place]} and as "
                        f"{secret.name}; leave one of them out, or name another variable",
                        "secrets", index,
                    )  # fmt: skip
                given[place] = secret.name
        return self

    @property
    def job_kinds(self) -> frozenset[JobKind]:
        """Kinds of jobs that an attempt of it has."""
        has = {
            JobKind.CONTROLLER: self.kind in ("rl", "eval", "reward_test"),
            JobKind.REWARD: self.scores,
            JobKind.ROLLOUT: self.engines_needed > 0,
            JobKind.TRAINER: self.trains,
        }
        return frozenset(kind for kind, present in has.items() if present)

    @property
    def scores(self) -> bool:
        """A reward service is needed."""
        if self.kind == "playground":
            return self.playground is not None and self.playground.scores
        return self.kind not in TRAINER_ONLY_KINDS

    @property
    def trains(self) -> bool:
        return self.kind in TRAINING_KINDS

    @property
    def only_trains(self) -> bool:
        """Its only jobs are trainers: it generates nothing."""
        return self.kind in TRAINER_ONLY_KINDS

    @property
    def optimizer_steps(self) -> int:
        """Train steps of the whole run; 0 where nothing is trained."""
        match self.kind:
            case "rl":
                return self.trainer.total_train_steps
            case "sft":
                return self.sft.steps
            case "dpo":
                return self.dpo.steps
            case _:
                return 0

    @property
    def engines_needed(self) -> int:
        """Engines of the minimal gang, a slot each."""
        match self.kind:
            case "rl" | "eval":
                return self.rollout.engines
            case "reward_test":
                return 1 if self.reward_test is not None and self.reward_test.samples else 0
            case "playground":
                return 1
            case _:
                return 0

    @property
    def serves_sessions(self) -> bool:
        """Agents outside the run make its rollouts."""
        return self.kind == "rl" and self.workflow.function is None and self.workflow.name == "agent_session"

    @property
    def slots_needed(self) -> int:
        """Slots of the minimal gang: the trainer's ranks where it trains, and an engine each where it generates."""
        return (self.trainer.num_ranks if self.trains else 0) + self.engines_needed
