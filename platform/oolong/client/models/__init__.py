"""What the API answers, typed. Fields that a newer server adds are kept and ignored; statuses stay plain text."""

from oolong.client.models.account import (
    CreatedToken,
    Health,
    Me,
    Token,
    User,
)
from oolong.client.models.answer import (
    Answer,
    Listing,
    Named,
    Page,
)
from oolong.client.models.audit import (
    AuditEntry,
)
from oolong.client.models.base_models import (
    Model,
)
from oolong.client.models.checkpoints import (
    Checkpoint,
    CheckpointAlias,
    CheckpointFiles,
    CheckpointGate,
    DownloadLink,
    GateCheck,
    GateVerdict,
    Lineage,
    LineageEdge,
    LineageNode,
    RetentionPlan,
    RetentionPolicy,
    RetentionVerdict,
    StoredFile,
)
from oolong.client.models.datasets import (
    Column,
    Dataset,
    DatasetDifference,
    DatasetRow,
    DatasetValidation,
    DatasetVersion,
    RenderedRow,
)
from oolong.client.models.functions import (
    Function,
    FunctionVersion,
)
from oolong.client.models.pool import (
    EnrolmentToken,
    Node,
    Pool,
    QueuedRun,
    Quota,
    Slot,
    SlotHolder,
)
from oolong.client.models.project import (
    Project,
    ProjectEvent,
)
from oolong.client.models.reward_tests import (
    RewardTest as RewardTest,
)
from oolong.client.models.runs import (
    Alert,
    Attempt,
    DatasetReference,
    DryRun,
    Job,
    LatestCheckpoint,
    ModelReference,
    Parent,
    Plan,
    PlannedJob,
    PlannedPlace,
    PlannedTime,
    Preset,
    Progress,
    Run,
    RunEvent,
    Validation,
)
from oolong.client.models.secrets import (
    Secret,
)
from oolong.client.models.sessions import (
    Session,
    SessionBranch,
    SessionState,
)
from oolong.client.models.telemetry import (
    Document,
    Frame,
    LogFile,
    LogPart,
    MetricName,
    Metrics,
    Series,
)
from oolong.client.models.telemetry import (
    Trajectory as Trajectory,
)
from oolong.client.models.uploads import (
    Upload,
    UploadSession,
)
from oolong.client.models.webhooks import (
    CreatedWebhook as CreatedWebhook,
)
from oolong.client.models.webhooks import (
    DeliveryTry as DeliveryTry,
)
from oolong.client.models.webhooks import (
    Webhook as Webhook,
)
from oolong.client.models.webhooks import (
    WebhookDelivery as WebhookDelivery,
)
from oolong.client.models.webhooks import (
    WebhookEvent as WebhookEvent,
)
