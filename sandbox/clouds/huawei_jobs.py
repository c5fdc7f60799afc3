"""Jobs of a simulated Huawei Cloud: a create or delete call is accepted first, and carried out in a job."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from sandbox.clouds.ledger import Machine, MachineState

TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.000Z"


class JobKind(StrEnum):
    """What a job does."""

    CREATE = "createServer"
    DELETE = "deleteServer"


@dataclass(frozen=True)
class Problem:
    """Why a job fails."""

    code: str
    reason: str


START_FAILED: Final = Problem("Ecs.0219", "Failed to create the instance: the guest did not start.")


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        server_ids: What it makes or ends, those of a failing job included, which will never be there.
        problem: A purchase that the market refuses fails with this at ``fails_at``.
        starts_at: Until then the job is still being prepared.
    """

    id: str
    kind: JobKind
    region: str
    begun_at: datetime
    starts_at: datetime
    server_ids: tuple[str, ...]
    problem: Problem | None = None
    fails_at: datetime | None = None


Find = Callable[[str], Machine | None]
_Token = tuple[str, str]


@dataclass
class JobBook:
    """All jobs of a cloud, and which one a client token opened."""

    _jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    _tokens: dict[_Token, tuple[str, str]] = field(default_factory=dict[_Token, tuple[str, str]])

    def enter(self, job: Job) -> Job:
        """Keep a job."""
        self._jobs[job.id] = job
        return job

    def find(self, region: str, job_id: str) -> Job | None:
        """A job of a region."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.region == region else None

    def remember(self, scope: str, token: str, mark: str, job: Job) -> None:
        """Keep which job a client token opened, and with which parameters."""
        self._tokens[(scope, token)] = (mark, job.id)

    def opened_with(self, scope: str, token: str) -> tuple[str, Job] | None:
        """The parameters' mark and the job of a token that was used before."""
        known = self._tokens.get((scope, token))
        return None if known is None else (known[0], self._jobs[known[1]])


def new_id() -> str:
    """A job's id."""
    return str(uuid.uuid4())


def view(job: Job, find: Find, now: datetime) -> dict[str, object]:
    """A job as ShowJob answers it."""
    parts = [_part(job, server_id, find(server_id), now) for server_id in job.server_ids]
    status = _status(job, [str(part["status"]) for part in parts], now)
    failed = next((part for part in parts if part["status"] == "FAIL"), None) if status == "FAIL" else None
    return {
        "job_id": job.id,
        "job_type": job.kind.value,
        "status": status,
        "begin_time": job.begun_at.strftime(TIME_FORMAT),
        "end_time": now.strftime(TIME_FORMAT) if status in ("SUCCESS", "FAIL") else None,
        "error_code": failed["error_code"] if failed else None,
        "fail_reason": failed["fail_reason"] if failed else None,
        "entities": {"sub_jobs_total": len(parts), "sub_jobs": parts},
    }


def _status(job: Job, parts: list[str], now: datetime) -> str:
    """INIT, RUNNING, and at the end of all parts FAIL when one of them failed."""
    if "RUNNING" in parts:
        return "INIT" if now < job.starts_at else "RUNNING"
    return "FAIL" if "FAIL" in parts else "SUCCESS"


def _part(job: Job, server_id: str, machine: Machine | None, now: datetime) -> dict[str, object]:
    status, problem = _fate(job, machine, now)
    entities = {"server_id": server_id, "errorcode_message": problem.reason if problem else None}
    return {
        "job_id": str(uuid.uuid5(uuid.UUID(job.id), server_id)),
        "job_type": "createSingleServer" if job.kind is JobKind.CREATE else "deleteSingleServer",
        "status": status,
        "begin_time": job.begun_at.strftime(TIME_FORMAT),
        "end_time": None if status == "RUNNING" else now.strftime(TIME_FORMAT),
        "error_code": problem.code if problem else None,
        "fail_reason": problem.reason if problem else None,
        "entities": entities,
    }


def _fate(job: Job, machine: Machine | None, now: datetime) -> tuple[str, Problem | None]:
    """How far one server of a job is."""
    if job.fails_at is not None:
        return ("FAIL", job.problem) if now >= job.fails_at else ("RUNNING", None)
    if job.kind is JobKind.DELETE:
        return ("SUCCESS" if machine is None or machine.state is MachineState.GONE else "RUNNING"), None
    if machine is None or machine.state is MachineState.PENDING:
        return "RUNNING", None
    return ("FAIL", START_FAILED) if machine.running_at is None else ("SUCCESS", None)


def counted(job: Job) -> Mapping[str, object]:
    """The answer to a create call."""
    return {"job_id": job.id, "serverIds": list(job.server_ids)}
