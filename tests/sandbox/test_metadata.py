"""The metadata service: ids at once, notices in each vendor's words once there is one."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession

from domain.contracts.offers import ProviderName
from sandbox.metadata import MetadataServer, metadata_of

END = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("provider", "path", "text"),
    [
        pytest.param(
            ProviderName.TENCENT,
            "/latest/meta-data/spot/termination-time",
            "2026-03-02 07:30:00",
            id="Tencent: UTC+8 without a zone",
        ),
        pytest.param(
            ProviderName.ALIYUN,
            "/latest/meta-data/instance/spot/termination-time",
            "2026-03-01T23:30:00Z",
            id="Alibaba: UTC with Z",
        ),
    ],
)
def test_metadata_has_the_notice_in_the_vendors_words(provider: ProviderName, path: str, text: str) -> None:
    assert path not in metadata_of(provider, "i-1", None)
    assert metadata_of(provider, "i-1", END)[path] == text


def test_metadata_of_huawei_has_the_id_in_the_openstack_document_alone() -> None:
    texts = metadata_of(ProviderName.HUAWEI, "7e1a6c0b", None)
    assert {path: json.loads(text) for path, text in texts.items()} == {
        "/openstack/latest/meta_data.json": {"uuid": "7e1a6c0b"}
    }


async def test_metadata_server_serves_each_machine_its_own() -> None:
    texts = {name: metadata_of(ProviderName.TENCENT, name, None) for name in ("ins-1", "ins-2")}
    server = MetadataServer(texts.get)
    url = await server.start()
    async with ClientSession() as client:
        answers = [
            await client.get(f"{url}/machines/{name}/latest/meta-data/{leaf}")
            for name, leaf in (
                ("ins-1", "instance-id"),
                ("ins-2", "instance-id"),
                ("ins-3", "instance-id"),
                ("ins-1", "spot/termination-time"),
            )
        ]
        seen = [(answer.status, await answer.text()) for answer in answers]
    await server.stop()
    assert seen == [(200, "ins-1"), (200, "ins-2"), (404, ""), (404, "")]
