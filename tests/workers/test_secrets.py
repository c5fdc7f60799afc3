import asyncio

import pytest

from activities.telemetry.logs import MASK, SECRETS
from domain.contracts.errors import ClusterError, ErrorCode, ProviderError
from tests.fakes.provider import REGION
from workers.secrets import AccountCredentials, OperatorSecrets, check_account
from workers.settings import Settings
from workers.temporal_worker import tell_of_accounts

KEYS = {"accessKeyId": "id-of-the-account", "accessKeySecret": "the-secret-of-the-account"}


class Store:
    def __init__(self, **secrets: dict[str, str]) -> None:
        self.secrets = secrets
        self.reads = 0
        self.fault: ClusterError | None = None

    async def read_secret(self, name: str, namespace: str) -> dict[str, str]:
        self.reads += 1
        if self.fault:
            raise self.fault
        if name not in self.secrets:
            raise ClusterError(ErrorCode.NOT_FOUND, "not found", operation=f"get {name}", status=404)
        return self.secrets[name]


def secrets_of(store: Store, *, max_age_seconds: float = 30) -> OperatorSecrets:
    return OperatorSecrets(store, "ops", asyncio.get_running_loop(), max_age_seconds=max_age_seconds)


async def test_secret_is_read_from_a_thread_and_kept_for_a_while() -> None:
    store = Store(join={"token": "abc"})
    secrets = secrets_of(store)
    assert await asyncio.to_thread(secrets.read, "join") == {"token": "abc"}
    store.secrets["join"] = {"token": "new"}
    assert await asyncio.to_thread(secrets.read, "join") == {"token": "abc"}
    assert store.reads == 1


async def test_rotated_secret_works_without_a_restart() -> None:
    store = Store(join={"token": "old"})
    secrets = secrets_of(store, max_age_seconds=0)
    await asyncio.to_thread(secrets.read, "join")
    store.secrets["join"] = {"token": "new"}
    assert await asyncio.to_thread(secrets.read, "join") == {"token": "new"}


async def test_failed_reading_is_not_kept() -> None:
    store = Store(join={"token": "abc"})
    store.fault = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="get")
    secrets = secrets_of(store)
    with pytest.raises(ClusterError):
        await asyncio.to_thread(secrets.read, "join")
    store.fault = None
    assert await asyncio.to_thread(secrets.read, "join") == {"token": "abc"}


async def test_secret_is_used_again_while_the_api_server_is_away_but_not_when_it_was_taken_away() -> None:
    store = Store(join={"token": "abc"})
    secrets = secrets_of(store, max_age_seconds=0)
    await asyncio.to_thread(secrets.read, "join")
    store.fault = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="get")
    assert await asyncio.to_thread(secrets.read, "join") == {"token": "abc"}
    store.fault = None
    store.secrets.clear()
    with pytest.raises(ClusterError, match="not found"):
        await asyncio.to_thread(secrets.read, "join")
    store.fault = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="get")
    with pytest.raises(ClusterError, match="down"):
        await asyncio.to_thread(secrets.read, "join")


async def test_secret_that_cannot_be_read_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.secrets._CALL_SECONDS", 30)
    store = Store(one={"token": "1"}, other={"token": "2"})
    hangs = asyncio.Event()
    read = store.read_secret

    async def read_secret(name: str, namespace: str) -> dict[str, str]:
        if name == "one":
            await hangs.wait()
        return await read(name, namespace)

    store.read_secret = read_secret  # type: ignore[method-assign]  # one answer is held back
    secrets = secrets_of(store)
    held_up = asyncio.create_task(asyncio.to_thread(secrets.read, "one"))
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(asyncio.to_thread(secrets.read, "other"), 5) == {"token": "2"}
    hangs.set()
    assert await held_up == {"token": "1"}


async def test_values_that_were_read_are_masked_in_logs() -> None:
    await asyncio.to_thread(secrets_of(Store(join={"token": "a-very-odd-value"})).read, "join")
    assert SECRETS.clean("token a-very-odd-value") == f"token {MASK}"


async def test_a_secret_that_holds_no_text_is_as_useless_as_none() -> None:
    store = Store(**{REGION.account: KEYS})
    store.fault = ClusterError(ErrorCode.INVALID_REQUEST, "key 'k' holds no UTF-8 text", operation="get")
    with pytest.raises(ProviderError) as refused:
        await asyncio.to_thread(AccountCredentials(secrets_of(store), REGION).read)
    assert refused.value.code is ErrorCode.UNAUTHENTICATED
    assert f"/{REGION.account}: " in str(refused.value)


async def test_credentials_are_the_secret_named_like_the_account() -> None:
    store = Store(**{REGION.account: KEYS})
    assert await asyncio.to_thread(AccountCredentials(secrets_of(store), REGION).read) == KEYS


@pytest.mark.parametrize(
    ("store", "code", "said"),
    [
        (Store(), ErrorCode.UNAUTHENTICATED, "Secret ops/tencent-credentials does not exist"),
        (
            Store(**{REGION.account: {"accessKeyId": "id"}}),
            ErrorCode.UNAUTHENTICATED,
            "Secret ops/tencent-credentials lacks accessKeySecret",
        ),
        (
            Store(**{REGION.account: {**KEYS, "accessKeyId": "id-of-the-account\n"}}),
            ErrorCode.UNAUTHENTICATED,
            "Secret ops/tencent-credentials: accessKeyId with a space, a line end",
        ),
        (
            Store(**{REGION.account: {**KEYS, "token": "a b", "projectId.cn-north-4": "项目"}}),
            ErrorCode.UNAUTHENTICATED,
            "projectId.cn-north-4 and token with",
        ),
    ],
    ids=["no Secret", "missing key", "line end", "no ASCII"],
)
async def test_credentials_that_are_missing_are_named(store: Store, code: ErrorCode, said: str) -> None:
    with pytest.raises(ProviderError, match=said) as refusal:
        await asyncio.to_thread(AccountCredentials(secrets_of(store), REGION).read)
    assert refusal.value.code is code
    assert said in await check_account(secrets_of(store), REGION.account)


async def test_credentials_of_a_silent_cluster_are_no_wrong_key() -> None:
    store = Store()
    store.fault = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="get")
    with pytest.raises(ProviderError) as failure:
        await asyncio.to_thread(AccountCredentials(secrets_of(store), REGION).read)
    assert failure.value.code is ErrorCode.UNAVAILABLE


async def test_account_with_everything_has_no_problem() -> None:
    assert await check_account(secrets_of(Store(**{REGION.account: KEYS})), REGION.account) == ""


async def test_worker_names_a_missing_secret_and_starts_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await tell_of_accounts(Settings(regions=(REGION,)), secrets_of(Store()))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert vars(record)["problem"] == "Secret ops/tencent-credentials does not exist"


async def test_secret_that_names_a_role_needs_no_keys_and_masks_nothing() -> None:
    role = {"kind": "workload-identity", "roleArn": "acs:ram::1:role/spotgpu-reader"}
    store = Store(**{REGION.account: role})
    secrets = secrets_of(store)
    assert await check_account(secrets, REGION.account) == ""
    assert await asyncio.to_thread(AccountCredentials(secrets, REGION).read) == role
    assert role["roleArn"] in SECRETS.clean(role["roleArn"])
