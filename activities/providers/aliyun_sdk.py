"""The Alibaba SDK behind plain values: imported late, quiet, direct on loopback, never repeating a call."""

# The SDK has no stubs and is imported late, so everything that comes from it is unknown to the type checker;
# this file is the border, and lets only plain mappings and its own errors out.
# ruff: noqa: ANN401 - for the same reason
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from activities.providers.base import Turn
from activities.providers.endpoints import Endpoint
from activities.providers.identities import UnusableIdentityError, WorkloadIdentity, identity_in
from domain.contracts.lanes import Lane

LANES: Final[Mapping[str, Lane]] = {
    "RunInstances": Lane.PURCHASES,
    **dict.fromkeys(("DeleteInstances", "TagResources", "UntagResources"), Lane.ENDS),
}
"""Lane of an action; all others are readings. To give a machine up is an end, too."""
UNUSABLE: Final = "InvalidCredential"
"""Our own word for credentials that cannot be sent; it has no twin at the vendor."""

MAX_CAUSES: Final = 4
"""Classes of a chain of causes that a fault's text names."""


class AnsweredError(Exception):
    """The cloud answered with an error.

    Attributes:
        vendor_code: The cloud's word, empty when the answer had none.
        message: Its text, without anything that must not be written down.
        retry_after: When to come back, if the cloud said so.
    """

    def __init__(self, vendor_code: str, message: str, retry_after: timedelta | None) -> None:
        super().__init__(f"{vendor_code}: {message}")
        self.vendor_code = vendor_code
        self.message = message
        self.retry_after = retry_after


class UnansweredError(Exception):
    """There was no answer, or none that can be read.

    Attributes:
        never_left: No connection came about, so that the request certainly was not carried out.
    """

    def __init__(self, kinds: str, *, never_left: bool) -> None:
        super().__init__(f"no usable answer ({kinds})")
        self.never_left = never_left


class EcsClient:
    """ECS calls with one pair of keys in one region. Safe to use from several threads."""

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
            AnsweredError: ``InvalidCredential``, when the Secret describes a role wrongly.
        """
        _models()
        self._turn = turn
        try:
            self._identity = identity_in(keys, ("roleArn", "identityProvider"))
        except UnusableIdentityError as fault:
            raise AnsweredError(UNUSABLE, str(fault), None) from None
        self._role = _role(region, self._identity) if self._identity else None
        if endpoint is not None and endpoint.is_loopback:
            _bypass_proxies(endpoint)
        config = import_module("alibabacloud_tea_openapi.utils_models").Config(
            **_secrets(keys, self._role),
            region_id=region,
            endpoint=endpoint.host if endpoint else None,
            protocol=endpoint.protocol if endpoint else "https",
            connect_timeout=connect_timeout // timedelta(milliseconds=1),
            read_timeout=read_timeout // timedelta(milliseconds=1),
            # None is "never repeat": a repeated create is the caller's decision.
            retry_options=None,
        )
        self._client = import_module("alibabacloud_ecs20140526.client").Client(config)

    def close(self) -> None:
        """Nothing to release: the SDK keeps its connections per process, not per client."""

    def call(self, action: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        """Send one request.

        Args:
            action: The API's name, for example ``RunInstances``.
            parameters: In the vendor's spelling, nested as the SDK's models are.

        Returns:
            The answer's body, without fields that the SDK does not know.

        Raises:
            AnsweredError: the cloud said no.
            UnansweredError: nobody can say what the cloud did.
            ValueError: the SDK does not know a parameter; nothing was sent.
        """
        request = getattr(_models(), f"{action}Request")().from_map(dict(parameters))
        # Lists that were not given come back empty; they leave no trace on the wire.
        if {name: value for name, value in request.to_map().items() if value != []} != parameters:
            raise ValueError(f"{action}: the SDK does not know all of {sorted(parameters)}")
        method = getattr(self._client, f"{_snake(action)}_with_options")
        faults = import_module("darabonba.exceptions")
        self._take_role()
        self._turn(LANES.get(action, Lane.READINGS))
        # The causes are cut off (from None): their texts carry the whole URL, so the user data and in it the
        # join token, and a cause is written to workflow history.
        try:
            # Options without retries: this SDK generation ignores those of a call anyway.
            answer = method(request, import_module("darabonba.runtime").RuntimeOptions())
            return dict(answer.body.to_map())
        except faults.ResponseException as fault:
            raise _answered(fault.code, fault.message, fault.retry_after) from None
        except faults.UnretryableException as fault:
            raise _unanswered(fault.inner_exception) from None
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            # What the SDK's models raise on a JSON answer of another shape.
            raise UnansweredError(type(fault).__name__, never_left=False) from None

    def _take_role(self) -> None:
        """Before a request is sent, so that a role that is refused is never an unknown outcome."""
        if self._identity is None or self._role is None:
            return
        try:
            self._identity.token()
            self._role.get_credentials()
        except UnusableIdentityError as fault:
            raise AnsweredError(UNUSABLE, str(fault), None) from None
        except import_module("alibabacloud_credentials.exceptions").CredentialException as fault:
            # Its text is the whole answer of the token service; the vendor's code is all that is told.
            code = re.search(r'"Code"\s*:\s*"([\w.]+)"', str(fault))
            text = f"role {self._identity.role} is refused ({code.group(1) if code else 'no code'})"
            raise AnsweredError(UNUSABLE, text, None) from None
        except Exception as fault:  # noqa: BLE001 - the SDK lets out whatever its transport raises
            name = type(fault).__name__
            raise UnansweredError(f"the token service, {name}", never_left=True) from None


def _role(region: str, identity: WorkloadIdentity) -> Any:
    """The SDK's credentials for a pod; they read the token file at each renewal."""
    made = import_module("alibabacloud_credentials.provider.oidc").OIDCRoleArnCredentialsProvider
    # Its logger has handlers of its own and writes keys and whole answers; what matters is raised.
    logger = logging.getLogger("credentials")
    logger.handlers.clear()
    logger.setLevel(logging.CRITICAL)
    return made(
        role_arn=identity.role,
        oidc_provider_arn=identity.provider,
        oidc_token_file_path=identity.token_file,
        role_session_name=identity.session,
        sts_region_id=region,
    )


def _secrets(keys: Mapping[str, str], role: Any) -> dict[str, object]:
    """What the client signs with."""
    if role is not None:
        return {"credential": import_module("alibabacloud_credentials.client").Client(provider=role)}
    return {
        "access_key_id": keys["accessKeyId"],
        "access_key_secret": keys["accessKeySecret"],
        "security_token": keys.get("token") or None,
    }


def _answered(code: str | None, message: str | None, retry_after_ms: int | None) -> AnsweredError:
    vendor_code = "" if code in (None, "None") else str(code)
    # The header's number is used as milliseconds by the SDK's own retries.
    retry_after = timedelta(milliseconds=retry_after_ms) if retry_after_ms else None
    return AnsweredError(vendor_code, public_text(message or ""), retry_after)


def _unanswered(fault: BaseException) -> UnansweredError:
    transport = import_module("urllib3.exceptions")
    kinds = (transport.NewConnectionError, transport.ConnectTimeoutError)
    causes = _causes(fault)
    names = " from ".join(type(cause).__name__ for cause in causes[:MAX_CAUSES])
    return UnansweredError(names, never_left=any(isinstance(cause, kinds) for cause in causes))


def public_text(message: str) -> str:
    """A vendor's message without what must not be written down.

    Signature errors quote the server's view of the request, parameters included. Example:
    ``Specified signature does not match our calculation. server CanonicalRequest is [POST ...``
    """
    without_echo = re.split(r"\s*server (?:StringToSign|string to sign|CanonicalRequest)", message)[0]
    return re.sub(r"UserData=[^&\s]*", "UserData=(left out)", without_echo)


def _causes(fault: BaseException) -> list[BaseException]:
    """A fault and what led to it, by its chain and by what urllib3 and requests carry in their arguments."""
    causes: list[BaseException] = []
    waiting: list[object] = [fault]
    while waiting:
        seen = waiting.pop(0)
        if isinstance(seen, BaseException) and not any(seen is known for known in causes):
            causes.append(seen)
            waiting += [seen.__cause__ or seen.__context__, getattr(seen, "reason", None), *seen.args]
    return causes


@cache
def _models() -> ModuleType:
    """The SDK's models. The import takes seconds; the first call does it, not the start of a worker."""
    import_module("alibabacloud_ecs20140526.client")
    models = import_module("alibabacloud_ecs20140526.models")
    _silence()
    return models


def _silence() -> None:
    """Undo what the import does to logging: a DEBUG handler on stderr that can print signed headers."""
    logger = logging.getLogger("darabonba-core")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.setLevel(logging.WARNING)


def _bypass_proxies(endpoint: Endpoint) -> None:
    """Reach a server on this machine directly, although HTTP_PROXY is set.

    The SDK reads the proxy variables at each call, and neither NO_PROXY nor its own ``no_proxy`` stops it.
    What is left is the session that it keeps per process for the endpoint.
    """
    core = import_module("darabonba.core")
    # Private, but there is no public way to the sessions; a test with HTTP_PROXY set watches over it.
    session = core.DaraCore._get_session(  # noqa: SLF001 - see above
        f"{endpoint.protocol}://{endpoint.host}:80:pool={core.DEFAULT_POOL_MAXSIZE}", endpoint.protocol
    )
    session.mount(f"{endpoint.protocol}://", _direct_adapter()(pool_maxsize=core.DEFAULT_POOL_MAXSIZE))


@cache
def _direct_adapter() -> type:
    """A transport that never takes a proxy. Made late, since its base class comes with the SDK."""
    base = import_module("requests.adapters").HTTPAdapter

    def send(self: object, request: object, **options: object) -> object:
        return base.send(self, request, **{**options, "proxies": {}})

    return type("DirectAdapter", (base,), {"send": send})


def _snake(action: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()
