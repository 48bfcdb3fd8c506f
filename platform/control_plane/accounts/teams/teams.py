"""Every write to teams, and the projects that they get."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.identity.services import save_named
from control_plane.accounts.models import Membership, Project, Role, Team, TeamMembership

FIRST_PROJECT = "default"


def create_team(caller: Caller, *, name: str, now: datetime) -> tuple[Team, Project]:
    """A team with a first project. Who makes it is its admin until they have invited others and leave."""
    with transaction.atomic():
        team = Team(name=name)
        save_named(team, f"there is a team {name!r} already")
        TeamMembership.objects.create(user=caller.user, team=team, role=Role.ADMIN)
        project = Project.objects.create(team=team, name=FIRST_PROJECT)
        audit_log.record("team.create", target=("team", team.pk, name), at=now, project=project.pk)
    return team, project


def rename_team(caller: Caller, name: str, *, now: datetime) -> Team:
    with transaction.atomic():
        team = Team.objects.select_for_update().get(pk=caller.project.team_id)
        if team.name != name:
            changed = {"before": team.name, "after": name}
            team.name = name
            save_named(team, f"there is a team {name!r} already")
            audit_log.record("team.rename", target=("team", team.pk, name), at=now, data=changed)
    return team


def create_project(caller: Caller, *, name: str, now: datetime) -> Project:
    """A project in the caller's team; its admins are the team's, and who made it."""
    with transaction.atomic():
        project = Project(team=caller.project.team, name=name)
        save_named(project, f"the team has a project {name!r} already")
        Membership.objects.create(user=caller.user, project=project, role=Role.ADMIN)
        audit_log.record("project.create", target=("project", project.pk, name), at=now, project=project.pk)
    return project
