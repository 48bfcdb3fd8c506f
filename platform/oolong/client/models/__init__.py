"""What the API answers, typed. Fields that a newer server adds are kept and ignored; statuses stay plain text."""

from oolong.client.models.account import (
    CreatedToken as CreatedToken,
)
from oolong.client.models.account import (
    Health as Health,
)
from oolong.client.models.account import (
    Me as Me,
)
from oolong.client.models.account import (
    Token as Token,
)
from oolong.client.models.account import (
    User as User,
)
from oolong.client.models.answer import (
    Answer as Answer,
)
from oolong.client.models.answer import (
    Named as Named,
)
from oolong.client.models.answer import (
    Page as Page,
)
from oolong.client.models.answer import (
    Reference as Reference,
)
from oolong.client.models.audit import (
    AuditEntry as AuditEntry,
)
from oolong.client.models.base_models import (
    Model as Model,
)
from oolong.client.models.checkpoints import (
    Checkpoint as Checkpoint,
)
from oolong.client.models.checkpoints import (
    CheckpointAlias as CheckpointAlias,
)
from oolong.client.models.checkpoints import (
    CheckpointFiles as CheckpointFiles,
)
from oolong.client.models.checkpoints import (
    CheckpointGate as CheckpointGate,
)
from oolong.client.models.checkpoints import (
    DownloadLink as DownloadLink,
)
from oolong.client.models.checkpoints import (
    GateCheck as GateCheck,
)
from oolong.client.models.checkpoints import (
    GateVerdict as GateVerdict,
)
from oolong.client.models.checkpoints import (
    Lineage as Lineage,
)
from oolong.client.models.checkpoints import (
    LineageEdge as LineageEdge,
)
from oolong.client.models.checkpoints import (
    LineageNode as LineageNode,
)
from oolong.client.models.checkpoints import (
    RetentionPlan as RetentionPlan,
)
from oolong.client.models.checkpoints import (
    RetentionPolicy as RetentionPolicy,
)
from oolong.client.models.checkpoints import (
    RetentionVerdict as RetentionVerdict,
)
from oolong.client.models.checkpoints import (
    StoredFile as StoredFile,
)
from oolong.client.models.datasets import (
    Column as Column,
)
from oolong.client.models.datasets import (
    Dataset as Dataset,
)
from oolong.client.models.datasets import (
    DatasetDifference as DatasetDifference,
)
from oolong.client.models.datasets import (
    DatasetRow as DatasetRow,
)
from oolong.client.models.datasets import (
    DatasetValidation as DatasetValidation,
)
from oolong.client.models.datasets import (
    DatasetVersion as DatasetVersion,
)
from oolong.client.models.datasets import (
    RenderedRow as RenderedRow,
)
from oolong.client.models.functions import (
    Function as Function,
)
from oolong.client.models.functions import (
    FunctionVersion as FunctionVersion,
)
from oolong.client.models.pool import (
    EnrolmentToken as EnrolmentToken,
)
from oolong.client.models.pool import (
    Node as Node,
)
from oolong.client.models.pool import (
    Pool as Pool,
)
from oolong.client.models.pool import (
    QueuedRun as QueuedRun,
)
from oolong.client.models.pool import (
    Quota as Quota,
)
from oolong.client.models.pool import (
    Slot as Slot,
)
from oolong.client.models.pool import (
    SlotHolder as SlotHolder,
)
from oolong.client.models.project import (
    Project as Project,
)
from oolong.client.models.project import (
    ProjectEvent as ProjectEvent,
)
from oolong.client.models.runs import (
    Alert as Alert,
)
from oolong.client.models.runs import (
    Attempt as Attempt,
)
from oolong.client.models.runs import (
    DryRun as DryRun,
)
from oolong.client.models.runs import (
    Job as Job,
)
from oolong.client.models.runs import (
    LatestCheckpoint as LatestCheckpoint,
)
from oolong.client.models.runs import (
    Parent as Parent,
)
from oolong.client.models.runs import (
    Plan as Plan,
)
from oolong.client.models.runs import (
    PlannedJob as PlannedJob,
)
from oolong.client.models.runs import (
    PlannedPlace as PlannedPlace,
)
from oolong.client.models.runs import (
    PlannedTime as PlannedTime,
)
from oolong.client.models.runs import (
    Preset as Preset,
)
from oolong.client.models.runs import (
    Progress as Progress,
)
from oolong.client.models.runs import (
    Run as Run,
)
from oolong.client.models.runs import (
    RunEvent as RunEvent,
)
from oolong.client.models.runs import (
    Validation as Validation,
)
from oolong.client.models.secrets import (
    Secret as Secret,
)
from oolong.client.models.sessions import (
    Session as Session,
)
from oolong.client.models.sessions import (
    SessionBranch as SessionBranch,
)
from oolong.client.models.sessions import (
    SessionState as SessionState,
)
from oolong.client.models.telemetry import (
    Document as Document,
)
from oolong.client.models.telemetry import (
    Frame as Frame,
)
from oolong.client.models.telemetry import (
    LogFile as LogFile,
)
from oolong.client.models.telemetry import (
    LogPart as LogPart,
)
from oolong.client.models.telemetry import (
    MetricName as MetricName,
)
from oolong.client.models.telemetry import (
    Metrics as Metrics,
)
from oolong.client.models.telemetry import (
    Series as Series,
)
from oolong.client.models.uploads import (
    Upload as Upload,
)
from oolong.client.models.uploads import (
    UploadSession as UploadSession,
)
