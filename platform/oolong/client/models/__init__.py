"""What the API returns, typed. Fields that a newer server adds are kept; statuses are plain text."""

from oolong.client.models.base import (
    ApiModel,
    Frame,
    ListPage,
    Page,
    ReplyScore,
    Session,
    SessionBranch,
    SessionState,
)
from oolong.client.models.generated import *  # noqa: F403
