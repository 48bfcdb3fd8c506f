"""Django's settings. Every value from outside comes through `environment.load_config`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from control_plane.config import database_settings, load_config

ENVIRONMENT = load_config()
BASE_DIR = Path(__file__).resolve().parents[2]  # of the checkout

SECRET_KEY = ENVIRONMENT.secret_key
DEBUG = ENVIRONMENT.debug
ALLOWED_HOSTS = ENVIRONMENT.allowed_hosts
CSRF_TRUSTED_ORIGINS = ENVIRONMENT.trusted_origins

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "control_plane.core",
    "control_plane.accounts",
    "control_plane.webhooks",
    "control_plane.assets",
    "control_plane.checkpoints",
    "control_plane.fleet",
    "control_plane.runs",
    "control_plane.experiments",
    "control_plane.telemetry",
    "control_plane.ops",
]

MIDDLEWARE = [
    "control_plane.core.api.middleware.request_id",
    "control_plane.core.security.security_headers.security_headers",
    "control_plane.core.api.compression.compress_answers",
    "control_plane.core.security.request_context.note_origin",
    "control_plane.core.infra.request_logging.log_requests",
    "control_plane.core.api.middleware.reject_nul",
    "django.middleware.security.SecurityMiddleware",
    "control_plane.core.api.spa.DashboardMiddleware",
    "control_plane.core.api.etags.conditional_reads",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "control_plane.urls"
ASGI_APPLICATION = "control_plane.asgi.application"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

DATABASES = {"default": database_settings(ENVIRONMENT.database_url)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]

# allauth speaks OpenID Connect for accounts.oidc; no page, mail or stored token of its own.
SOCIALACCOUNT_ADAPTER = "control_plane.accounts.identity.oidc.SocialAccountAdapter"
SOCIALACCOUNT_STORE_TOKENS = False
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*"]

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
STATIC_URL = "/static/"

# Bodies are streamed to disk by the views that take files; everything else is small JSON.
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024

# Browsers keep cookies per host, not per port: two installations on one machine must not log each other out.
# Named by the address and the folder: a digest of SECRET_KEY would let anybody try out guesses of it.
_NAMED_BY = f"{ENVIRONMENT.public_url} {ENVIRONMENT.data_dir}"
_INSTALLATION = hashlib.sha256(_NAMED_BY.encode()).hexdigest()[:8]
SESSION_COOKIE_NAME = f"oolong_session_{_INSTALLATION}"
CSRF_COOKIE_NAME = f"oolong_csrf_{_INSTALLATION}"
SESSION_COOKIE_SECURE = ENVIRONMENT.secure_cookies
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 14 * 24 * 3600
CSRF_COOKIE_SECURE = ENVIRONMENT.secure_cookies
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "control_plane.core.api.errors.csrf_failure"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True  # the dashboard asks GET /api/v1/session/csrf
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if ENVIRONMENT.secure_cookies else 0
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SILENCED_SYSTEM_CHECKS = [
    "security.W005",  # HSTS for subdomains and preloading are for the domain's owner to decide
    "security.W021",
    "security.W008",  # TLS ends at the proxy, which redirects; probes and agents on loopback speak plain HTTP
]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "control_plane.accounts.identity.authentication.TokenAuthentication",
        "control_plane.accounts.identity.authentication.CallerSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["control_plane.accounts.identity.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["control_plane.core.api.request_parsing.StrictJSONParser"],
    "DEFAULT_PAGINATION_CLASS": None,
    "DEFAULT_SCHEMA_CLASS": "control_plane.core.api.schema.ProblemAwareSchema",
    "EXCEPTION_HANDLER": "control_plane.core.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Oolong",
    "DESCRIPTION": "Asynchronous reinforcement learning of language models on a shared GPU pool.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "docExpansion": "none"},  # over two hundred operations
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "COMPONENT_SPLIT_PATCH": False,  # what a PATCH needs, its serializer says
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "control_plane.core.api.schema.add_problem_responses",
        "control_plane.core.api.schema_run_spec.add_run_spec",
        "control_plane.core.api.schema_links.add_links",
    ],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "RunStatus": "control_plane.core.api.schema.RUN_STATUSES",
        "InvitationStatus": "control_plane.core.api.schema.INVITATION_STATUSES",
        "NodeStatus": "control_plane.core.api.schema.NODE_STATUSES",
        "CalendarState": "control_plane.fleet.calendar_api.STATES",
        "Role": "control_plane.core.api.schema.ROLES",
        "SweepStatus": "control_plane.experiments.sweep_api.STATUSES",
        "Goal": "control_plane.core.api.schema.GOALS",
        "RunKind": "control_plane.core.api.schema.RUN_KINDS",
        "ModelKind": "control_plane.core.api.schema.MODEL_KINDS",
        "CheckpointKind": "control_plane.core.api.schema.CHECKPOINT_KINDS",
        "LoginMethod": "control_plane.accounts.identity.services.LOGIN_METHODS",
        "WebhookEventType": "control_plane.webhooks.event_types.TYPE_NAMES",
        "SourceKind": "control_plane.core.api.schema.SOURCE_KINDS",
    },
}

CELERY_BROKER_URL = ENVIRONMENT.redis_url
# Otherwise a worker makes a new connection, and a pool of them, for each of several ticks a second.
# `single_instance` replaces one that broke.
CELERY_DB_REUSE_MAX = 1000

# Which of our processes this is: web, worker, beat or manage.
SERVICE = os.environ.get("OOLONG_SERVICE", "manage")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "oolong.logs.formatter", "service": SERVICE, "form": ENVIRONMENT.log_format}
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    # Their lines go through the root's handler, in our form.
    "loggers": {
        "django": {"handlers": [], "propagate": True},
        "django.request": {"level": "ERROR"},
        "httpx": {"level": "WARNING"},
        "opentelemetry": {"level": "WARNING"},
    },
}
