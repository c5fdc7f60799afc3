"""boto3 behind plain values: a client for each service, one request per call, quiet, direct on loopback."""

# The SDK has no stubs and makes its methods at run time, so everything that comes from it is unknown to the
# type checker; this file is the border, and lets only plain mappings and its own errors out.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Final, cast

import botocore.loaders
import botocore.session
from boto3.session import Session
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ParamValidationError,
    UnknownRegionError,
)
from botocore.parsers import ResponseParserError

from activities.providers.aws_identity import role_credentials
from activities.providers.base import Turn
from activities.providers.endpoints import Endpoint
from activities.providers.identities import UnusableIdentityError, WorkloadIdentity, identity_in
from domain.contracts.lanes import Lane

LANES: Final[Mapping[str, Lane]] = {
    "RunInstances": Lane.PURCHASES,
    **dict.fromkeys(("TerminateInstances", "CreateTags", "DeleteTags"), Lane.ENDS),
}
"""Lane of an action; all others are readings. To give a machine up is an end, too."""
MAX_CONNECTIONS: Final = 32
NOT_USABLE: Final = "NotUsable"
"""Our own word for keys that cannot be sent; it has no twin at the vendor."""
NO_PRICE_LIST: Final = "NoPriceList"
"""Our own word for a region whose partition serves no price list."""
OTHER_SERVICES: Final[Mapping[str, str]] = {"GetProducts": "pricing", "GetServiceQuota": "service-quotas"}
"""Operations of services beside EC2."""

# At DEBUG this logger writes whole requests, so the user data with its join token.
logging.getLogger("botocore").setLevel(logging.WARNING)


class AnsweredError(Exception):
    """The cloud answered with an error.

    Attributes:
        vendor_code: The cloud's word; the HTTP status as text when a proxy or gateway answered instead.
        message: Its text, without anything that must not be written down.
        status: The HTTP status, 0 when nothing was sent.
    """

    def __init__(self, vendor_code: str, message: str, status: int) -> None:
        super().__init__(f"{vendor_code}: {message}")
        self.vendor_code = vendor_code
        self.message = message
        self.status = status


class UnansweredError(Exception):
    """There was no answer, or none that can be read.

    Attributes:
        never_left: No connection came about, so that the request certainly was not carried out.
    """

    def __init__(self, kind: str, *, never_left: bool) -> None:
        super().__init__(f"no usable answer ({kind})")
        self.never_left = never_left


class Ec2Calls:
    """EC2, its price list and its quotas, with one pair of keys in one region. Safe from several threads."""

    def __init__(
        self,
        region: str,
        keys: Mapping[str, str],
        endpoint: Endpoint | None,
        *,
        turn: Turn,
        connect_timeout: timedelta,
        read_timeout: timedelta,
    ) -> None:
        """Send nothing yet. ``keys`` has the names of the credentials Secret, ``turn`` is taken per request.

        Raises:
            AnsweredError: ``NotUsable``, when a key is empty or has spaces around it.
            UnansweredError: the SDK cannot be set up, for example with a profile that does not exist.
        """
        try:
            identity = identity_in(keys, ("roleArn",))
        except UnusableIdentityError as fault:
            raise AnsweredError(NOT_USABLE, str(fault), 0) from None
        if identity is None:
            _check_keys(keys)
        self._identity = identity
        self._turn = turn
        config = _config(endpoint, connect_timeout, read_timeout)
        try:
            # A session is not safe between threads, so it serves to build the clients and nothing else.
            session = _session(region, keys, identity)
            self._role = session.get_credentials() if identity else None
            url = f"{endpoint.protocol}://{endpoint.host}" if endpoint else None
            places = {"ec2": region, "pricing": _price_home(session, region), "service-quotas": region}
            self._clients = {
                service: session.client(service, region_name=place, endpoint_url=url, config=config)
                for service, place in places.items()
                if place
            }
        except BotoCoreError as fault:
            raise UnansweredError(type(fault).__name__, never_left=True) from fault

    def call(self, operation: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        """Send one request.

        Args:
            operation: The API's name, for example ``RunInstances``.
            parameters: In the SDK's spelling; user data as plain text, which the SDK encodes.

        Returns:
            The answer; times are ``datetime``, lists that are not in it are absent.

        Raises:
            AnsweredError: the cloud said no, or ``NoPriceList``.
            UnansweredError: nobody can say what the cloud did.
            ValueError: the SDK does not take these parameters; nothing was sent.
        """
        client = self._clients.get(OTHER_SERVICES.get(operation, "ec2"))
        if client is None:
            raise AnsweredError(NO_PRICE_LIST, "this region's partition serves no price list", 0)
        self._take_role()
        self._turn(LANES.get(operation, Lane.READINGS))
        # The causes are cut off (from None): some carry the whole answer or the parameters with the user
        # data, and a cause is written to workflow history.
        try:
            return cast("Mapping[str, object]", getattr(client, xform_name(operation))(**parameters))
        except ClientError as fault:
            raise _answered(fault.response) from None
        except ParamValidationError:
            names = ", ".join(sorted(parameters))
            raise ValueError(f"{operation}: the SDK does not take what was given for {names}") from None
        except (BotoCoreError, ResponseParserError) as fault:
            # No ProxyConnectionError: that a proxy went while it waited for an answer is told so, too.
            kinds = (EndpointConnectionError, ConnectTimeoutError)
            raise UnansweredError(type(fault).__name__, never_left=isinstance(fault, kinds)) from None

    def _take_role(self) -> None:
        """Before a request is sent, so that a role that is refused is never an unknown outcome."""
        if self._role is None or self._identity is None:
            return
        try:
            self._role.get_frozen_credentials()
        except UnusableIdentityError as fault:
            raise AnsweredError(NOT_USABLE, str(fault), 0) from None
        except ClientError as fault:
            refused = _answered(fault.response)
            text = f"role {self._identity.role} is refused ({refused.vendor_code}): {refused.message}"
            raise AnsweredError(NOT_USABLE, text, refused.status) from None
        except (BotoCoreError, ResponseParserError) as fault:
            raise UnansweredError(f"the token service, {type(fault).__name__}", never_left=True) from None

    def close(self) -> None:
        """Release connections."""
        for client in self._clients.values():
            client.close()


def public_text(message: str) -> str:
    """A vendor's message without user data, should it ever quote a parameter."""
    return re.sub(r"UserData=[^&\s]*", "UserData=(left out)", message, flags=re.IGNORECASE)


def _answered(response: Mapping[str, object]) -> AnsweredError:
    error = cast("Mapping[str, object]", response.get("Error", {}))
    metadata = cast("Mapping[str, object]", response.get("ResponseMetadata", {}))
    status = metadata.get("HTTPStatusCode", 0)
    return AnsweredError(
        str(error.get("Code", "")),
        public_text(str(error.get("Message", ""))),
        status if isinstance(status, int) else 0,
    )


def _config(endpoint: Endpoint | None, connect: timedelta, read: timedelta) -> Config:
    return Config(
        connect_timeout=connect.total_seconds(),
        read_timeout=read.total_seconds(),
        # A repeated create is the caller's decision, and the zone after a refusal is too.
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=MAX_CONNECTIONS,
        # None takes the proxies of the environment; those cannot reach a server on this machine.
        proxies={} if endpoint is not None and endpoint.is_loopback else None,
        ignore_configured_endpoint_urls=True,
    )


def _check_keys(keys: Mapping[str, str]) -> None:
    """With an empty key the SDK would look for others in the environment and on the machine."""
    for name in ("accessKeyId", "accessKeySecret"):
        if not keys[name] or keys[name] != keys[name].strip():
            raise AnsweredError(NOT_USABLE, f"{name} of the credentials Secret is empty or has spaces", 0)


def _session(region: str, keys: Mapping[str, str], identity: WorkloadIdentity | None) -> Session:
    core = botocore.session.Session()
    core.register_component("data_loader", _loader())
    if identity is not None:
        # Private, but the public ways to a role are environment and profile, which are one for all accounts.
        setattr(core, "_credentials", role_credentials(core, region, identity))  # noqa: B010 - see above
        return Session(region_name=region, botocore_session=core)
    return Session(
        aws_access_key_id=keys["accessKeyId"],
        aws_secret_access_key=keys["accessKeySecret"],
        aws_session_token=keys.get("token") or None,
        region_name=region,
        botocore_session=core,
    )


def _price_home(session: Session, region: str) -> str:
    """The region that serves the price list of a region's partition, near it; empty where none does."""
    try:
        partition = session.get_partition_for_region(region)
    except UnknownRegionError:
        return ""
    homes = session.get_available_regions("pricing", partition)
    near = [home for home in homes if home.split("-")[0] == region.split("-")[0]]
    # Each has the prices of the whole partition; the last name is us-east-1 where there are several.
    return max(near or homes, default="")


@cache
def _loader() -> botocore.loaders.Loader:
    """The service descriptions, read once per process: EC2's takes seconds."""
    return botocore.loaders.create_loader()
