import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from domain.contracts.offers import ProviderName, RegionKey
from domain.contracts.pools import OrphanPolicy
from workers.errors import ConfigurationError
from workers.settings import PREFIX, Settings, read_settings

*FIRST, LAST = [repr(cloud.value) for cloud in ProviderName]
CLOUDS = f"{', '.join(FIRST)} or {LAST}"
REGIONS = "tencent:tencent-credentials:ap-guangzhou, aliyun:aliyun-credentials:cn-shenzhen"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in __import__("os").environ if name.startswith(PREFIX) or name == "KUBECONFIG"
    ]:
        monkeypatch.delenv(name)


def given(monkeypatch: pytest.MonkeyPatch, **settings: str) -> Settings:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return read_settings()


def test_settings_have_defaults_for_everything() -> None:
    settings = read_settings()
    assert settings.regions == ()
    assert settings.for_syncs().polling_interval_seconds == 30
    assert settings.for_pools().operator_namespace == "spotgpu-system"


def test_settings_read_regions_and_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given(monkeypatch, SPOTGPU_REGIONS=REGIONS, SPOTGPU_ENDPOINTS="tencent=http://127.0.0.1:8001")
    assert settings.regions[0] == RegionKey(
        provider=ProviderName.TENCENT, account="tencent-credentials", region="ap-guangzhou"
    )
    assert settings.endpoints == {ProviderName.TENCENT: "http://127.0.0.1:8001"}
    assert settings.for_pools().enabled_providers == (ProviderName.ALIYUN, ProviderName.TENCENT)
    assert settings.for_pools().served_regions == settings.regions


def test_settings_read_exchange_rates_for_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given(monkeypatch, SPOTGPU_EXCHANGE_RATES="USD/CNY=7.12@2026-11-28, EUR/CNY=8@2026-11-27")
    dollar, euro = settings.for_pools().exchange_rates
    assert (dollar.base, dollar.quote, dollar.rate) == ("USD", "CNY", Decimal("7.12"))
    assert dollar.as_of == datetime(2026, 11, 28, tzinfo=UTC)
    assert euro.source == "operator setting"


@pytest.mark.parametrize(
    "wrong", ["USD=7", "USD/CNY=0@2026-11-28", "USD/CNY=7.1@2026-13-28", "usd/cny=7@2026-1-1"]
)
def test_settings_refuse_a_wrong_exchange_rate(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="SPOTGPU_EXCHANGE_RATES.*" + re.escape(repr(wrong))):
        given(monkeypatch, SPOTGPU_EXCHANGE_RATES=wrong)


def test_settings_renew_dead_man_switches_at_half_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = given(monkeypatch, SPOTGPU_POOL__DEAD_MAN_SECONDS="172800").for_syncs()
    assert (syncs.dead_man_ahead_seconds, syncs.dead_man_renew_seconds) == (172_800, 86_400)
    with pytest.raises(ConfigurationError, match="neither 0 nor at least 14400"):
        given(monkeypatch, SPOTGPU_POOL__DEAD_MAN_SECONDS="600")


def test_settings_reach_pools_syncs_and_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given(
        monkeypatch,
        SPOTGPU_POLLING_INTERVAL_SECONDS="2",
        SPOTGPU_ORPHAN_POLICY="Report",
        SPOTGPU_SWEEP_MIN_AGE_SECONDS="60",
        SPOTGPU_POOL__CONFIRM_ABSENCE_SECONDS="1.5",
        SPOTGPU_OPERATOR_NAMESPACE="ops",
    )
    pools, syncs, sweeps = settings.for_pools(), settings.for_syncs(), settings.for_sweeps()
    assert pools.polling_interval_seconds == syncs.polling_interval_seconds == 2
    assert pools.orphan_policy is sweeps.orphan_policy is OrphanPolicy.REPORT
    assert (pools.confirm_absence_seconds, pools.newborn_seconds) == (1.5, 60)
    assert (sweeps.min_age_seconds, sweeps.operator_namespace, pools.operator_namespace) == (60, "ops", "ops")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SPOTGPU_REGIONS", "tencent", "'tencent' is not of the form provider:account:region"),
        ("SPOTGPU_REGIONS", "no-cloud:a:b", f"should be {CLOUDS}, not 'no-cloud'"),
        ("SPOTGPU_ENDPOINTS", "no-cloud=http://a", f"should be {CLOUDS}, not 'no-cloud'"),
        ("SPOTGPU_REGIONS", "aws:a:b,aws:a:b", "named twice: aws:a:b"),
        ("SPOTGPU_ENDPOINTS", "tencent=127.0.0.1:1", "is not of the form provider=http://host:port"),
        ("SPOTGPU_HEALTH_PORT", "70000", "less than or equal to 65535"),
        ("SPOTGPU_POLLING_INTERVAL_SECONDS", "0", "greater than 0"),
        ("SPOTGPU_POOL__NEWBORN_SECONDS", "soon", "valid number"),
        ("SPOTGPU_LOG_LEVEL", "verbose", "should match"),
        ("SPOTGPU_POLING_INTERVAL_SECONDS", "2", "did you mean SPOTGPU_POLLING_INTERVAL_SECONDS?"),
        ("SPOTGPU_POOL__NEWBORN_SECOND", "2", "did you mean SPOTGPU_POOL__NEWBORN_SECONDS?"),
        ("SPOTGPU_ELEPHANT", "2", "setting SPOTGPU_ELEPHANT is not known"),
        ("SPOTGPU_POOL", "{}", "setting SPOTGPU_POOL is not known"),
    ],
)
def test_settings_refuse_in_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        given(monkeypatch, **{name: value})
    assert name in str(refusal.value)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_settings_propose_nothing_that_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        given(monkeypatch, SPOTGPU_FOO="1")
    assert str(refusal.value) == "setting SPOTGPU_FOO is not known"


@pytest.mark.parametrize(
    "name",
    [
        "SPOTGPU_SERVICE_HOST",
        "SPOTGPU_BRIDGE_SERVICE_PORT_HTTP",
        "SPOTGPU_PORT",
        "SPOTGPU_PORT_8080_TCP_ADDR",
    ],
)
def test_settings_bear_what_kubernetes_sets_in_pods(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    given(monkeypatch, **{name: "tcp://10.0.0.1:8080"})


def test_kubeconfig_is_chosen_as_kubectl_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{there}")
    assert read_settings().kubeconfig_file == there
    assert given(monkeypatch, SPOTGPU_KUBECONFIG="/named").kubeconfig_file == Path("/named")


def test_every_setting_is_documented_in_the_model_and_in_the_docs() -> None:
    docs = Path("docs/operations.md").read_text()
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert name == "pool" or f"`{PREFIX}{name.upper()}`" in docs, name
