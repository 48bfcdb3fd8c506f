"""Objective, advantages, and the terms beside them. Formulas: docs/concepts/objective.md."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from oolong.contracts.run_spec.section import NonNegativeInt, PositiveFloat, PositiveInt, Section, refuse

NonNegativeFloat = Annotated[float, Field(ge=0)]
UnitFloat = Annotated[float, Field(ge=0, le=1)]

# What an objective may be told beside the clip range, with its default.
OBJECTIVE_OPTIONS: dict[str, dict[str, float]] = {
    "decoupled_ppo": {},
    "ppo": {},
    "gspo": {},
    "cispo": {},
    "sapo": {"temperature_positive": 1.0, "temperature_negative": 1.05},
    "a3po": {},
}


class ImportanceWeightSection(Section):
    """The importance weight w = proximal / behavior probability of what was sampled: it corrects for stale data and
    for the engine's own rounding. w multiplies the loss, has no gradient, and is fixed for the train step. Under
    `algorithm.proximal: none` there is no proximal policy and w is 1."""

    mode: Literal["mask", "truncate", "none", "second_moment"] = Field(
        "mask",
        description="what happens to a w that is out of bounds. mask: the token leaves the loss and stays in its "
        "denominator; truncate: w is lowered to threshold (truncated importance sampling); none: w is used as it is; "
        "second_moment: the tokens with the largest (log w)^2 are masked until the batch's mean is at most threshold "
        "(M2PO, arXiv 2510.01161)",
    )
    level: Literal["token", "sequence", "sequence_mean"] = Field(
        "token",
        description="what w is computed over. token: each token has its own w; sequence: every token has the product "
        "over its trajectory's loss tokens; sequence_mean: the geometric mean over them, which does not grow with the "
        "length and matches the ratio of objective gspo",
    )
    threshold: PositiveFloat = Field(
        5.0,
        description="upper bound of w; with mode none it does nothing, with second_moment it bounds the mean of "
        "(log w)^2",
    )
    lower_threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="lower bound of w, mode mask only: with it tokens outside [lower_threshold, threshold] leave "
        "the loss (IcePop, arXiv 2510.18855, with 0.5 to 5); none keeps every small w, which fades out by itself",
    )

    @model_validator(mode="after")
    def _the_second_moment_is_of_tokens(self) -> Self:
        if self.mode == "second_moment" and self.level != "token":
            raise refuse(
                "second_moment_of_tokens",
                f"mode second_moment is over tokens; take level: token, not {self.level}",
                "level",
            )
        return self

    @model_validator(mode="after")
    def _the_band_contains_one(self) -> Self:
        if self.lower_threshold is None:
            return self
        if self.mode != "mask":
            raise refuse(
                "lower_threshold_of_mask",
                f"lower_threshold={self.lower_threshold:g} works with mode: mask only, and mode is {self.mode}; take "
                "mask, or leave lower_threshold out",
                "lower_threshold",
            )
        if self.threshold < 1:
            raise refuse(
                "band_without_one",
                f"the band from lower_threshold={self.lower_threshold:g} to threshold={self.threshold:g} leaves out "
                "w = 1, which every token of fresh data has; raise threshold to 1 or more",
                "threshold",
            )
        return self


class AdvantageSection(Section):
    estimator: Literal["outcome", "gae"] = Field(
        "outcome",
        description="one advantage per rollout from its reward, or one per token by generalized advantage "
        "estimation (with critic: none, values are 0)",
    )
    mean: Literal["batch", "group", "none"] = Field(
        "group", description="what is subtracted: from a reward (outcome) or from a token's advantage (gae)"
    )
    std: Literal["batch", "group", "none"] = Field(
        "group",
        description="the standard deviation that it is divided by: of the batch, of the group, or nothing. Of rollouts "
        "with outcome, of tokens with gae",
    )
    std_of: Literal["population", "sample"] = Field(
        "population",
        description="the standard deviation divides by the count n (population) or by n - 1 (sample, as torch.std "
        "and with it TRL and verl do): for a group of 8, sample advantages are smaller by 6 percent",
    )
    epsilon: PositiveFloat = Field(1e-4, description="added to the standard deviation")
    leave_one_out: bool = Field(
        False,
        description="the mean is of the group's other rollouts (RLOO); needs mean: group",
    )
    gamma: UnitFloat = Field(1.0, description="discount per token; gae only")
    gae_lambda: UnitFloat = Field(1.0, description="lambda of gae")

    @model_validator(mode="after")
    def _is_one_estimator(self) -> Self:
        if self.leave_one_out and (self.estimator != "outcome" or self.mean != "group"):
            raise refuse(
                "leave_one_out",
                f"leave_one_out needs estimator: outcome and mean: group; they are {self.estimator} and {self.mean}",
                "leave_one_out",
            )
        if self.std == "none" and self.std_of != "population":
            raise refuse(
                "std_of_nothing",
                f"std_of={self.std_of} says how the standard deviation is taken, and std: none divides by none; leave "
                "std_of out, or take std: group or batch",
                "std_of",
            )
        if self.estimator == "outcome" and (self.gamma, self.gae_lambda) != (1.0, 1.0):
            raise refuse(
                "discount_needs_gae",
                f"gamma={self.gamma:g} and gae_lambda={self.gae_lambda:g} have no say in estimator: outcome; leave "
                "them at 1 or take estimator: gae",
                "gamma",
            )
        return self


class KlSection(Section):
    """Pull towards the frozen initial weights of the run (the reference policy)."""

    coefficient: PositiveFloat = Field(1e-3, description="beta")
    estimator: Literal["k1", "k2", "k3"] = Field(
        "k3", description="per token, with d = log current/reference: d, d^2/2, or exp(-d) - 1 + d"
    )
    apply_to: Literal["loss", "reward"] = Field(
        "loss",
        description="added to the loss, or subtracted from each token's reward (needs estimator: gae)",
    )
    importance_correction: bool = Field(
        False,
        description="weigh each token's KL in the loss by current / behavior probability, as importance_weight bounds "
        "it and without gradient: on stale tokens the estimators otherwise measure the KL under the policy that "
        "sampled them. apply_to: loss only",
    )

    @model_validator(mode="after")
    def _the_reward_is_corrected_with_the_objective(self) -> Self:
        if self.importance_correction and self.apply_to == "reward":
            raise refuse(
                "kl_corrected_twice",
                "importance_correction is for apply_to: loss; with apply_to: reward the KL is part of the advantage, "
                "which the objective's own w already weighs. Leave one of them out",
                "importance_correction",
            )
        return self


class CriticSection(Section):
    """A value model: the initial weights' backbone with a value head, and an optimizer of its own."""

    learning_rate: PositiveFloat = Field(1e-5, description="AdamW, constant after trainer.warmup_steps")
    clip: PositiveFloat | None = Field(
        0.2, description="a value may move this far from the one before the step; none turns it off"
    )
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    warmup_steps: NonNegativeInt = Field(
        0, description="first train steps in which the critic learns and the policy waits"
    )


class OverlongSection(Section):
    """Soft penalty before the length limit (DAPO, arXiv 2503.14476, eq. 13). rollout.max_new_tokens limits each turn,
    so the penalty of a rollout is that of its longest turn."""

    margin_tokens: PositiveInt = Field(
        512,
        description="the penalty starts this far below rollout.max_new_tokens and grows linearly up to the limit",
    )
    penalty: PositiveFloat = Field(1.0, description="subtracted from the reward at the limit")


class AlgorithmSection(Section):
    objective: Literal["decoupled_ppo", "ppo", "gspo", "cispo", "sapo", "a3po"] = Field(
        "decoupled_ppo", description="eq. 5 of arXiv 2505.24298, or another policy loss"
    )
    options: dict[str, float] = Field(
        default_factory=dict,
        description="what else the objective may be told: sapo has temperature_positive and temperature_negative, a "
        "loss_function its own options",
    )
    loss_function: str | None = Field(
        None,
        description="an uploaded loss, name@3 or name@latest, instead of the objective's own; "
        "only in pools with trainer_code",
    )
    proximal: Literal["recompute", "none"] = Field(
        "recompute",
        description="proximal logprobs: recomputed before each train step, or the behavior ones in their place",
    )
    clip_low: PositiveFloat = Field(0.2, description="the ratio is clipped at 1 - clip_low")
    clip_high: PositiveFloat = Field(0.2, description="and at 1 + clip_high")
    dual_clip: Annotated[float, Field(gt=1)] | None = Field(
        None, description="where the advantage is negative the ratio counts as this much at most"
    )
    importance_weight: ImportanceWeightSection = ImportanceWeightSection()
    advantage: AdvantageSection = AdvantageSection()
    critic: CriticSection | None = Field(None, description="a value model; needs advantage.estimator: gae")
    kl: KlSection | None = Field(None, description="KL to the reference policy; it is loaded only then")
    entropy_bonus: NonNegativeFloat = Field(
        0.0, description="this times the mean entropy is added to the objective"
    )
    overlong: OverlongSection | None = Field(None, description="penalty on nearly overlong completions")
    mask_truncated: bool = Field(
        False,
        description="completions cut at the length limit leave the loss; their rewards still count in advantages",
    )
    loss_aggregation: Literal["token_mean", "seq_mean", "constant"] = Field(
        "token_mean",
        description="of a minibatch, over all ranks: mean over loss tokens; mean over sequences of their token means; "
        "or sum over (sequences x loss_constant_tokens)",
    )
    loss_constant_tokens: PositiveInt | None = Field(
        None, description="of loss_aggregation: constant; default rollout.max_new_tokens"
    )

    @model_validator(mode="after")
    def _decoupled_needs_a_proximal_policy(self) -> Self:
        if self.loss_function is not None:
            return self
        if self.objective == "decoupled_ppo" and self.proximal == "none":
            raise refuse(
                "proximal_missing",
                "objective decoupled_ppo needs proximal: recompute (or take objective: ppo)",
                "proximal",
            )
        if self.objective == "a3po" and self.proximal != "none":
            raise refuse(
                "proximal_superfluous",
                "objective a3po approximates the proximal policy from the two others; take proximal: none",
                "proximal",
            )
        return self

    @model_validator(mode="after")
    def _dual_clip_bounds_a_clipped_ratio(self) -> Self:
        if self.dual_clip is not None and self.objective in ("cispo", "sapo"):
            raise refuse(
                "dual_clip_without_say",
                f"dual_clip has no say in objective {self.objective}, which bounds every token's weight itself; "
                "leave it out",
                "dual_clip",
            )
        return self

    @model_validator(mode="after")
    def _options_are_the_objectives_own(self) -> Self:
        if self.loss_function is not None:
            return self  # its own options; the control plane knows the source and checks them
        known = OBJECTIVE_OPTIONS[self.objective]
        for name in self.options:
            if name not in known:
                raise refuse(
                    "unknown_option",
                    f"objective {self.objective} has no option {name!r}; it has {', '.join(known) or 'none'}",
                    "options", name,
                )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _terms_that_need_gae(self) -> Self:
        if self.advantage.estimator != "gae":
            if self.critic is not None:
                raise refuse("critic_without_gae", "a critic needs advantage.estimator: gae", "critic")
            if self.kl is not None and self.kl.apply_to == "reward":
                raise refuse(
                    "kl_reward_without_gae",
                    "kl.apply_to: reward is per token and needs advantage.estimator: gae",
                    "kl", "apply_to",
                )  # fmt: skip
        if self.kl is not None and self.kl.apply_to == "reward" and self.proximal == "none":
            raise refuse(
                "kl_reward_without_proximal",
                "kl.apply_to: reward is measured at the proximal policy; take proximal: recompute",
                "kl", "apply_to",
            )  # fmt: skip
        return self

    def option(self, name: str) -> float:
        """An option of the objective, or its default."""
        return self.options.get(name, OBJECTIVE_OPTIONS[self.objective][name])
