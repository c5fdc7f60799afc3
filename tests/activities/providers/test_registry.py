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


@pytest.mark.parametrize("name", ProviderName)
def test_adapters_are_built_without_keys_or_network(name: ProviderName) -> None:
    key = RegionKey(provider=name, account="account-1", region="us-east-1")
    credentials: Credentials = NoKeys()
    provider = build_adapter(key, credentials, {key.provider: "http://127.0.0.1:1"})
    assert provider.key == key
    provider.close()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        pytest.param("activities.providers.tencent", "no adapter for tencent", id="no adapter"),
        pytest.param("tencentcloud", r"tencentcloud is missing; install spotgpu\[tencent\]", id="no SDK"),
    ],
)
def test_cloud_that_this_build_lacks_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, missing: str, said: str
) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(ProviderError, match=said) as refusal:
        build_adapter(REGION, NoKeys(), {})
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_fake_secrets_are_a_reader() -> None:
    assert FakeSecrets(a={"k": "v"}).read("a") == {"k": "v"}


def test_instrumented_keeps_the_key() -> None:
    assert InstrumentedProvider(FakeProvider()).key == REGION
