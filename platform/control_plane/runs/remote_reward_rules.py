"""Which services the rewards of a run may ask, and which secrets they may send there."""

from __future__ import annotations

from django.conf import settings

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.secrets import secret_services
from control_plane.core.api.errors import FieldError
from control_plane.runs.job_secrets import not_for_job_message, unknown_secret_message
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec.remote_rewards import RemoteReward, remote_rewards
from oolong.system.safe_http import AddressBlocked, OriginPolicy, parse_url

HOW_TO_ALLOW = (
    "; ask an installation admin to add {origin} to OOLONG_REWARD_ORIGINS of the control plane, which lists the "
    "services that rewards may ask"
)


def reward_origins() -> list[str]:
    """For the reward jobs, which ask no other services."""
    return list(settings.ENVIRONMENT.reward_origins)


def remote_reward_errors(caller: Caller, document: dict[str, object]) -> list[FieldError]:
    """Of a valid spec. Anyone who can start runs could otherwise send rows, completions and secrets anywhere."""
    rewards = remote_rewards(document)
    names = [reward.options.secret for reward in rewards if reward.options.secret is not None]
    jobs = secret_services.for_jobs(caller.project.pk, names)
    hosts = secret_services.for_hosts(caller.project.pk, names)
    policy = OriginPolicy(frozenset(reward_origins()), HOW_TO_ALLOW)
    errors = []
    for reward in rewards:
        try:
            policy.check(parse_url(reward.options.url), ())
        except AddressBlocked as error:
            errors.append(FieldError(f"{reward.pointer}/url", "address_blocked", str(error)))
        if reward.options.secret is not None:
            errors += _secret_errors(caller, reward, reward.options.secret, jobs, hosts)
    return errors


def _secret_errors(
    caller: Caller, reward: RemoteReward, name: str, jobs: dict[str, list[str]], hosts: dict[str, list[str]]
) -> list[FieldError]:
    pointer = f"{reward.pointer}/secret"
    if name not in jobs:
        message = f"{unknown_secret_message(caller, name, [JobKind.REWARD])} --host HOST"
        return [FieldError(pointer, "unknown_secret", message)]
    errors = []
    if JobKind.REWARD not in jobs[name]:
        message = not_for_job_message(name, [JobKind.REWARD], jobs[name])
        errors.append(FieldError(pointer, "secret_not_for_job", message))
    if denied := secret_services.host_error(name, reward.options.url, hosts[name]):
        errors.append(FieldError(pointer, "secret_not_for_host", denied))
    return errors
