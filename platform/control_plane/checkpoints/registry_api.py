"""The checkpoint registry: list, one, its files, download with a token or a signed link, aliases, pins."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.assets.storage import store
from control_plane.assets.storage.blob_response import blob_response
from control_plane.checkpoints import registry as services
from control_plane.checkpoints import selectors
from control_plane.checkpoints.checkpoint_files import files_of
from control_plane.checkpoints.download_links import checkpoint_of_link, make_link
from control_plane.checkpoints.merged_download import merged_response
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.checkpoints.serializers import AliasSerializer, CheckpointSerializer
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import Problem, conflict, or_not_found
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.query_params import choice
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.schema import CHECKPOINT_CONTENTS, CHECKPOINT_KINDS, NONEMPTY
from control_plane.core.infra import clock
from control_plane.core.infra.clock import rfc3339

ALIAS = name_field(
    r"^[a-z][a-z0-9_-]*$", "small letters, digits and _ - beginning with a letter", max_length=60
)
LONGEST_LINK_SECONDS = 7 * 24 * 3600
REFERENCE = "id, alias, run@20 or run@latest"
BINARY = {(200, "application/octet-stream"): OpenApiTypes.BINARY}


class CheckpointChangeSerializer(StrictSerializer):
    pinned = serializers.BooleanField()


class StoredFileSerializer(ResponseSerializer):
    name = serializers.CharField()
    bytes = serializers.IntegerField()
    offset = serializers.IntegerField(
        help_text="of its first byte in the download: a ranged GET fetches it alone"
    )
    sha256 = serializers.CharField(help_text="by the checkpoint's manifest; empty for the manifest itself")


class CheckpointFilesSerializer(ResponseSerializer):
    id = serializers.CharField()
    tar_sha256 = serializers.CharField()
    bytes = serializers.IntegerField()
    files = StoredFileSerializer(many=True)


class LinkRequestSerializer(StrictSerializer):
    expires_in_seconds = serializers.IntegerField(
        min_value=60, max_value=LONGEST_LINK_SECONDS, required=False, default=3600
    )


class LinkSerializer(ResponseSerializer):
    url = serializers.CharField(help_text="fetches the tar without a token; takes Range")
    files_url = serializers.CharField(help_text="its files with offsets and sha256, without a token too")
    expires_at = serializers.DateTimeField(help_text="never after the token's with which it was made")
    sha256 = serializers.CharField()
    bytes = serializers.IntegerField()


class CheckpointsView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @endpoint(
        "list_checkpoints",
        page=CheckpointSerializer,
        parameters=[
            OpenApiParameter("run", str, description="only of this run: its ID or its name"),
            OpenApiParameter("state", str, enum=["LOCAL", "STORED", "DELETED"]),
            OpenApiParameter("kind", str, enum=CHECKPOINT_KINDS),
            OpenApiParameter("content", str, enum=CHECKPOINT_CONTENTS),
            OpenApiParameter(
                "final", bool, description="only those that ended their run, or only the others"
            ),
            OpenApiParameter("alias", str, description="only the one that this alias names"),
        ],
    )
    def get(self, request: Request) -> object:
        """List checkpoints.

        Checkpoints of the project, newest first. Filter by run, kind, content, state and alias.
        """
        found = selectors.checkpoints(caller_of(request))
        if run := request.query_params.get("run"):
            found = found.filter(Q(run_id=run) | Q(run_name=run))
        if state := choice(request, "state", CheckpointState.values):
            found = found.filter(state=state)
        if kind := choice(request, "kind", CHECKPOINT_KINDS):
            found = found.filter(kind=kind)
        if content := choice(request, "content", CHECKPOINT_CONTENTS):
            found = found.filter(content=content)
        if final := choice(request, "final", ["true", "false"]):
            found = found.filter(final=final == "true")
        if alias := request.query_params.get("alias"):
            found = found.filter(aliases__name=alias)
        return found


class ResolveCheckpointView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @endpoint(
        "resolve_checkpoint",
        returns=CheckpointSerializer,
        parameters=[OpenApiParameter("ref", NONEMPTY, required=True, description=REFERENCE)],
    )
    def get(self, request: Request) -> object:
        """Resolve a checkpoint reference.

        The checkpoint that a reference such as `prod`, `run@latest` or an id names now.
        """
        reference = request.query_params.get("ref", "")
        return or_not_found(selectors.find_checkpoint(caller_of(request), reference), "checkpoint", reference)


class CheckpointView(ApiView):
    scopes = {"GET": "checkpoints:read", "PATCH": "checkpoints:write"}

    @endpoint("get_checkpoint", returns=CheckpointSerializer)
    def get(self, request: Request, checkpoint_id: str) -> object:
        """Get a checkpoint.

        Its step, metrics, state, size and aliases.
        """
        return selectors.checkpoint_for(caller_of(request), checkpoint_id)

    @conditional
    @endpoint("change_checkpoint", body=CheckpointChangeSerializer, returns=CheckpointSerializer)
    def patch(self, request: Request, checkpoint_id: str) -> object:
        """Pin or unpin a checkpoint.

        The retention policy never deletes a pinned checkpoint.
        """
        checkpoint = selectors.checkpoint_for(caller_of(request), checkpoint_id)
        fields = body_of(CheckpointChangeSerializer, request)
        return services.pin(checkpoint, fields["pinned"])


class CheckpointDownloadView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @extend_schema(
        operation_id="download_checkpoint",
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses=BINARY,
    )
    def get(self, request: Request, checkpoint_id: str) -> HttpResponseBase:
        """Download a checkpoint.

        The tar file of a stored checkpoint. Range headers resume a download.
        """
        return _send(request, selectors.checkpoint_for(caller_of(request), checkpoint_id))


class MergedModelView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @extend_schema(operation_id="download_merged_checkpoint", responses=BINARY)
    def get(self, request: Request, checkpoint_id: str) -> HttpResponseBase:
        """Download the merged model of an adapter.

        A tar of a Hugging Face directory: the base model with the adapter merged into its weights. It is
        merged while it is sent, so a download does not resume. MANIFEST.json, its last file, has the SHA-256
        of the others.
        """
        checkpoint = selectors.checkpoint_for(caller_of(request), checkpoint_id)
        need_stored(checkpoint)
        return merged_response(request._request, checkpoint)


class CheckpointFilesView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @extend_schema(operation_id="list_checkpoint_files", responses=CheckpointFilesSerializer)
    def get(self, request: Request, checkpoint_id: str) -> Response:
        """List the files of a checkpoint.

        Names, sizes, offsets in the tar and SHA-256.
        """
        return Response(_files(selectors.checkpoint_for(caller_of(request), checkpoint_id)))


class CheckpointLinkView(ApiView):
    scopes = {"POST": "checkpoints:read"}

    @extend_schema(
        operation_id="create_checkpoint_link", request=LinkRequestSerializer, responses={201: LinkSerializer}
    )
    @idempotent(secret=True)
    def post(self, request: Request, checkpoint_id: str) -> Response:
        """Create a download link.

        A signed address that works until it expires, without a token. It ends early when its creator loses
        access.
        """
        caller = caller_of(request)
        checkpoint = selectors.checkpoint_for(caller, checkpoint_id)
        fields = body_of(LinkRequestSerializer, request)
        need_stored(checkpoint)
        path, expires_at = make_link(
            caller, checkpoint, seconds=fields["expires_in_seconds"], now=clock.now()
        )
        url = f"{settings.ENVIRONMENT.public_url.rstrip('/')}{path}"
        document = {
            "url": url, "files_url": f"{url}/files", "expires_at": rfc3339(expires_at),
            "sha256": checkpoint.tar_sha256, "bytes": checkpoint.bytes,
        }  # fmt: skip
        return Response(document, status=201)


class SignedDownloadView(ApiView):
    """The signature in the address is the credential."""

    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]

    @extend_schema(
        operation_id="download_checkpoint_by_link",
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses=BINARY,
        auth=[],
    )
    def get(self, request: Request, link: str) -> HttpResponseBase:
        """Download a checkpoint by a signed link.

        The signature in the address is the credential. The answer is a tar file; Range headers resume a
        download.
        """
        return _send(request, checkpoint_of_link(link, now=clock.now()))


class SignedFilesView(ApiView):
    """What lies in the download of a signed link, for who has nothing but the link."""

    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]

    @extend_schema(operation_id="list_checkpoint_files_by_link", responses=CheckpointFilesSerializer, auth=[])
    def get(self, request: Request, link: str) -> Response:
        """List the files of a checkpoint by a signed link.

        Names, offsets and SHA-256 of the files in the tar, for a client that has nothing but the link.
        """
        return Response(_files(checkpoint_of_link(link, now=clock.now())))


class AliasesView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @endpoint("list_checkpoint_aliases", page=AliasSerializer, order="name")
    def get(self, request: Request) -> object:
        """List checkpoint aliases.

        The named checkpoints of the project, such as `prod`.
        """
        return selectors.checkpoint_aliases(caller_of(request))


def need_stored(checkpoint: Checkpoint) -> None:
    if checkpoint.state == CheckpointState.DELETED:
        raise Problem(410, "deleted", f"the bytes of checkpoint {checkpoint.pk} were freed")
    if checkpoint.state != CheckpointState.STORED:
        raise conflict("not_stored", "the checkpoint is only on its node so far; try again when it is STORED")


def _files(checkpoint: Checkpoint) -> dict[str, Any]:
    need_stored(checkpoint)
    with store.open_blob(checkpoint.tar_sha256) as archive:
        found = files_of(archive)
    return {
        "id": checkpoint.pk, "tar_sha256": checkpoint.tar_sha256, "bytes": checkpoint.bytes,
        "files": [asdict(file) for file in found],
    }  # fmt: skip


def _send(request: Request, checkpoint: Checkpoint) -> HttpResponseBase:
    need_stored(checkpoint)
    filename = f"{checkpoint.pk}-step-{checkpoint.step}.tar"
    return blob_response(request._request, checkpoint.tar_sha256, filename=filename)
