import pytest

from domain.contracts.offers import ProviderName
from domain.contracts.provider_ids import provider_id


@pytest.mark.parametrize(
    ("provider", "region", "zone", "expected"),
    [
        pytest.param(
            "tencent", "ap-guangzhou", "ap-guangzhou-3", "qcloud:///100003/id", id="tencent guangzhou"
        ),
        pytest.param("tencent", "ap-shanghai", "ap-shanghai-5", "qcloud:///200005/id", id="tencent shanghai"),
        pytest.param(
            "tencent", "ap-new", "ap-new-1", "qcloud:///ap-new-1/id", id="tencent region without number"
        ),
        pytest.param("tencent", "ap-beijing", "odd", "qcloud:///odd/id", id="tencent zone without number"),
        pytest.param("aliyun", "cn-shenzhen", "cn-shenzhen-d", "cn-shenzhen.id", id="aliyun"),
        pytest.param("huawei", "cn-north-4", "cn-north-4a", "huaweicloud://id", id="huawei"),
        pytest.param("aws", "us-east-1", "us-east-1a", "aws:///us-east-1a/id", id="aws"),
    ],
)
def test_provider_id_has_the_form_of_its_cloud(provider: str, region: str, zone: str, expected: str) -> None:
    assert provider_id(ProviderName(provider), region, zone, "id") == expected
