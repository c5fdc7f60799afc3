"""The Tencent SDK behind plain values: one request per call, quiet, direct on loopback."""

# The SDK has no stubs, so everything that comes from it is unknown to the type checker; this file is the
# border, and lets only bytes-free mappings and its own errors out.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import json
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, cast

from requests import Session
from tencentcloud.common.common_client import CommonClient
from tencentcloud.common.credential import Credential
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.cvm.v20170312.cvm_client import CvmClient
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from activities.providers.base import Turn
from activities.providers.endpoints import Endpoint
from activities.providers.identities import UnusableIdentityError, identity_in
from activities.providers.tencent_identity import UNUSABLE, RoleCredential
from domain.contracts.lanes import Lane

LANES: Final[Mapping[str, Lane]] = {
    "RunInstances": Lane.PURCHASES,
    **dict.fromkeys(("TerminateInstances", "TagResources", "UnTagResources"), Lane.ENDS),
}
"""Lane of an action; all others are readings. To give a machine up is an end, too."""
TAG_SERVICE: Final = "tag"
TAG_VERSION: Final = "2018-08-13"
LOCAL_CODES: Final = frozenset({"ServerNetworkError", "ClientNetworkError", "JSONDecodeError", "KeyError"})
"""Codes that the SDK makes up when there was no answer, or none that can be read."""
MAX_CAUSES: Final = 10
"""Length of a chain of causes that is looked at; a real one has about four."""

# At DEBUG this logger writes whole requests, so the user data with its join token.
logging.getLogger("tencentcloud_sdk_common").setLevel(logging.WARNING)


class AnsweredError(Exception):
    """The cloud answered with an error.

    Attributes:
        vendor_code: The cloud's word.
        message: Its text.
    """

    def __init__(self, vendor_code: str, message: str) -> None:
        super().__init__(f"{vendor_code}: {message}")
        self.vendor_code = vendor_code
        self.message = message


class UnansweredError(Exception):
    """There was no answer, or none that can be read.

    Attributes:
        vendor_code: The SDK's word for it.
        never_left: No connection came about, so that the request certainly was not carried out.
    """

    def __init__(self, vendor_code: str, text: str, *, never_left: bool) -> None:
        super().__init__(f"no usable answer ({text})")
        self.vendor_code = vendor_code
        self.never_left = never_left


class CvmCalls:
    """CVM and tag calls with one pair of keys in one region. Safe to use from several threads."""

    def __init__(
        self,
        region: str,
        keys: Mapping[str, str],
        endpoint: Endpoint | None,
        *,
        turn: Turn,
        timeout: timedelta,
    ) -> None:
        """Send nothing yet. ``keys`` has the names of the credentials Secret, ``turn`` is taken per request.

        Raises:
            AnsweredError: ``InvalidCredential``, when a key is empty or has spaces around it.
        """
        credential = _credential(region, keys)
        self._role = credential if isinstance(credential, RoleCredential) else None
        self._turn = turn
        profile = _profile(endpoint, timeout)
        self._compute = CvmClient(credential, region, profile)
        self._tag = CommonClient(TAG_SERVICE, TAG_VERSION, credential, region, profile)
        if endpoint is not None and endpoint.is_loopback:
            for client in (self._compute, self._tag):
                _bypass_proxies(client)

    def compute(self, action: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        """Send one CVM request; returns the body of the answer.

        Raises:
            AnsweredError: the cloud said no.
            UnansweredError: nobody can say what the cloud did.
        """
        self._take_role()
        self._turn(LANES.get(action, Lane.READINGS))
        return _send(self._compute, action, parameters)

    def _take_role(self) -> None:
        """Before a request is sent, so that a role that is refused is never an unknown outcome."""
        if self._role is None:
            return
        try:
            self._role.get_credential_info()
        except TencentCloudSDKException as fault:
            if fault.code == UNUSABLE:
                raise AnsweredError(str(fault.code), str(fault.message)) from None
            name = str(fault.code)
            raise UnansweredError(name, f"the token service, {name}", never_left=True) from None
        except (KeyError, TypeError, ValueError, OSError) as fault:
            name = type(fault).__name__
            raise UnansweredError(name, f"the token service, {name}", never_left=True) from None

    def tag(self, action: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        """Send one request to the tag service; otherwise as ``compute``."""
        self._take_role()
        self._turn(LANES.get(action, Lane.READINGS))
        return _send(self._tag, action, parameters)

    def close(self) -> None:
        """Release connections."""
        for client in (self._compute, self._tag):
            _session(client).close()


def _credential(region: str, keys: Mapping[str, str]) -> Credential | RoleCredential:
    try:
        identity = identity_in(keys, ("roleArn", "identityProvider"))
        if identity is not None:
            return RoleCredential(region, identity)
        return Credential(keys["accessKeyId"], keys["accessKeySecret"], keys.get("token") or None)
    except UnusableIdentityError as fault:
        raise AnsweredError(UNUSABLE, str(fault)) from None
    except TencentCloudSDKException as fault:
        raise AnsweredError(str(fault.code), str(fault.message)) from fault


def _profile(endpoint: Endpoint | None, timeout: timedelta) -> ClientProfile:
    http = HttpProfile(
        protocol=endpoint.protocol if endpoint else "https",
        endpoint=endpoint.host if endpoint else None,
        # One value for connecting and reading; whole seconds by the SDK's own description.
        reqTimeout=max(1, round(timeout.total_seconds())),
    )
    # No retryer: the SDK's own repeats a create that had succeeded and then reports the first failure.
    return ClientProfile(httpProfile=http, language="en-US", retryer=None)


def _bypass_proxies(client: CvmClient | CommonClient) -> None:
    """Reach a server on this machine directly, although HTTP_PROXY is set.

    The SDK honours NO_PROXY only if it lists host and port; a proxy cannot reach this machine anyway.
    """
    client.request.conn.proxy = None
    _session(client).trust_env = False


def _session(client: CvmClient | CommonClient) -> Session:
    """The connections of a client: private, but there is no public way to close them or keep proxies away."""
    return client.request.conn._session  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - see above


def _send(
    client: CvmClient | CommonClient, action: str, parameters: Mapping[str, object]
) -> Mapping[str, object]:
    try:
        content = cast("bytes", client.call(action, dict(parameters)))
        return _opened(content)
    except TencentCloudSDKException as fault:
        code = str(fault.code)
        if code not in LOCAL_CODES:
            raise AnsweredError(code, str(fault.message)) from fault
        raise _unanswered(code, fault) from fault
    except (KeyError, TypeError, ValueError, OSError) as fault:
        # What the SDK lets through while it looks for an error in an answer: no JSON, another shape, or a
        # connection that broke in the middle of the body.
        name = type(fault).__name__
        raise UnansweredError(name, name, never_left=False) from None


def _opened(content: bytes) -> Mapping[str, object]:
    """What stands in the envelope. The SDK looks for an error only behind two exact content types.

    Raises:
        AnsweredError: there is an error in it.
        ValueError: it is no JSON object.
    """
    envelope: object = json.loads(content)
    response = envelope.get("Response") if isinstance(envelope, dict) else None
    if not isinstance(response, dict):
        raise ValueError("no Response in the answer")  # noqa: TRY004 - one kind of unreadable answer
    error = response.get("Error")
    if isinstance(error, dict):
        raise AnsweredError(str(error.get("Code", "")), str(error.get("Message", "")))
    return cast("Mapping[str, object]", response)


def _unanswered(code: str, fault: BaseException) -> UnansweredError:
    causes = _causes(fault)
    never_left = any(isinstance(cause, NewConnectionError | ConnectTimeoutError) for cause in causes)
    # Names only: the texts of transport errors carry addresses and, for HTTP errors, the whole answer.
    names = " from ".join(dict.fromkeys(type(cause).__name__ for cause in causes[1:]))
    return UnansweredError(code, f"{code} {names}".strip(), never_left=never_left)


def _causes(fault: BaseException) -> list[BaseException]:
    """A fault and what led to it, by its chain and by what urllib3 and requests carry in their arguments."""
    causes: list[BaseException] = []
    waiting: list[object] = [fault]
    while waiting and len(causes) < MAX_CAUSES:
        seen = waiting.pop(0)
        if isinstance(seen, BaseException) and not any(seen is known for known in causes):
            causes.append(seen)
            waiting += [seen.__cause__ or seen.__context__, getattr(seen, "reason", None), *seen.args]
    return causes
