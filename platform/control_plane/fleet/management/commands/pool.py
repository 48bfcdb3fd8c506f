from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.accounts.models import Team, User
from control_plane.core.api.errors import Problem
from control_plane.fleet import pools
from control_plane.fleet.access import teams_of
from control_plane.fleet.models import Pool
from control_plane.fleet.pool_api import POOL_NAME, POOL_NAME_RULE

_PAIRS = (
    ("add-team", "team"),
    ("remove-team", "team"),
    ("add-admin", "username"),
    ("remove-admin", "username"),
)


class Command(BaseCommand):
    help = "List, create and change pools, bind teams and appoint admins."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="every pool, its teams and its admins")
        create = verbs.add_parser("create", help="a pool without nodes")
        change = verbs.add_parser("set", help="open or close a pool, allow or forbid uploaded loss functions")
        for verb in (create, change):
            verb.add_argument("pool")
            verb.add_argument("--all-teams", choices=("on", "off"), help="every team may use the pool")
            verb.add_argument("--trainer-code", choices=("on", "off"), help="allow uploaded loss functions")
        for name, what in _PAIRS:
            verb = verbs.add_parser(name)
            verb.add_argument("pool")
            verb.add_argument(what)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(_act(options))
        except Problem as problem:
            raise CommandError(problem.detail) from problem


def _act(options: dict[str, Any]) -> str:
    verb = options["verb"]
    if verb == "list":
        return "\n".join(_line(pool) for pool in Pool.objects.order_by("name")) or "there are no pools"
    settings = {
        name: options[name] == "on" for name in ("all_teams", "trainer_code") if options.get(name) is not None
    }
    if verb == "create":
        if not POOL_NAME.fullmatch(options["pool"]):
            raise CommandError(f"{options['pool']!r} is not a pool name: {POOL_NAME_RULE}")
        return _line(pools.create_pool(options["pool"], **settings))
    pool = Pool.objects.filter(pk=options["pool"]).first()
    if pool is None:
        raise CommandError(f"there is no pool {options['pool']!r}; see: python3 manage.py pool list")
    if verb == "set":
        return _line(pools.change_pool(pool, **settings))
    if verb.endswith("team"):
        team = Team.objects.filter(name=options["team"]).first()
        if team is None:
            raise CommandError(f"there is no team {options['team']!r}")
        (pools.bind_team if verb == "add-team" else pools.unbind_team)(pool, team)
        return _line(pool)
    user = User.objects.filter(username=options["username"]).first()
    if user is None:
        raise CommandError(f"there is no user {options['username']!r}")
    if verb == "add-admin":
        pools.appoint_admin(pool, user)
    else:
        pools.remove_admin(pool, user.pk)
    return _line(pool)


def _line(pool: Pool) -> str:
    teams = (
        "all teams"
        if pool.all_teams
        else ", ".join(teams_of(pool.pk).values_list("name", flat=True)) or "no team"
    )
    admins = ", ".join(pool.admins.order_by("user__username").values_list("user__username", flat=True))
    code = "on" if pool.trainer_code else "off"
    return (
        f"{pool.name}: used by {teams}; admins: {admins or 'installation admins only'}; trainer code {code}"
    )
