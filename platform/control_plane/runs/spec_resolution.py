"""Resolves a submitted spec: looks up its names and collects all errors with pointers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from control_plane.accounts.identity.caller import Caller
from control_plane.assets import selectors as catalog
from control_plane.assets.functions.rewards import BUILT_IN
from control_plane.assets.models import BaseModel, DatasetVersion, FunctionVersion, ModelState
from control_plane.checkpoints import selectors as checkpoint_selectors
from control_plane.checkpoints.models import Checkpoint, CheckpointState, model_path_of
from control_plane.checkpoints.weights import weights_of
from control_plane.core.api.errors import FieldError
from control_plane.fleet.access import pools_of
from control_plane.fleet.models import Pool
from control_plane.runs import job_secrets
from control_plane.runs.lint_context import lint_context
from control_plane.runs.models import Run
from control_plane.runs.priority_caps import priority_errors
from control_plane.runs.remote_reward_rules import remote_reward_errors
from control_plane.runs.reward_test_policy import untested_reward_error
from oolong.contracts import user_code
from oolong.contracts.error_words import nearest
from oolong.contracts.model_faults import pointer_part
from oolong.contracts.run_spec import LintFinding, RunSpec, lint, spec_errors
from oolong.contracts.run_spec.device import device_needed
from oolong.contracts.user_code import EVALUATION_REWARD, SourceKind

# Kinds of runs that have their own endpoints instead of POST /runs.
DEDICATED_ENDPOINTS = {
    "reward_test": "tests a reward; use POST /api/v1/reward-tests, or oolong reward test",
    "playground": "is for chats; use POST /api/v1/playgrounds, or oolong checkpoint chat",
}


@dataclass
class Resolved:
    submitted: Any = None  # the document as it was written
    document: dict[str, Any] | None = None  # the spec with defaults filled in and names replaced by IDs
    spec: RunSpec | None = None
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[LintFinding] = field(default_factory=list)
    dataset_version: DatasetVersion | None = None
    evaluation_version: DatasetVersion | None = None
    base_model: BaseModel | None = None
    initial_checkpoint: Checkpoint | None = None
    functions: dict[str, FunctionVersion] = field(default_factory=dict)  # by input name

    @property
    def model_path(self) -> str:
        """As Run.model_path."""
        return model_path_of(self.base_model, self.initial_checkpoint)

    def add_error(self, pointer: str, code: str, message: str) -> None:
        self.errors.append(FieldError(pointer, code, message))


def resolve_spec(
    caller: Caller, document: Any, *, with_model: bool = True, internal: bool = False
) -> Resolved:
    """Resolve a spec. `with_model=False` is for gates, whose checkpoint is named later; `internal=True` allows the
    kinds with their own endpoints."""
    errors = [FieldError(error.pointer, error.code, error.message) for error in spec_errors(document)]
    try:
        spec = RunSpec.model_validate(document)
    except ValidationError:
        return Resolved(submitted=document, errors=errors)
    has_valid_options = not errors
    resolved = Resolved(
        submitted=document, spec=spec, errors=errors
    )  # invalid options do not prevent looking up names
    if spec.kind in DEDICATED_ENDPOINTS and not internal:
        resolved.add_error("/kind", "not_a_run", f"kind: {spec.kind} {DEDICATED_ENDPOINTS[spec.kind]}")
    if with_model:
        _resolve_model(caller, spec, resolved)
    if spec.kind != "playground":
        _resolve_dataset(caller, spec, resolved)
    _resolve_evaluation(caller, spec, resolved)
    _check_reward(spec, resolved)
    _resolve_functions(caller, spec, resolved)
    _resolve_pool(caller, spec, resolved)
    resolved.errors += priority_errors(caller, spec.placement.priority, "/placement/priority")
    resolved.errors += job_secrets.secret_errors(caller, spec)
    if has_valid_options:  # invalid ones name no service
        resolved.errors += remote_reward_errors(caller, spec.model_dump(mode="json"))
    for finding in lint(spec, lint_context(caller, spec, resolved.dataset_version, resolved.base_model)):
        if finding.severity == "error":
            resolved.add_error(finding.pointer, finding.code, f"{finding.message}. {finding.advice}")
        else:
            resolved.warnings.append(finding)
    if not resolved.errors and resolved.dataset_version is not None:
        function = resolved.functions.get(SourceKind.REWARD)
        untested = untested_reward_error(caller.project, spec, function, resolved.dataset_version)
        resolved.errors += [untested] if untested is not None else []
    if not resolved.errors:
        resolved.document = _resolved_document(spec, resolved)
        resolved.spec = RunSpec.model_validate(resolved.document)
    return resolved


def _resolve_pool(caller: Caller, spec: RunSpec, resolved: Resolved) -> None:
    """For a team, a pool that it may not use does not exist."""
    usable = pools_of(caller.project.team_id)
    pool = usable.filter(pk=spec.placement.pool).first()
    if pool is None:
        known = ", ".join(usable.values_list("name", flat=True))
        way_out = f"use one of the team's pools: {known}" if known else "the team cannot use any pool yet"
        resolved.add_error(
            "/placement/pool", "unknown_pool",
            f"there is no pool {spec.placement.pool!r} for team {caller.project.team.name!r}; {way_out}, or ask an "
            "installation admin",
        )  # fmt: skip
    elif spec.algorithm.loss_function is not None and not pool.trainer_code:
        allowing = ", ".join(usable.filter(trainer_code=True).values_list("name", flat=True))
        elsewhere = f"use placement.pool: {allowing}" if allowing else "no pool of the team allows it"
        resolved.add_error(
            "/algorithm/loss_function", "trainer_code_off",
            f"an uploaded loss runs inside the trainer, with its rights on the node, and pool {pool.name!r} does not "
            f"allow that; {elsewhere}, or ask an installation admin: oolong pool set {pool.name} "
            "--trainer-code on",
        )  # fmt: skip
    if pool is not None and spec.placement.exclude_nodes:
        _check_excluded_nodes(spec, pool, resolved)


def _check_excluded_nodes(spec: RunSpec, pool: Pool, resolved: Resolved) -> None:
    nodes = list(pool.nodes.order_by("name", "pk").values_list("pk", "name"))
    known = {identity for node in nodes for identity in node}
    names = ", ".join(name for _, name in nodes[:10]) or "none"
    for index, excluded in enumerate(spec.placement.exclude_nodes):
        if excluded not in known:
            resolved.add_error(
                f"/placement/exclude_nodes/{index}", "unknown_node",
                f"{excluded!r} is no node of pool {pool.name!r}; leave it out, or name one of its nodes: {names}",
            )  # fmt: skip


def _resolve_model(caller: Caller, spec: RunSpec, resolved: Resolved) -> None:
    if spec.model.base_model is not None:
        resolved.base_model = catalog.find_model(caller, spec.model.base_model)
        if resolved.base_model is None:
            resolved.add_error(
                "/model/base_model", "unknown_model",
                f"there is no base model {spec.model.base_model!r}; use the name or id of a registered one, or "
                "register it"
                if spec.model.base_model
                else "no base model is named; use the name or id of a registered one, or register one",
            )  # fmt: skip
        elif resolved.base_model.state == ModelState.VALIDATING:
            resolved.add_error(
                "/model/base_model", "not_validated",
                f"base model {resolved.base_model.pk} is being validated; wait until its state is READY",
            )  # fmt: skip
        elif resolved.base_model.state == ModelState.INVALID:
            resolved.add_error(
                "/model/base_model", "model_invalid",
                f"base model {resolved.base_model.pk} cannot be used: {resolved.base_model.message}",
            )  # fmt: skip
        return
    checkpoint = checkpoint_selectors.find_checkpoint(caller, spec.model.checkpoint or "")
    if checkpoint is None:
        resolved.add_error(
            "/model/checkpoint", "unknown_checkpoint",
            f"there is no checkpoint {spec.model.checkpoint!r}; use the id of a stored one, an alias, or run@step"
            if spec.model.checkpoint
            else "no checkpoint is named; choose whose weights the run begins with: an id, an alias, or run@step",
        )  # fmt: skip
    elif checkpoint.state == CheckpointState.DELETED:
        resolved.add_error(
            "/model/checkpoint",
            "deleted",
            f"checkpoint {checkpoint.pk} was deleted; use another",
        )
    elif checkpoint.state != CheckpointState.STORED:
        resolved.add_error(
            "/model/checkpoint", "not_stored",
            f"checkpoint {checkpoint.pk} is only on its node so far; use a STORED one",
        )  # fmt: skip
    elif (gone := weights_of(checkpoint).deleted) is not None:
        resolved.add_error(
            "/model/checkpoint", "base_deleted",
            f"checkpoint {checkpoint.pk} is an adapter, and the bytes of checkpoint {gone.pk}, which it was trained "
            "on, were deleted; use another",
        )  # fmt: skip
    else:
        resolved.initial_checkpoint = checkpoint


def _resolve_dataset(caller: Caller, spec: RunSpec, resolved: Resolved) -> None:
    version = catalog.find_version(caller, spec.dataset.version)
    if version is None:
        resolved.add_error("/dataset/version", "unknown_dataset", _unknown_version(spec.dataset.version))
        return
    resolved.dataset_version = version
    at_least, needing = {
        "rl": (spec.trainer.groups_per_step, "trainer.groups_per_step"),
        "sft": (spec.sft.batch_size, "sft.batch_size"),
        "dpo": (spec.dpo.batch_size, "dpo.batch_size"),
        "eval": (spec.scoring.prompts, "evaluation.prompts"),
    }.get(spec.kind, (1, "reward_test.rows"))
    _check_split(resolved, version, spec.dataset.split, "/dataset/split", at_least, needing)
    _check_weights(resolved, version, spec)
    if spec.kind == "dpo":
        _check_pairs(resolved, version, spec)
    if spec.scores:
        _check_answers(resolved, version, "/dataset/version")
    if spec.kind != "sft":
        return
    rows, demonstrations = (
        version.splits.get(spec.dataset.split, 0),
        version.with_completion.get(spec.dataset.split, 0),
    )
    if demonstrations < rows:
        resolved.add_error(
            "/dataset/version", "no_completions",
            f"{rows - demonstrations} of {rows} rows of {version.ref} split {spec.dataset.split!r} have no "
            "demonstration; upload a version whose mapping names completion_column",
        )  # fmt: skip
    if spec.sft.validation_split is not None:
        _check_split(
            resolved, version, spec.sft.validation_split, "/sft/validation_split", spec.sft.validation_rows,
            "sft.validation_rows",
        )  # fmt: skip


def _check_pairs(resolved: Resolved, version: DatasetVersion, spec: RunSpec) -> None:
    section, split, validation = spec.dpo, spec.dataset.split, spec.dpo.validation_split
    if validation is not None:
        _check_split(
            resolved,
            version,
            validation,
            "/dpo/validation_split",
            section.validation_rows,
            "dpo.validation_rows",
        )
        if validation == split:
            resolved.add_error(
                "/dpo/validation_split", "trained_on",
                f"the run trains on split {split!r} of {version.ref}; validate on a held-out split, see POST "
                f"/api/v1/dataset-versions/{version.pk}/split, or oolong dataset split",
            )  # fmt: skip
    for name, pointer in {validation: "/dpo/validation_split", split: "/dataset/split"}.items():
        rows = version.splits.get(name or "", 0)
        without = rows - version.with_pair.get(name or "", 0)
        if without:
            resolved.add_error(
                pointer, "no_pairs",
                f"{without} of {rows} rows of {version.ref} split {name!r} have no pair of completions; upload a "
                "version whose mapping names chosen_column and rejected_column",
            )  # fmt: skip


def _check_answers(resolved: Resolved, version: DatasetVersion, pointer: str) -> None:
    if not version.has_answers:
        resolved.add_error(
            pointer, "no_answers",
            f"the rows of {version.ref} have no answer, which rewards compare with; upload a version whose mapping "
            "names answer_column",
        )  # fmt: skip


def _check_weights(resolved: Resolved, version: DatasetVersion, spec: RunSpec) -> None:
    """Each source of the split has a weight, and those above 0 have enough rows for a batch."""
    split, weights = spec.dataset.split, spec.dataset.weights
    if not weights or split not in version.splits:
        return
    sources = version.sources.get(split, {})
    without = version.splits[split] - sum(sources.values())
    if without:
        resolved.add_error(
            "/dataset/weights", "rows_without_source",
            f"{without} of {version.splits[split]} rows of {version.ref} split {split!r} have no source; upload a "
            "version whose mapping names source_column",
        )  # fmt: skip
        return
    known = ", ".join(f"{name} ({rows} rows)" for name, rows in sources.items())
    for name in weights.keys() - sources.keys():
        resolved.add_error(
            f"/dataset/weights/{pointer_part(name)}", "unknown_source",
            f"{version.ref} split {split!r} has no rows of source {name!r}; it has {known}",
        )  # fmt: skip
    for name in sources.keys() - weights.keys():
        resolved.add_error(
            "/dataset/weights", "source_without_weight",
            f"source {name!r} of {version.ref} split {split!r} has no weight; give it one, 0 to leave it out",
        )  # fmt: skip
    rows = version.sampled_rows(split, weights) or 0
    if weights.keys() == sources.keys() and rows < spec.trainer.groups_per_step:
        resolved.add_error(
            "/dataset/weights", "split_too_small",
            f"the sources with a weight above 0 have {rows} rows, trainer.groups_per_step="
            f"{spec.trainer.groups_per_step} requires at least as many",
        )  # fmt: skip


def _resolve_evaluation(caller: Caller, spec: RunSpec, resolved: Resolved) -> None:
    evaluation = spec.evaluation
    if evaluation is None or not spec.trains:
        return
    version = resolved.dataset_version
    if evaluation.dataset is not None:
        version = catalog.find_version(caller, evaluation.dataset)
        if version is None:
            resolved.add_error("/evaluation/dataset", "unknown_dataset", _unknown_version(evaluation.dataset))
    if version is None:
        return
    resolved.evaluation_version = version
    if version != resolved.dataset_version:
        _check_answers(resolved, version, "/evaluation/dataset")
    _check_split(
        resolved, version, evaluation.split, "/evaluation/split", evaluation.prompts, "evaluation.prompts"
    )
    same_rows = version == resolved.dataset_version and evaluation.split == spec.dataset.split
    if same_rows:
        resolved.add_error(
            "/evaluation/split", "trained_on",
            f"the run trains on split {evaluation.split!r} of {version.ref}; evaluate on a held-out split",
        )  # fmt: skip


def _check_split(
    resolved: Resolved, version: DatasetVersion, split: str, pointer: str, at_least: int, needing: str
) -> None:
    rows = version.splits.get(split)
    if rows is None:
        resolved.add_error(
            pointer, "unknown_split",
            f"{version.ref} has no split {split!r}; it has {', '.join(sorted(version.splits))}",
        )  # fmt: skip
    elif rows < at_least:
        resolved.add_error(
            pointer, "split_too_small",
            f"split {split!r} of {version.ref} has {rows} rows, {needing}={at_least} requires at least as many",
        )  # fmt: skip


def _check_reward(spec: RunSpec, resolved: Resolved) -> None:
    if spec.only_trains:
        return
    if "source" in spec.reward.options or spec.reward.name.endswith(".py") or ":" in spec.reward.name:
        resolved.add_error(
            "/reward/name", "not_supported_yet",
            "a spec cannot contain source code: upload the file (oolong function upload) and set reward.function: "
            "name@1, or use one of " + ", ".join(BUILT_IN),
        )  # fmt: skip
    elif spec.reward.name not in BUILT_IN:
        resolved.add_error("/reward/name", "unknown_reward", _unknown_reward(spec.reward.name))
    own = spec.evaluation.reward if spec.evaluation is not None else None
    if own is not None and own.name not in BUILT_IN:
        resolved.add_error("/evaluation/reward/name", "unknown_reward", _unknown_reward(own.name))


def _unknown_reward(name: str) -> str:
    return f"there is no reward {name!r}{nearest(name, BUILT_IN)}; known: {', '.join(BUILT_IN)}"


def _resolve_functions(caller: Caller, spec: RunSpec, resolved: Resolved) -> None:
    if spec.only_trains:
        return
    for named in function_fields(spec):
        if named.reference is not None:
            _resolve_function(caller, named, resolved)


@dataclass(frozen=True)
class FunctionField:
    """A field of a spec that names an uploaded function."""

    source: str  # name of the node's input
    kind: SourceKind
    section: tuple[str, ...]
    field: str
    reference: str | None
    options: dict[str, Any]

    @property
    def pointer(self) -> str:
        return f"/{'/'.join(self.section)}/{self.field}"


def function_fields(spec: RunSpec) -> list[FunctionField]:
    reward, workflow, algorithm = spec.reward, spec.workflow, spec.algorithm
    kinds = SourceKind
    fields = [
        FunctionField(kinds.REWARD, kinds.REWARD, ("reward",), "function", reward.function, reward.options),
        FunctionField(
            kinds.WORKFLOW, kinds.WORKFLOW, ("workflow",), "function", workflow.function, workflow.options
        ),
        FunctionField(
            kinds.LOSS,
            kinds.LOSS,
            ("algorithm",),
            "loss_function",
            algorithm.loss_function,
            algorithm.options,
        ),
    ]
    own = spec.evaluation.reward if spec.evaluation is not None else None
    if own is not None:
        section = ("evaluation", "reward")
        fields.append(
            FunctionField(EVALUATION_REWARD, kinds.REWARD, section, "function", own.function, own.options)
        )
    return fields


def _resolve_function(caller: Caller, named: FunctionField, resolved: Resolved) -> None:
    assert named.reference is not None
    version = catalog.find_function_version(caller, named.reference)
    if version is None:
        resolved.add_error(
            named.pointer, "unknown_function",
            f"there is no function {named.reference!r}; give name@3 or name@latest of one of this project",
        )  # fmt: skip
        return
    if version.function.kind != named.kind:
        resolved.add_error(
            named.pointer, "wrong_kind",
            f"{version.ref} is a {version.function.kind}; this field takes a {named.kind}",
        )  # fmt: skip
        return
    unknown = sorted(set(named.options) - set(version.options))
    if unknown and not version.any_option:
        resolved.add_error(
            f"/{'/'.join(named.section)}/options", "unknown_option",
            f"{version.ref} has no option {unknown[0]!r}; it has {', '.join(version.options) or 'none'}",
        )  # fmt: skip
    if named.kind not in user_code.RUNNABLE_KINDS:
        resolved.add_error(
            named.pointer, "not_supported_yet", f"no node of this version can run an uploaded {named.kind}"
        )
    resolved.functions[named.source] = version


def _resolved_document(spec: RunSpec, resolved: Resolved) -> dict[str, Any]:
    document: dict[str, Any] = spec.model_dump(mode="json")
    document["placement"]["device"] = device_needed(spec, _parameter_count(resolved))
    if resolved.dataset_version is not None:  # a playground has none
        document["dataset"]["version"] = resolved.dataset_version.pk
    if resolved.base_model is not None:
        document["model"]["base_model"] = resolved.base_model.pk
    if resolved.initial_checkpoint is not None:
        document["model"]["checkpoint"] = resolved.initial_checkpoint.pk
    if document["evaluation"] is not None and resolved.evaluation_version is not None:
        document["evaluation"]["dataset"] = resolved.evaluation_version.pk
    for named in function_fields(spec):
        if named.source in resolved.functions:
            section = document
            for name in named.section:
                section = section[name]
            section[named.field] = resolved.functions[named.source].ref
    return document


def root_model(resolved: Resolved) -> BaseModel | None:
    """The base model, also the one at the start of a chain of checkpoints."""
    model, checkpoint = resolved.base_model, resolved.initial_checkpoint
    while model is None and checkpoint is not None:
        made_by = Run.objects.select_related("base_model", "initial_checkpoint").filter(pk=checkpoint.run_id)
        run = made_by.first()
        model, checkpoint = (run.base_model, run.initial_checkpoint) if run is not None else (None, None)
    return model


def _parameter_count(resolved: Resolved) -> int | None:
    model = root_model(resolved)
    return model.parameters if model is not None else None


def _unknown_version(reference: str) -> str:
    if not reference:
        return "no dataset version is named; give its id, name@3 or name@latest"
    return f"there is no dataset version {reference!r}; give its id, name@3 or name@latest"
