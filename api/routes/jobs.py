"""Jobs: submit, look at, cancel, follow."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse

from api.body import body_as
from api.dependencies import Cluster, Streams
from api.events import encode_end, encode_event, job_event_stream
from api.openapi import answer, refusals, request_body
from api.schemas import Event, Job, MetricsPoint, SubmitRequest, Submitted
from geartrain.config import config_json_schema
from geartrain.job_states import ENDED_STATES

router = APIRouter(tags=["jobs"])

_LARGEST_NUMBER = 2**63 - 1

_STREAM_EXAMPLE = encode_event(Event.example) + encode_end("succeeded", "3 of 3 passes")

_SCHEMA_EXAMPLE = {
    "title": "JobConfig",
    "type": "object",
    "properties": {"name": {"title": "Name", "type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


@router.post(
    "/v1/jobs",
    status_code=201,
    response_model=Submitted,
    responses={
        **answer(Submitted.example, status=201, description="Queued; `Location` is the job's path."),
        **refusals(400, 413, 415, 422),
    },
    openapi_extra=request_body(SubmitRequest, SubmitRequest.example),
)
def submit(
    facade: Cluster, wanted: Annotated[SubmitRequest, Depends(body_as(SubmitRequest))], response: Response
) -> Any:
    """Queue a job. Its config is checked first, with its data files and their headers; 422 names the field."""
    submitted = facade.submit(wanted.config, wanted.task)
    response.headers["Location"] = f"/v1/jobs/{quote(submitted['id'], safe='')}"
    return submitted


@router.get(
    "/v1/jobs",
    response_model=list[Job],
    response_model_exclude_unset=True,
    responses={**answer([Job.example]), **refusals()},
)
def list_jobs(facade: Cluster) -> Any:
    """All jobs, oldest first."""
    return facade.jobs()


@router.get(
    "/v1/jobs/{job}",
    response_model=Job,
    response_model_exclude_unset=True,
    responses={**answer(Job.example), **refusals(404, 422)},
)
def show_job(facade: Cluster, job: str) -> Any:
    """One job: its state with the reason, how far it is, and its result once it has ended."""
    return facade.job(job)


@router.delete(
    "/v1/jobs/{job}",
    response_model=Job,
    response_model_exclude_unset=True,
    responses={
        **answer({**Job.example, "state": "cancelled", "reason": "cancelled by a call"}),
        **refusals(404, 409, 422),
    },
)
def cancel_job(facade: Cluster, job: str) -> Any:
    """Cancel a queued or running job; the answer is the job as it is then. A job that has ended is a conflict."""
    return facade.cancel(job)


@router.get(
    "/v1/jobs/{job}/metrics",
    response_model=list[MetricsPoint],
    responses={**answer([MetricsPoint.example]), **refusals(404, 422)},
)
def job_metrics(
    facade: Cluster,
    job: str,
    since: Annotated[float, Query(ge=0, allow_inf_nan=False, description="Unix time, seconds.")] = 0.0,
) -> Any:
    """The time series of a job after `since`."""
    return facade.metrics(job, since)


@router.get(
    "/v1/jobs/{job}/events",
    response_class=StreamingResponse,
    responses={
        **answer(_STREAM_EXAMPLE, media="text/event-stream", description="Events until the job has ended."),
        204: {"description": "The job has ended, and `Last-Event-ID` is its last event: do not connect again."},
        **refusals(404, 422),
    },
)
def job_events(
    facade: Cluster,
    streams: Streams,
    job: str,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=_LARGEST_NUMBER, description="Number of the last event that was seen.")
    ] = None,
) -> Response:
    """Server-sent events: one message per event, its number as id; a last message `end` with the state it ended in."""
    after = 0 if last_event_id is None else last_event_id
    if facade.job(job)["state"] in ENDED_STATES and last_event_id is not None and not facade.events(job, after):
        # The answer that makes a browser's EventSource stop connecting again.
        return Response(status_code=204)
    return StreamingResponse(
        job_event_stream(facade, job, after, streams),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


@router.get("/v1/config-schema", responses={**answer(_SCHEMA_EXAMPLE), **refusals()})
def config_schema() -> dict[str, Any]:
    """The JSON schema of a job's config."""
    return config_json_schema()
