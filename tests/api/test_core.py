"""A fast, fixed part of the fuzz for every run of the suite: the document is true of what is answered.

Each operation gets one request that fits the document and one that breaks it in one place.
"""

from __future__ import annotations

import pytest

from tests.api.fuzzing import ask_every_operation
from tests.unit.control_plane.access.objects import World

# Bodies that fit the schema and may be refused all the same, with what a schema cannot say.
MAY_BE_REFUSED = {
    "POST /agent/imports/{import_id}/uploads": "what is no commit ends the import, and is no fault of the form",
    "POST /agent/telemetry": "bytes that begin with a line of JSON",
    "PUT /agent/uploads/{upload_id}/parts/{number}": "the upload has fewer parts, or the part another size",
    "PUT /agent/imports/{import_id}/parts/{number}": "the upload has fewer parts, or the part another size",
    "PUT /upload-sessions/{session_id}/parts/{number}": "the upload has fewer parts, or the part another size",
    "POST /checkpoint-gates": "an assertion is an expression over metrics that exist",
    "POST /dataset-versions/{version_id}/split": "ratios of splits together are at most 1",
    "POST /functions": "the source must be Python that defines the function",
    "POST /members": "the user must be in the team",
    "POST /team/members": "the user must exist",
    "POST /pools/{pool_name}/admins": "the user must exist",
    "POST /pools/{pool_name}/teams": "the team must exist",
    "POST /pools/{pool_name}/reservations": "the team must exist, and the pool have the slots",
    "POST /pools/{pool_name}/maintenance": "the nodes must exist, and the end be after the start",
    "POST /models": "the upload or the path must exist",
    "POST /playgrounds": "the base model or checkpoint must exist",
    "POST /reward-tests": "dataset, model and reward must exist",
    "POST /runs/{run_id}/runtime": "fields of the run's spec, checked with it as a whole",
    "POST /runs/{run_id}/clone": "the merged spec is checked as a whole",
    "POST /runs": "the spec is checked as a whole: docs/reference/run-spec.md",
    "POST /runs/simulate": "the spec is checked as a whole, and the model or the GPU must be known",
    "POST /run-templates": "of two fields that exclude each other a template has one",
    "POST /run-templates/{template_id}/versions": "likewise",
    "POST /sweeps": "plan and spec are checked as a whole",
    "POST /uploads/fetch": "the host must be there",
    "POST /webhooks": "the host must be there and have a public address",
}
# Bodies that break the schema and are taken all the same.
MAY_BE_TAKEN = {
    "POST /runs/validate": "the answer says what is wrong with the spec",
    "POST /runs/plan": "likewise",
    "POST /runs/what-if": "likewise",
}


@pytest.mark.timeout(600)
def test_the_document_is_true_of_what_every_operation_answers(world: World) -> None:
    """Status codes, content types, headers and schemas; what fits is taken, what does not is refused."""
    found = ask_every_operation(world, examples=1)
    assert found.failures == [], "\n".join(found.failures)
    refused = {name: found.notes[f"rejected {name}"] for name in set(found.rejected) - set(MAY_BE_REFUSED)}
    assert refused == {}, (
        f"{sorted(refused)}: these fit the document: make the document or the check say the same"
    )
    taken = {name: found.notes[f"accepted {name}"] for name in set(found.accepted) - set(MAY_BE_TAKEN)}
    assert taken == {}, f"{sorted(taken)}: these break the document"
    assert found.operations > 200 and found.requests > 350
    assert len(found.answered[2]) > found.operations / 3, "too few handlers were reached"
