"""The Huawei SDK behind plain values: imported late, quiet, one request per call, no file in HOME."""

# The SDK has no stubs and is imported late, so everything that comes from it is unknown to the type checker;
# this file is the border, and lets only plain mappings and its own errors out.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: ANN401 - for the same reason

import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any, Final

from activities.providers.base import Turn
from activities.providers.endpoints import Endpoint
from activities.providers.identities import UnusableIdentityError, identity_in
from domain.contracts.lanes import Lane

LANES: Final[Mapping[str, Lane]] = {
    "CreatePostPaidServers": Lane.PURCHASES,
    **dict.fromkeys(("DeleteServers", "BatchCreateServerTags", "BatchDeleteServerTags"), Lane.ENDS),
}
"""Lane of an action; all others are readings. To give a machine up is an end, too."""
RATINGS_PATH: Final = "/v2/bills/ratings/on-demand-resources"
"""Of the billing service, whose SDK package is not needed for one request."""
POOL_SIZE: Final = 32
"""Connections of one client; the SDK's 10 are fewer than an adapter has threads."""
MAX_CAUSES: Final = 10
"""Length of a chain of causes that is looked at; a real one has about five."""
EMPTY_STATUSES: Final = frozenset({202, 204})
"""Successes that may have no body: a passed dry run, a changed tag."""

_import_lock = threading.Lock()


class AnsweredError(Exception):
    """The cloud answered with an error.

    Attributes:
        vendor_code: The cloud's word, or the HTTP status where the answer had none that could be read.
        message: Its text.
    """

    def __init__(self, vendor_code: str, message: str) -> None:
        super().__init__(f"{vendor_code}: {message}")
        self.vendor_code = vendor_code
        self.message = message


class UnansweredError(Exception):
    """There was no answer, or none that can be read.

    Attributes:
        never_left: No connection came about, so that the request certainly was not carried out.
    """

    def __init__(self, kinds: str, *, never_left: bool) -> None:
        super().__init__(f"no usable answer ({kinds})")
        self.never_left = never_left


@dataclass(frozen=True)
class Answer:
    """A success: HTTP status and the JSON object of the body, empty where there was none."""

    status: int
    body: Mapping[str, object]


class EcsCalls:
    """ECS and price calls with one pair of keys in one region. Safe to use from several threads."""

    def __init__(
        self,
        region: str,
        keys: Mapping[str, str],
        endpoint: Endpoint | None,
        *,
        turn: Turn,
        billing_endpoint: str,
        timeouts: tuple[timedelta, timedelta],
    ) -> None:
        """Build the client; without a project among the keys, ask for the region's (once a process).

        Args:
            region: The vendor's name, for example ``cn-north-4``.
            keys: ``accessKeyId``, ``accessKeySecret``, optional ``token``, and ``projectId.<region>`` or
                ``projectId``.
            endpoint: Replaces the vendor's addresses of ECS, projects and prices.
            turn: Taken per request.
            billing_endpoint: URL of the price service of the account's site.
            timeouts: For connecting, and for reading.

        Raises:
            AnsweredError: ``InvalidRegion``, ``InvalidCredential``, ``ProjectNotFound``, or a vendor's code.
            UnansweredError: the vendor was asked for the project and did not answer.
        """
        try:
            self._identity = identity_in(keys, ("identityProvider",))
        except UnusableIdentityError as fault:
            raise AnsweredError("InvalidCredential", str(fault)) from None
        if self._identity is None and not (keys["accessKeyId"] and keys["accessKeySecret"]):
            raise AnsweredError("InvalidCredential", "accessKeyId or accessKeySecret is empty")
        _ecs()  # before any other import of the SDK
        self._keys = keys
        self._turn = turn
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._billing_url = _url(endpoint) or billing_endpoint
        self._lock = threading.Lock()
        self._billing: Any = None
        self._others: dict[str, Any] = {}
        self._region = region
        self._ecs = self._ecs_client(region, _url(endpoint) or _own_url(region))

    @property
    def project_id(self) -> str:
        """The project that the requests go to."""
        return str(self._ecs.get_credentials().project_id)

    def call(self, action: str, body: Mapping[str, object] | None = None, /, **fields: object) -> Answer:
        """Send one ECS request.

        Args:
            action: The API's name, for example ``ShowJob``.
            body: Its JSON body in the vendor's spelling.
            fields: Parameters of path, query and header in the spelling of the SDK's request classes.

        Raises:
            AnsweredError: the cloud said no.
            UnansweredError: nobody can say what the cloud did.
            TypeError: the SDK does not know a field; nothing was sent.
        """
        self._take_role(self._ecs)
        self._turn(LANES.get(action, Lane.READINGS))
        content = fields if body is None else {**fields, "body": dict(body)}
        request = getattr(_ecs(), f"{action}Request")(**content)
        # The plain method repeats the whole HTTP call after any TypeError inside; its invoker does not.
        invoker = getattr(self._ecs, f"{_snake(action)}_invoker")(request)
        return _sent(invoker.invoke)

    def rate(self, body: Mapping[str, object]) -> Answer:
        """Ask for the price of pay-per-use resources; otherwise as ``call``."""
        client = self._billing_client()
        self._take_role(client)
        self._turn(Lane.READINGS)
        header = {"Content-Type": "application/json"}
        return _sent(
            lambda: client.do_http_request(
                method="POST", resource_path=RATINGS_PATH, header_params=header, body=dict(body)
            )
        )

    def request(
        self, service: str, method: str, path: str, query: Mapping[str, str | int] | None = None
    ) -> Answer:
        """Send one request to another service of the region; otherwise as ``call``.

        Args:
            service: First part of its host name, for example ``evs``.
            method: The HTTP method.
            path: With ``{project_id}`` where the project belongs.
            query: What follows the question mark.
        """
        client = self._service_client(service)
        self._take_role(client)
        self._turn(Lane.READINGS)
        header = {"Content-Type": "application/json"}
        pairs = [(key, str(value)) for key, value in (query or {}).items()]
        return _sent(
            lambda: client.do_http_request(
                method=method, resource_path=path, query_params=pairs, header_params=header
            )
        )

    def _take_role(self, client: Any) -> None:
        """Before a request is sent, so that a role that is refused is never an unknown outcome."""
        if self._identity is None:
            return
        faults = import_module("huaweicloudsdkcore.exceptions.exceptions")
        transport = import_module("requests.exceptions")
        try:
            self._identity.token()
            with self._lock:
                client.get_credentials().process_sts(client.get_http_client())
        except UnusableIdentityError as fault:
            raise AnsweredError("InvalidCredential", str(fault)) from None
        except faults.ServiceResponseException as fault:
            refused = _answered(fault)
            text = f"identity provider {self._identity.provider} is refused ({refused.vendor_code}): "
            raise AnsweredError("InvalidCredential", text + refused.message) from None
        except (faults.SdkException, transport.RequestException, KeyError, TypeError, ValueError) as fault:
            name = type(fault).__name__
            raise UnansweredError(f"the token service, {name}", never_left=True) from None

    def _service_client(self, service: str) -> Any:
        with self._lock:
            if service not in self._others:
                url = _url(self._endpoint) or _own_url(self._region).replace("//ecs.", f"//{service}.")
                builder = self._builder("BasicCredentials", self.project_id).with_endpoint(url)
                self._others[service] = _translated(builder.build)
            return self._others[service]

    def close(self) -> None:
        """Release connections, and the threads that the SDK keeps for signing."""
        for client in (self._ecs, self._billing, *self._others.values()):
            if client is not None:
                client.close()
                client.get_http_client().executor.shutdown(wait=False)

    def _billing_client(self) -> Any:
        with self._lock:
            if self._billing is None:
                builder = self._builder("GlobalCredentials").with_endpoint(self._billing_url)
                self._billing = _translated(builder.build)
            return self._billing

    def _ecs_client(self, region: str, url: str) -> Any:
        """Given no project, the SDK looks for the region's and keeps it for the process."""
        project = self._keys.get(f"projectId.{region}") or self._keys.get("projectId")
        place = import_module("huaweicloudsdkcore.region.region").Region(region, url)
        return _translated(self._builder("BasicCredentials", project).with_region(place).build)

    def _builder(self, credentials: str, *project: str | None) -> Any:
        """A client's builder. ECS takes credentials with a project, the billing service those without."""
        kind = getattr(import_module("huaweicloudsdkcore.auth.credentials"), credentials)
        if self._identity is None:
            secret = kind(self._keys["accessKeyId"], self._keys["accessKeySecret"], *project)
            secret.security_token = self._keys.get("token") or None
        else:
            # Of the SDK's two ways this is the one that reads the token file at each renewal.
            secret = kind(None, None, *project)
            secret.idp_id, secret.id_token_file = self._identity.provider, self._identity.token_file
        secret.iam_endpoint = _url(self._endpoint) or None
        connect, read = (each.total_seconds() for each in self._timeouts)
        config = import_module("huaweicloudsdkcore.http.http_config").HttpConfig(
            timeout=(connect, read), retry_times=0, pool_connections=POOL_SIZE, pool_maxsize=POOL_SIZE
        )
        direct = self._endpoint is not None and self._endpoint.is_loopback
        builder = import_module("huaweicloudsdkcore.client").ClientBuilder(
            _client_class(direct=direct), credentials
        )
        return builder.with_http_config(config).with_credentials(secret)


def _sent(send: Callable[[], Any]) -> Answer:
    """The answer of one request, from the bytes: the SDK's own models drop what they do not know."""
    response = _translated(send)
    if response.status_code in EMPTY_STATUSES and not response.content:
        return Answer(response.status_code, {})
    try:
        body: object = json.loads(response.content, parse_float=Decimal)
    except ValueError:
        raise UnansweredError("no JSON", never_left=False) from None
    if not isinstance(body, dict):
        raise UnansweredError("no JSON object", never_left=False)
    problem = body.get("error")
    if isinstance(problem, dict):
        # A flow limit (Common.0024) comes inside a success, with HTTP status 202.
        raise AnsweredError(
            str(problem.get("code") or response.status_code), str(problem.get("message") or "")
        )
    return Answer(response.status_code, body)


def _translated(act: Callable[[], Any]) -> Any:
    """Run what sends a request.

    The causes are cut off (from None): a cause is written to workflow history.
    """
    faults = import_module("huaweicloudsdkcore.exceptions.exceptions")
    transport = import_module("requests.exceptions")
    try:
        return act()
    except faults.ServiceResponseException as fault:
        raise _answered(fault) from None
    except (faults.SdkException, transport.RequestException) as fault:
        # Read time-outs are not among the SDK's errors: they come as those of requests.
        raise _lost(fault) from None
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        # Only the search for a project reads an answer inside the SDK.
        raise UnansweredError(type(fault).__name__, never_left=False) from None


def _answered(fault: Any) -> AnsweredError:
    code, status = str(fault.error_code or ""), str(fault.status_code)
    if code in ("", status):
        # The text is the whole answer, for example a gateway's page, or the client's own about its retries.
        return AnsweredError(status, f"HTTP status {status} without an error code")
    return AnsweredError(code, str(fault.error_msg or ""))


def _lost(fault: BaseException) -> AnsweredError | UnansweredError:
    """What an error without an answer was: a refused search for the project hides it in its causes."""
    causes = _causes(fault)
    answered = import_module("huaweicloudsdkcore.exceptions.exceptions").ServiceResponseException
    for cause in causes:
        if isinstance(cause, answered):
            return _answered(cause)
    text = str(getattr(fault, "error_msg", ""))
    if "project id" in text:
        return AnsweredError("ProjectNotFound", f"{text.split(',')[0]}: set projectId in the Secret")
    sdk = import_module("urllib3.exceptions")
    kinds = (sdk.NewConnectionError, sdk.ConnectTimeoutError)
    # Names only: the texts of transport errors carry addresses with their query.
    names = " from ".join(dict.fromkeys(type(cause).__name__ for cause in causes))
    return UnansweredError(names, never_left=any(isinstance(cause, kinds) for cause in causes))


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


def _url(endpoint: Endpoint | None) -> str:
    """With its scheme: the SDK makes HTTPS of an address without one."""
    return f"{endpoint.protocol}://{endpoint.host}" if endpoint else ""


def _own_url(region: str) -> str:
    regions = import_module("huaweicloudsdkecs.v2.region.ecs_region").EcsRegion
    try:
        return str(regions.value_of(region).endpoints[0])
    except KeyError:
        raise AnsweredError("InvalidRegion", f"the SDK knows no region {region}") from None


def _snake(action: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()


@cache
def _ecs() -> Any:
    """The SDK's clients and requests. The import takes a second; the first call does it."""
    with _import_lock:
        paths = import_module("huaweicloudsdkcore.utils.filepath_utils")
        home = paths.get_home_path
        # While it is imported, the SDK writes an application id below the home folder, which may be read-only
        # and is not ours to write to. Without a home it goes without the id.
        setattr(paths, "get_home_path", lambda: None)  # noqa: B010 - a module that is not typed
        try:
            import_module("huaweicloudsdkcore.http.user_agent")
        finally:
            setattr(paths, "get_home_path", home)  # noqa: B010 - as above
        return import_module("huaweicloudsdkecs.v2")


@cache
def _client_class(*, direct: bool) -> Any:
    """The SDK's client, handing out answers as they came; ``direct`` takes no proxy from the environment.

    A proxy cannot reach a server on this machine, although HTTP_PROXY is set.
    """
    name = "DirectEcsClient" if direct else "RawEcsClient"
    base = _ecs().EcsClient
    # Propagation is off and nothing handles this logger: its errors would go to stderr.
    logging.getLogger(f"HuaweiCloud-SDK-{name}").addHandler(logging.NullHandler())

    def sync_response_handler(_client: Any, response: Any, *_: Any) -> Any:
        return response

    def init_http_client(client: Any) -> None:
        base.init_http_client(client)
        # Private, but there is no public way to the session; a test with HTTP_PROXY set watches over it.
        client.get_http_client()._session.trust_env = not direct  # noqa: SLF001 - see above

    made = {"sync_response_handler": sync_response_handler, "init_http_client": init_http_client}
    return type(name, (base,), made)
