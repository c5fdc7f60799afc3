"""Connections to Temporal and to the Kubernetes API, with one clear sentence when one is not there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError

from activities.cluster.kube import Connection, KubeCluster
from activities.telemetry import metrics
from domain.contracts.errors import ClusterError, ErrorCode
from workers.errors import ConfigurationError
from workers.settings import Settings
from workflows.runtime import DATA_CONVERTER

Found = TypeVar("Found")

_TRY_AGAIN_SECONDS: Final = 0.5
_DEFAULT_ADDRESS: Final = "localhost:7233"


async def connect_temporal(settings: Settings, identity: str) -> Client:
    """Connect to the server and namespace of the environment.

    Raises:
        ConfigurationError: The profile is wrong, the server is not there, or it lacks the namespace.
    """
    try:
        config = ClientConfigProfile.load().to_client_connect_config()
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigurationError(f"Temporal's client configuration cannot be used: {_line(error)}") from error
    address = config.get("target_host") or _DEFAULT_ADDRESS
    namespace = config.get("namespace") or "default"
    config["target_host"] = address
    runtime = _runtime(settings)

    async def connect() -> Client:
        client = await Client.connect(
            **config, data_converter=DATA_CONVERTER, identity=identity, runtime=runtime
        )
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
        return client

    try:
        return await _within(settings.connect_seconds, connect, (RuntimeError, RPCError))
    except RuntimeError as error:
        raise ConfigurationError(
            f"no Temporal server at {address}: {_line(error)}; start it, or set TEMPORAL_ADDRESS"
        ) from error
    except RPCError as error:
        raise ConfigurationError(
            f"Temporal at {address} does not serve namespace {namespace}: {error.message}; "
            "create it, or set TEMPORAL_NAMESPACE"
        ) from error


async def connect_cluster(settings: Settings) -> KubeCluster:
    """Connect to the Kubernetes API and ask it who we are.

    Raises:
        ConfigurationError: There are no usable credentials, or no server.
    """
    kubeconfig = settings.kubeconfig_file
    if kubeconfig is not None and not kubeconfig.exists():
        raise ConfigurationError(
            f"kubeconfig {kubeconfig} does not exist; set SPOTGPU_KUBECONFIG or KUBECONFIG, or run in a pod"
        )
    try:
        cluster = await KubeCluster.connect(Connection(kubeconfig=kubeconfig), _count_request)
    except ClusterError as error:
        raise ConfigurationError(f"{_line(error)}; set SPOTGPU_KUBECONFIG") from error
    try:
        await _within(settings.connect_seconds, cluster.token_user, (ClusterError,))
    except ClusterError as error:
        await cluster.close()
        hint = (
            "start the API server, or set SPOTGPU_KUBECONFIG"
            if error.code is ErrorCode.UNAVAILABLE
            else "give this identity the rights of deploy/"
        )
        raise ConfigurationError(f"{_line(error)}; {hint}") from error
    return cluster


async def _within(
    seconds: float, attempt: Callable[[], Awaitable[Found]], faults: tuple[type[Exception], ...]
) -> Found:
    """Try until it works or the time is up, then raise the last fault."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await attempt()
        except faults:
            if asyncio.get_running_loop().time() >= deadline:
                raise
        await asyncio.sleep(_TRY_AGAIN_SECONDS)


def _runtime(settings: Settings) -> Runtime | None:
    """A runtime that serves the SDK's own metrics, or None for the default one."""
    if not settings.temporal_metrics_port:
        return None
    prometheus = PrometheusConfig(
        bind_address=f"{settings.health_host}:{settings.temporal_metrics_port}",
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
    )
    return Runtime(telemetry=TelemetryConfig(metrics=prometheus))


def _count_request(verb: str, resource: str, status: int, _: float) -> None:
    metrics.KUBERNETES_REQUESTS.labels(verb, resource, str(status)).inc()


def _line(error: BaseException) -> str:
    """The error's text on one line."""
    return " ".join(str(error).split())[:400]
