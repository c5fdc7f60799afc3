import pytest

from activities.providers.base import Credentials
from activities.providers.instrumented import InstrumentedProvider
from activities.providers.registry import ProviderRegistry, build_adapter
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.offers import ProviderName, RegionKey
from tests.fakes.provider import REGION, FakeProvider, FakeSecrets

OTHER = RegionKey(provider=ProviderName.ALIYUN, account="aliyun-credentials", region="cn-shenzhen")


class NoKeys:
    def read(self) -> dict[str, str]:
        raise AssertionError("an adapter is built without reading its keys")


def test_registry_builds_a_served_region_once() -> None:
    built: list[FakeProvider] = []

    def build(key: RegionKey) -> FakeProvider:
        built.append(FakeProvider(key))
        return built[-1]

    registry = ProviderRegistry([REGION, OTHER], build)
    assert registry.provider(REGION) is registry.provider(REGION)
    assert registry.provider(OTHER).key == OTHER
    assert [str(provider.key) for provider in built] == [str(REGION), str(OTHER)]
    registry.close()
    assert all(provider.closed for provider in built)


def test_registry_refuses_a_region_that_is_not_served() -> None:
    registry = ProviderRegistry([OTHER], FakeProvider)
    with pytest.raises(ProviderError, match="SPOTGPU_REGIONS") as refusal:
        registry.provider(REGION)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", [REGION, OTHER], ids=["tencent", "aliyun"])
def test_adapters_are_built_without_keys_or_network(key: RegionKey) -> None:
    credentials: Credentials = NoKeys()
    provider = build_adapter(key, credentials, {key.provider: "http://127.0.0.1:1"})
    assert provider.key == key
    provider.close()


def test_cloud_without_an_adapter_is_refused_by_name() -> None:
    key = RegionKey(provider=ProviderName.AWS, account="a", region="us-east-1")
    with pytest.raises(ProviderError, match="no adapter for aws"):
        build_adapter(key, NoKeys(), {})


def test_cloud_whose_sdk_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'sdk'", name="sdk")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ProviderError, match=r"install spotgpu\[tencent\]"):
        build_adapter(REGION, NoKeys(), {})


def test_fake_secrets_are_a_reader() -> None:
    assert FakeSecrets(a={"k": "v"}).read("a") == {"k": "v"}


def test_instrumented_keeps_the_key() -> None:
    assert InstrumentedProvider(FakeProvider()).key == REGION
