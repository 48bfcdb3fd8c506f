from __future__ import annotations

from typing import ClassVar, Literal

from django.contrib.auth.models import AbstractBaseUser, UserManager
from django.db import models

from control_plane.accounts.audit.audit_entry import AuditEntry as AuditEntry
from control_plane.accounts.secrets.project_secret import ProjectSecret as ProjectSecret
from control_plane.accounts.tokens.stream_ticket import StreamTicket as StreamTicket
from control_plane.core.infra import clock, ids

Level = Literal["project", "team"]  # of a role: in one project, or in all projects of the team


class User(AbstractBaseUser):
    id = models.CharField(primary_key=True, max_length=40, default=ids.user_id, editable=False)
    username = models.CharField(max_length=120, unique=True)
    email = models.EmailField(blank=True)
    is_active = models.BooleanField(default=True)  # type: ignore[misc]  # a plain True in the base class
    date_joined = models.DateTimeField(auto_now_add=True)
    is_staff = models.BooleanField(default=False)  # administers the installation: makes teams and pools
    # A service account: owned by this project, without a password; its user name ends in the project's id.
    service_of = models.ForeignKey(
        "Project", on_delete=models.CASCADE, null=True, blank=True, related_name="service_accounts"
    )

    USERNAME_FIELD = "username"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects = UserManager()

    @property
    def display_name(self) -> str:
        """The user name; of a service account the part before its project's id."""
        return self.username.partition("@")[0] if self.service_of_id else self.username


class Team(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.team_id, editable=False)
    name = models.CharField(max_length=120, unique=True)


class Project(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.project_id, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=120)
    tested_rewards = models.BooleanField(default=False)  # rl runs need a green test of their reward

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="project_name_in_team")]


class Role(models.TextChoices):
    """Each may do what those above it may."""

    VIEWER = "viewer"
    EDITOR = "editor"
    OPERATOR = "operator"
    ADMIN = "admin"


def role_choices() -> list[tuple[str, str]]:
    return Role.choices


class Membership(models.Model):
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=role_choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="one_role_per_project")]


class TeamMembership(models.Model):
    """A role in every project of a team: what a user's role in one of them never falls below."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="team_memberships")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=role_choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "team"], name="one_role_per_team")]


class Invitation(models.Model):
    """A single-use way into a project, or into all of its team. Only the secret's SHA-256 is kept."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.invitation_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    whole_team = models.BooleanField(default=False)
    role = models.CharField(max_length=16, choices=role_choices)
    note = models.CharField(max_length=200, blank=True)  # for whom it is, in the words of who made it
    sha256 = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    accepted_by = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="+")
    revoked_at = models.DateTimeField(null=True)

    @property
    def level(self) -> Level:
        return "team" if self.whole_team else "project"

    @property
    def status(self) -> str:
        if self.accepted_at:
            return "accepted"
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at <= clock.now() else "open"


class ApiToken(models.Model):
    """A bearer token of a user in one project. Only its SHA-256 is kept: 256 random bits need no slow hash."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.token_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16)  # the first characters, to tell tokens apart
    sha256 = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    # After a rotation the secret before it works for a while, so that nobody is cut off in between.
    previous_sha256 = models.CharField(max_length=64, null=True, unique=True)
    previous_until = models.DateTimeField(null=True)


class LoginLink(models.Model):
    """A single-use way in for a user without a password."""

    sha256 = models.CharField(primary_key=True, max_length=64)
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class LoginFailure(models.Model):
    """One refused password, or one that is being checked; kept for the throttle's window."""

    username = models.CharField(max_length=120)
    address = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["username", "at"]), models.Index(fields=["address", "at"])]


class LoginAddress(models.Model):
    """Where a user has signed in from: guesses from elsewhere do not slow this user down there."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    address = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "address"], name="one_row_per_login_address")]
