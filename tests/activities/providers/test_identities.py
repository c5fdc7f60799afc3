"""Roles of pods at all four clouds: the SDKs' own means, no network, and a token file that changes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.credentials import AssumeRoleWithWebIdentityCredentialFetcher
from botocore.exceptions import ClientError
from huaweicloudsdkcore.auth.internal import FederalAccessor
from tencentcloud.common.common_client import CommonClient
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from activities.providers.base import Provider
from activities.providers.identities import TOKEN_FILE, UnusableIdentityError, identity_in
from activities.providers.instrumented import InstrumentedProvider
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import Created, OfferQuery, Rejected
from domain.contracts.offers import CapacityType
from sandbox.clouds.server import served
from tests.activities.providers.cloud_case import CloudCase, Keys, found_cases


class TokenService:
    """Stands in for the four clouds' token services, inside their SDKs, and notes the tokens that it saw."""

    def __init__(self, case: CloudCase, token_file: Path) -> None:
        self.case = case
        self.file = token_file
        self.seen: list[str] = []
        self.lifetime = timedelta(hours=1)
        self.refuses = False

    @property
    def ends(self) -> datetime:
        return datetime.now(UTC) + self.lifetime

    def tencent(self, client: CommonClient, action: str, params: dict[str, Any], **_: object) -> object:
        assert action == "AssumeRoleWithWebIdentity"
        assert (params["ProviderId"], params["RoleArn"]) == ("idp-1", "role-1")
        self.seen.append(params["WebIdentityToken"])
        if self.refuses:
            raise TencentCloudSDKException("InvalidParameter.WebIdentityTokenError", "expired")
        keys = {
            "TmpSecretId": self.case.keys["accessKeyId"],
            "TmpSecretKey": self.case.keys["accessKeySecret"],
            "Token": "session",
        }
        return {"Response": {"Credentials": keys, "ExpiredTime": int(self.ends.timestamp())}}

    def aliyun(self, request: Any, _options: object) -> object:
        assert request.query["Action"] == "AssumeRoleWithOIDC"
        assert (request.query["OIDCProviderArn"], request.query["RoleArn"]) == ("idp-1", "role-1")
        self.seen.append(request.query["OIDCToken"])
        keys = {
            "AccessKeyId": self.case.keys["accessKeyId"],
            "AccessKeySecret": self.case.keys["accessKeySecret"],
            "SecurityToken": "session",
            "Expiration": self.ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"Code": "AuthenticationFail.OIDCToken.Expired"} if self.refuses else {"Credentials": keys}
        return _HttpAnswer(400 if self.refuses else 200, json.dumps(body).encode())

    def huawei(self, accessor: FederalAccessor, **options: Any) -> object:
        assert options["idp_id"] == "idp-1"
        self.seen.append(accessor._get_content(options["id_token_file"]))
        if self.refuses:
            from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException, SdkError

            raise ClientRequestException(401, SdkError("r-1", "IAM.0011", "token expired"))
        return accessor._process_credential(
            {
                "credential": {
                    "access": self.case.keys["accessKeyId"],
                    "secret": self.case.keys["accessKeySecret"],
                    "securitytoken": "session",
                    "expires_at": self.ends.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                }
            }
        )

    def aws(self, fetcher: AssumeRoleWithWebIdentityCredentialFetcher) -> object:
        arguments = fetcher._assume_role_kwargs()
        assert arguments["RoleArn"] == "role-1"
        self.seen.append(arguments["WebIdentityToken"])
        if self.refuses:
            error = {"Error": {"Code": "ExpiredTokenException", "Message": "expired"}}
            raise ClientError(error, "AssumeRoleWithWebIdentity")
        keys = {
            "AccessKeyId": self.case.keys["accessKeyId"],
            "SecretAccessKey": self.case.keys["accessKeySecret"],
            "SessionToken": "session",
            "Expiration": self.ends,
        }
        return {"Credentials": keys}


class _HttpAnswer:
    def __init__(self, status_code: int, body: bytes) -> None:
        self.status_code, self.body = status_code, body


@pytest.fixture(params=found_cases(), ids=lambda case: case.provider.value)
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenService:
    token_file = tmp_path / "token"
    token_file.write_text("token-1\n")
    service = TokenService(request.param, token_file)
    monkeypatch.setattr(
        CommonClient, "call_json", lambda client, *args, **options: service.tencent(client, *args, **options)
    )
    monkeypatch.setattr("alibabacloud_credentials.provider.oidc.TeaCore.do_action", service.aliyun)
    monkeypatch.setattr(
        FederalAccessor, "get_credential", lambda accessor, **options: service.huawei(accessor, **options)
    )
    monkeypatch.setattr(
        AssumeRoleWithWebIdentityCredentialFetcher, "_get_credentials", lambda fetcher: service.aws(fetcher)
    )
    return service


def role(service: TokenService, **changes: str) -> Keys:
    kept = {name: value for name, value in service.case.keys.items() if name.startswith("projectId")}
    return Keys(
        {
            **kept,
            "kind": "workload-identity",
            "roleArn": "role-1",
            "identityProvider": "idp-1",
            "tokenFile": str(service.file),
            **changes,
        }
    )


@contextmanager
def opened(service: TokenService, keys: Keys) -> Iterator[Provider]:
    cloud = service.case.simulator(service.case.settings())
    if keys.values.get("kind"):
        cloud.account.tokens = {service.case.keys["accessKeyId"]: "session"}
    with served(cloud) as base_url:
        provider = service.case.build(service.case.key, keys, urlsplit(base_url).netloc, 10)
        yield InstrumentedProvider(provider)
        provider.close()


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ProviderError) as raised:
        call()
    assert raised.value.code is ErrorCode.UNAUTHENTICATED, raised.value
    return str(raised.value)


def test_role_of_a_pod_buys_and_reads_with_one_set_of_keys(service: TokenService) -> None:
    with opened(service, role(service)) as provider:
        result = provider.launch(service.case.request(), "#!/bin/sh\n")
        assert isinstance(result, Created), result
        assert len(provider.describe([result.instance_id])) == 1
    assert [token.strip() for token in service.seen] == ["token-1"]


def test_role_of_a_pod_reads_on_demand_prices(service: TokenService) -> None:
    case = service.case
    query = OfferQuery(instance_types=(case.instance_type,), capacity_type=CapacityType.ON_DEMAND)
    with opened(service, role(service)) as provider:
        offers = provider.offers(query, [case.kind])
    assert {offer.price is not None for offer in offers} == {case.states_on_demand_prices}
    assert {token.strip() for token in service.seen} == {"token-1"}


def test_role_is_taken_on_again_with_the_token_that_the_file_has_then(service: TokenService) -> None:
    service.lifetime = timedelta(minutes=5)  # shorter than what each SDK renews ahead
    with opened(service, role(service)) as provider:
        provider.describe([service.case.unknown_id])
        service.file.write_text("token-2")
        service.lifetime = timedelta(hours=1)
        provider.describe([service.case.unknown_id])
    assert service.seen[0].strip() == "token-1"
    assert service.seen[-1].strip() == "token-2"


def test_role_that_is_refused_names_the_secret_and_never_the_token(service: TokenService) -> None:
    service.refuses = True
    with opened(service, role(service)) as provider:
        text = refused(lambda: provider.describe([service.case.unknown_id]))
        result = provider.launch(service.case.request(), "#!/bin/sh\n")
    assert isinstance(result, Rejected)
    assert result.code is ErrorCode.UNAUTHENTICATED, "nothing was sent, so its outcome is known"
    for each in (text, result.message):
        assert service.case.key.account in each
        assert "is refused" in each
        assert "token-1" not in each


def test_role_without_a_token_file_says_where_it_was_looked_for(service: TokenService) -> None:
    service.file.unlink()
    with opened(service, role(service)) as provider:
        text = refused(lambda: provider.describe([service.case.unknown_id]))
    assert f"tokenFile {service.file} cannot be read" in text
    assert service.case.key.account in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "magic"}, "kind 'magic'"),
        ({"roleArn": "", "identityProvider": " "}, "kind workload-identity needs "),
    ],
)
def test_role_that_is_described_wrongly_is_a_condition_and_no_crash(
    service: TokenService, changes: dict[str, str], told: str
) -> None:
    with opened(service, role(service, **changes)) as provider:
        text = refused(lambda: provider.describe([service.case.unknown_id]))
    assert told in text
    assert service.case.key.account in text


def test_wrong_keys_name_the_secret(service: TokenService) -> None:
    with opened(service, Keys({**service.case.keys, "accessKeySecret": "another"})) as provider:
        text = refused(lambda: provider.describe([service.case.unknown_id]))
    assert text.startswith(f"Secret {service.case.key.account}: ")


def test_secret_with_keys_is_no_role_and_a_role_has_defaults() -> None:
    assert identity_in({"accessKeyId": "a"}, ("roleArn",)) is None
    identity = identity_in({"kind": "workload-identity", "roleArn": "r"}, ("roleArn",))
    assert identity is not None
    assert (identity.token_file, identity.session) == (TOKEN_FILE, "spotgpu")


def test_token_file_that_is_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" \n")
    keys = {"kind": "workload-identity", "tokenFile": str(tmp_path / "token")}
    identity = identity_in(keys, ())
    assert identity is not None
    with pytest.raises(UnusableIdentityError, match="is empty"):
        identity.token()
