"""Notices in each vendor's words, and what is none of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.interruptions import Notice, NoticeKind
from domain.contracts.offers import ProviderName
from node_agent.notices import NOTICE_SOURCES, UnreadableNoticeError

END = datetime(2026, 2, 28, 23, 30, tzinfo=UTC)
TENCENT = "/latest/meta-data/spot/termination-time"
ALIYUN = "/latest/meta-data/instance/spot/termination-time"
HUAWEI = "/openstack/latest/spot/instance-action"
ACTION = "/latest/meta-data/spot/instance-action"
TIME = "/latest/meta-data/spot/termination-time"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"


def read(provider: ProviderName, path: str, text: str) -> Notice:
    sources = {source.path: source for group in NOTICE_SOURCES[provider] for source in group}
    return sources[path].parse(text)


@pytest.mark.parametrize(
    ("provider", "path", "text", "action"),
    [
        pytest.param(ProviderName.TENCENT, TENCENT, "2026-03-01 07:30:00", "", id="Tencent: China, no zone"),
        pytest.param(ProviderName.TENCENT, TENCENT, "2026-03-01 07:30:00\n", "", id="Tencent: line break"),
        pytest.param(ProviderName.ALIYUN, ALIYUN, "2026-02-28T23:30:00Z", "", id="Alibaba: UTC"),
        pytest.param(
            ProviderName.AWS, ACTION, '{"action": "stop", "time": "2026-02-28T23:30:00Z"}', "stop", id="AWS"
        ),
        pytest.param(
            ProviderName.AWS,
            ACTION,
            '{\n\t"action": "terminate",\n\t"time": "2026-03-01T00:30:00+01:00",\n\t"new": 1\n}',
            "terminate",
            id="AWS: other zone, layout and field",
        ),
        pytest.param(ProviderName.AWS, TIME, "2026-02-28T23:30:00Z", "", id="AWS: what there was before"),
        pytest.param(ProviderName.AWS, TIME, "2026-02-28T23:30:00.000Z", "", id="AWS: with fractions"),
    ],
)
def test_notice_is_read_with_its_deadline_in_utc(
    provider: ProviderName, path: str, text: str, action: str
) -> None:
    notice = read(provider, path, text)
    assert notice == Notice(
        provider=provider, kind=NoticeKind.RECLAIM, source=path, action=action, deadline=END
    )
    assert notice.deadline is not None
    assert notice.deadline.tzinfo is UTC


@pytest.mark.parametrize("text", ["", "{}", '{"time": "2026-02-28T23:30:00Z"}', "terminate"])
def test_any_answer_of_huawei_is_a_notice_without_deadline(text: str) -> None:
    notice = read(ProviderName.HUAWEI, HUAWEI, text)
    assert (notice.kind, notice.deadline) == (NoticeKind.RECLAIM, None)


def test_rebalance_recommendation_is_a_risk_without_deadline() -> None:
    notice = read(ProviderName.AWS, REBALANCE, '{"noticeTime": "2026-02-28T23:30:00Z"}')
    assert (notice.kind, notice.deadline, notice.issued_at) == (NoticeKind.RISK, None, END)


@pytest.mark.parametrize(
    ("provider", "path", "text", "wanted"),
    [
        (ProviderName.TENCENT, TENCENT, "", "a time like 2026-03-01 07:30:00: ''"),
        (ProviderName.TENCENT, TENCENT, "2026-03-01", "a time like"),
        (ProviderName.TENCENT, TENCENT, "01/03/2026 07:30:00", "a time like"),
        (ProviderName.TENCENT, TENCENT, "2026-02-28T23:30:00Z", "a time like"),
        (ProviderName.TENCENT, TENCENT, "0001-01-01 00:00:00", "a time like"),
        (ProviderName.ALIYUN, ALIYUN, "2026-03-01 07:30:00", "a time with its zone"),
        (ProviderName.ALIYUN, ALIYUN, "soon", "a time like"),
        (ProviderName.ALIYUN, ALIYUN, "0001-01-01T00:00:00+08:00", "a time like"),
        (ProviderName.AWS, ACTION, "", "a JSON object with action, time"),
        (ProviderName.AWS, ACTION, "2026-02-28T23:30:00Z", "a JSON object with action, time"),
        (ProviderName.AWS, ACTION, '{"time": "2026-02-28T23:30:00Z"}', "a JSON object with action, time"),
        (ProviderName.AWS, ACTION, '{"action": "terminate", "time": 1772321400}', "a JSON object"),
        (ProviderName.AWS, ACTION, '{"action": "terminate", "time": ""}', "a time like"),
        (ProviderName.AWS, ACTION, '{"action": "", "time": "2026-02-28T23:30:00Z"}', "a JSON object"),
        (ProviderName.AWS, TIME, "not-a-time", "a time like"),
        (ProviderName.AWS, REBALANCE, '{"notice_time": "2026-02-28T23:30:00Z"}', "with noticeTime"),
        (ProviderName.AWS, REBALANCE, '{"noticeTime": "2026-02-28T23:30:00"}', "a time with its zone"),
        (ProviderName.AWS, REBALANCE, "[" * 5000, "a JSON object with noticeTime"),
    ],
)
def test_answer_that_cannot_be_read_is_an_error_that_shows_it(
    provider: ProviderName, path: str, text: str, wanted: str
) -> None:
    with pytest.raises(UnreadableNoticeError) as raised:
        read(provider, path, text)
    message = str(raised.value)
    assert message.startswith(f"{path} is not ")
    assert wanted in message
    assert repr(text[:80]) in message
    assert len(message) < 300


PLACES = [(p, s.path) for p, groups in NOTICE_SOURCES.items() for group in groups for s in group]


@pytest.mark.parametrize(("provider", "path"), PLACES)
@given(text=st.one_of(st.text(), st.from_regex(r"\A\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)?\Z")))
def test_any_text_is_a_notice_or_an_error(provider: ProviderName, path: str, text: str) -> None:
    for answer in (text, f'{{"action": "stop", "time": "{text}", "noticeTime": "{text}"}}'):
        try:
            notice = read(provider, path, answer)
        except UnreadableNoticeError:
            continue
        assert notice.provider is provider
        assert all(at is None or at.tzinfo is UTC for at in (notice.deadline, notice.issued_at))
