"""Every read of accounts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Value

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import (
    ApiToken,
    AuditEntry,
    Invitation,
    Membership,
    Project,
    ProjectSecret,
    Role,
    Team,
    TeamMembership,
    User,
)
from control_plane.accounts.tokens.scopes import (
    INSTALLATION_SCOPES,
    POOL_ADMIN_SCOPES,
    RANK,
    ROLE_SCOPES,
    TEAM_ADMIN_SCOPES,
    expand,
)
from control_plane.accounts.tokens.token_hashing import digest
from control_plane.core.api.errors import or_not_found


@dataclass(frozen=True)
class Member:
    user: User
    project_role: str | None
    team_role: str | None

    @property
    def role(self) -> str:
        """The one that counts."""
        return higher_role(self.project_role, self.team_role)


def higher_role(*roles: str | None) -> str:
    return max((role for role in roles if role), key=RANK.__getitem__)


@dataclass(frozen=True)
class _Standing:
    role: str | None  # in the project
    team_admin: bool
    pool_admin: bool  # of at least one pool


def _standing(user: User, project: Project) -> _Standing:
    """What the user holds, in one query."""
    here = Membership.objects.filter(user=user, project=project).values_list("role", Value("project"))
    team = TeamMembership.objects.filter(user=user, team=project.team_id).values_list("role", Value("team"))
    pools = user.pools_administered.values_list(Value("admin"), Value("pool"))
    found = set(here.union(team, pools, all=True))
    roles = [role for role, of in found if of != "pool"]
    return _Standing(
        role=max(roles, key=RANK.__getitem__, default=None),
        team_admin=(Role.ADMIN, "team") in found,
        pool_admin=any(of == "pool" for _, of in found),
    )


def caller_in(user: User, project: Project, token: ApiToken | None = None) -> Caller | None:
    """Who this user is in a project, at this moment; None when it is not one of theirs."""
    standing = _standing(user, project)
    if standing.role is None or not user.is_active:
        return None
    scopes = ROLE_SCOPES[standing.role]
    if standing.team_admin:
        scopes |= TEAM_ADMIN_SCOPES
    if standing.pool_admin:
        scopes |= POOL_ADMIN_SCOPES
    if user.is_staff:
        scopes |= INSTALLATION_SCOPES
    if token is not None:
        scopes &= expand(token.scopes)
    return Caller(user, project, standing.role, scopes, token)


def caller_again(user_id: str, project: Project, *, token_id: str = "") -> Caller | None:
    """Who made something signed, with the power that they have in the project now; None when they have none left.

    `token_id`: of the token with which it was made. What was made with a token ends when that is revoked.
    """
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        return None
    if not token_id:
        return caller_in(user, project)
    token = ApiToken.objects.filter(pk=token_id, user=user, project=project, revoked_at=None).first()
    return caller_in(user, project, token) if token is not None else None


def caller_of_token(text: str, *, now: datetime) -> Caller | None:
    """Who a bearer token speaks for; None when it is unknown, expired, revoked, or its user is gone."""
    sha256 = digest(text)
    token = (
        ApiToken.objects.filter(
            Q(sha256=sha256) | Q(previous_sha256=sha256, previous_until__gt=now), revoked_at=None
        )
        .select_related("user", "project__team")
        .first()
    )
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        return None
    return caller_in(token.user, token.project, token)


def caller_of_user(user: User, project_id: str = "") -> Caller | None:
    """Who a browser session speaks for: the user in the named one of their projects, or in the first."""
    found = projects_of(user)
    project = (found.filter(pk=project_id) if project_id else found).first()
    return caller_in(user, project) if project else None


def projects_of(user: User) -> QuerySet[Project]:
    """The projects that a user has a role in, oldest first."""
    own = Q(pk__in=Membership.objects.filter(user=user).values("project"))
    teams = Q(team__in=TeamMembership.objects.filter(user=user).values("team"))
    return Project.objects.filter(own | teams).select_related("team").order_by("pk")


def tokens(caller: Caller, *, everybodys: bool = False) -> QuerySet[ApiToken]:
    """One's own live tokens of the project; everybody's for who has tokens:admin."""
    found = ApiToken.objects.filter(project=caller.project, revoked_at=None).select_related("user")
    return found if everybodys and "tokens:admin" in caller.scopes else found.filter(user=caller.user)


def revocable_tokens(caller: Caller) -> QuerySet[ApiToken]:
    return tokens(caller, everybodys=True)


def rotatable_tokens(caller: Caller) -> QuerySet[ApiToken]:
    """One's own; and those of service accounts for who manages them. Nobody gets another person's secret."""
    mine = Q(user=caller.user)
    if "members:admin" in caller.scopes:
        mine |= Q(user__service_of=caller.project)
    found = ApiToken.objects.filter(mine, project=caller.project, revoked_at=None)
    return found.select_related("user")


def service_accounts(caller: Caller) -> QuerySet[User]:
    """With their `role` and the number of their `live_tokens`."""
    return User.objects.filter(service_of=caller.project, is_active=True).annotate(
        role=F("memberships__role"),  # they have one membership
        live_tokens=Count("tokens", filter=Q(tokens__revoked_at=None)),
    )


def service_account(caller: Caller, identity: str) -> User:
    return or_not_found(service_accounts(caller).filter(pk=identity).first(), "service account", identity)


def invitations(caller: Caller) -> QuerySet[Invitation]:
    """Of the project; and for admins of the team, those into the team that were made in its other projects."""
    own = Q(project=caller.project)
    if "team:admin" in caller.scopes:
        own |= Q(project__team=caller.project.team_id, whole_team=True)
    return Invitation.objects.filter(own).select_related("created_by", "accepted_by", "project")


def members(caller: Caller) -> list[Member]:
    """The people of the project, by name: with their role in the team where they have one."""
    here = dict(Membership.objects.filter(project=caller.project).values_list("user", "role"))
    team = dict(TeamMembership.objects.filter(team=caller.project.team_id).values_list("user", "role"))
    people = User.objects.filter(pk__in={*here, *team}, service_of=None).order_by("username")
    return [Member(user, here.get(user.pk), team.get(user.pk)) for user in people]


def team_members(caller: Caller) -> list[Member]:
    return [member for member in members(caller) if member.team_role is not None]


def teams(caller: Caller) -> QuerySet[Team]:
    """The caller's teams; all of them for who administers the installation."""
    if "installation:admin" in caller.scopes:
        return Team.objects.order_by("pk")
    return Team.objects.filter(pk__in=projects_of(caller.user).values("team")).order_by("pk")


def projects(caller: Caller) -> QuerySet[Project]:
    """The caller's projects; with a token, those of its project's team only."""
    found = projects_of(caller.user)
    return found if caller.token is None else found.filter(team=caller.project.team_id)


def listed_projects(caller: Caller) -> QuerySet[Project]:
    """The same, each with the caller's `project_role` and `team_role`."""
    own = Membership.objects.filter(user=caller.user, project=OuterRef("pk")).values("role")
    team = TeamMembership.objects.filter(user=caller.user, team=OuterRef("team")).values("role")
    return projects(caller).annotate(project_role=Subquery(own), team_role=Subquery(team))


def project(caller: Caller) -> Project:
    return Project.objects.select_related("team").get(pk=caller.project.pk)


def project_events(caller: Caller) -> QuerySet[AuditEntry]:
    """Of the audit log, what changed the project itself; every reader of the project may see it."""
    return AuditEntry.objects.filter(project=caller.project.pk, action__startswith="project.")


def audit_entries(caller: Caller) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(project=caller.project.pk)


def secrets(caller: Caller) -> QuerySet[ProjectSecret]:
    return ProjectSecret.objects.filter(project=caller.project)
