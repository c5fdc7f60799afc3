"""What the clouds' metadata services say about the end of a machine: text in, notice out.

Each parser takes the text of an answer with status 200. What it cannot read is an error, never "no notice".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from domain.contracts.interruptions import Notice, NoticeKind
from domain.contracts.offers import ProviderName

# Source: Tencent Cloud document 213/32487 (January 2024).
_TENCENT_PATH: Final = "/latest/meta-data/spot/termination-time"
# Source: Alibaba Cloud ECS, instance metadata (April 2026).
_ALIYUN_PATH: Final = "/latest/meta-data/instance/spot/termination-time"
# Source: a public agent for several clouds; no page of the vendor. To be checked on a real account.
_HUAWEI_PATH: Final = "/openstack/latest/spot/instance-action"
# Source: EC2 user guide, "Spot Instance interruption notices" and "EC2 instance rebalance recommendations".
_AWS_ACTION: Final = "/latest/meta-data/spot/instance-action"
_AWS_TIME: Final = "/latest/meta-data/spot/termination-time"
_AWS_REBALANCE: Final = "/latest/meta-data/events/recommendations/rebalance"

# Tencent's text names no zone and is the time of China, which has had no summer time since 1991.
_CHINA: Final = timezone(timedelta(hours=8), "Asia/Shanghai")
_TENCENT_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_SHOWN_CHARS: Final = 80


class UnreadableNoticeError(ValueError):
    """An answer is not what its vendor documents; the message shows the path and how the text begins."""


@dataclass(frozen=True)
class NoticeSource:
    """One path of a metadata service, and how to read it."""

    path: str
    parse: Callable[[str], Notice]


def _tencent_time(text: str) -> Notice:
    """``2026-03-01 07:30:00``, the time of China."""
    try:
        deadline = datetime.strptime(text.strip(), _TENCENT_FORMAT).replace(tzinfo=_CHINA).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _unreadable(_TENCENT_PATH, text, "a time like 2026-03-01 07:30:00") from error
    return _reclaim(ProviderName.TENCENT, _TENCENT_PATH, deadline)


def _aliyun_time(text: str) -> Notice:
    """``2026-02-28T23:30:00Z``."""
    return _reclaim(ProviderName.ALIYUN, _ALIYUN_PATH, _moment(_ALIYUN_PATH, text, text))


def _huawei_action(_: str) -> Notice:
    """Any answer: what stands in it is documented nowhere, so no deadline is taken from it."""
    return _reclaim(ProviderName.HUAWEI, _HUAWEI_PATH, None)


def _aws_action(text: str) -> Notice:
    """``{"action": "terminate", "time": "2026-02-28T23:30:00Z"}``; the action may be stop or hibernate."""
    said = _document(_AWS_ACTION, text, _InstanceAction)
    return _reclaim(ProviderName.AWS, _AWS_ACTION, _moment(_AWS_ACTION, said.time, text), said.action)


def _aws_time(text: str) -> Notice:
    """``2026-02-28T23:30:00Z``: what there was before the action, and still is beside it."""
    return _reclaim(ProviderName.AWS, _AWS_TIME, _moment(_AWS_TIME, text, text))


def _aws_rebalance(text: str) -> Notice:
    """``{"noticeTime": "2026-02-28T23:28:00Z"}``: a recommendation, which may come to nothing."""
    issued_at = _moment(_AWS_REBALANCE, _document(_AWS_REBALANCE, text, _Rebalance).notice_time, text)
    return Notice(provider=ProviderName.AWS, kind=NoticeKind.RISK, source=_AWS_REBALANCE, issued_at=issued_at)


NOTICE_SOURCES: Final[Mapping[ProviderName, tuple[tuple[NoticeSource, ...], ...]]] = {
    ProviderName.TENCENT: ((NoticeSource(_TENCENT_PATH, _tencent_time),),),
    ProviderName.ALIYUN: ((NoticeSource(_ALIYUN_PATH, _aliyun_time),),),
    ProviderName.HUAWEI: ((NoticeSource(_HUAWEI_PATH, _huawei_action),),),
    ProviderName.AWS: (
        (NoticeSource(_AWS_ACTION, _aws_action), NoticeSource(_AWS_TIME, _aws_time)),
        (NoticeSource(_AWS_REBALANCE, _aws_rebalance),),
    ),
}
"""Where each cloud says what. Sources of one group say the same: the first that gives a notice is enough."""


class _InstanceAction(BaseModel):
    model_config = ConfigDict(strict=True)

    action: str = Field(min_length=1)
    time: str


class _Rebalance(BaseModel):
    model_config = ConfigDict(strict=True)

    notice_time: str = Field(alias="noticeTime")


_Document = TypeVar("_Document", bound=BaseModel)


def _reclaim(provider: ProviderName, path: str, deadline: datetime | None, action: str = "") -> Notice:
    return Notice(provider=provider, kind=NoticeKind.RECLAIM, source=path, action=action, deadline=deadline)


def _document(path: str, text: str, model: type[_Document]) -> _Document:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        names = ", ".join(field.alias or name for name, field in model.model_fields.items())
        raise _unreadable(path, text, f"a JSON object with {names}") from error


def _moment(path: str, time: str, text: str) -> datetime:
    """A moment that names its zone, as UTC; ``text`` is the whole answer, for the message."""
    try:
        moment = datetime.fromisoformat(time.strip())
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _unreadable(path, text, "a time like 2026-02-28T23:30:00Z") from error
    raise _unreadable(path, text, "a time with its zone, like 2026-02-28T23:30:00Z")


def _unreadable(path: str, text: str, wanted: str) -> UnreadableNoticeError:
    return UnreadableNoticeError(f"{path} is not {wanted}: {text[:_SHOWN_CHARS]!r}")
