"""Small builders of API objects."""

from typing import Any

from activities.cluster.base import Object
from domain.contracts.names import GPU_RESOURCE, LABEL_POOL_UID, LABEL_PROFILE, TAINT_GPU_NOT_READY

API_VERSION = "spotgpu.zuoyang.cn/v1alpha1"

POOL_SPEC: Object = {
    "minInstances": 2,
    "maxInstances": 20,
    "gpuTypes": ["A100-40G"],
    "maxPricePerHour": 8.0,
    "providers": [{"name": "tencent", "regions": ["ap-guangzhou"]}],
}


def metadata(name: str, namespace: str = "train", **more: Any) -> Object:
    return {
        "name": name, "namespace": namespace, "uid": f"uid-of-{name}", "generation": 1,
        "resourceVersion": "1", **more,
    }  # fmt: skip


def a_pool(
    name: str = "pool", *, meta: Object | None = None, status: Object | None = None, **spec: Any
) -> Object:
    body: Object = {
        "apiVersion": API_VERSION,
        "kind": "GPUSpotPool",
        "metadata": metadata(name) | (meta or {}),
        "spec": POOL_SPEC | spec,
    }
    return body | ({"status": status} if status else {})


def a_strategy(name: str, *, namespace: str = "train", meta: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUSpotStrategy",
        "metadata": metadata(name, namespace) | (meta or {}),
        "spec": {"mode": "CostFirst"} | spec,
    }


def a_profile(name: str, pool: str = "pool", *, meta: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUWorkloadProfile",
        "metadata": metadata(name) | (meta or {}),
        "spec": {"poolRef": pool} | spec,
    }


def a_node_class(
    name: str = "tencent", *, namespace: str = "spotgpu-system", meta: Object | None = None, **spec: Any
) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUSpotNodeClass",
        "metadata": metadata(name, namespace) | (meta or {}),
        "spec": {
            "provider": "tencent",
            "credentialsSecretRef": {"name": "tencent-credentials"},
            "systemDisk": {"type": "CLOUD_PREMIUM", "sizeGB": 200},
            "join": {"secretRef": {"name": "cluster-join"}, "userDataTemplate": "#!/bin/sh\n"},
        }
        | spec,
    }


def a_node(
    name: str,
    *,
    pool_uid: str = "uid-of-pool",
    provider_id: str = "qcloud:///100003/ins-1",
    ready: bool = True,
    gpus: str = "8",
    gpu_taint: bool = False,
) -> Object:
    taints = [{"key": TAINT_GPU_NOT_READY, "value": "true", "effect": "NoSchedule"}] if gpu_taint else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name, "uid": f"uid-of-{name}", "resourceVersion": "1",
            "labels": {LABEL_POOL_UID: pool_uid} if pool_uid else {},
        },
        "spec": ({"providerID": provider_id} if provider_id else {}) | {"taints": taints},
        "status": {
            "allocatable": {GPU_RESOURCE: gpus, "cpu": "96"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
        },
    }  # fmt: skip


def a_pod(
    name: str,
    *,
    gpus: str | None = "1",
    profile: str | None = "profile",
    phase: str = "Pending",
    meta: Object | None = None,
    init: list[Object] | None = None,
) -> Object:
    labels = {LABEL_PROFILE: profile} if profile else {}
    return {
        "metadata": {
            "name": name, "namespace": "train", "uid": f"uid-of-{name}", "resourceVersion": "1",
            "labels": labels,
        } | (meta or {}),
        "spec": {"containers": [a_container(gpus)], "initContainers": init or []},
        "status": {"phase": phase},
    }  # fmt: skip


def a_container(gpus: str | None, *, part: str = "limits", restart: str | None = None) -> Object:
    body: Object = {"name": "c", "image": "train", "resources": {part: {GPU_RESOURCE: gpus}} if gpus else {}}
    return body | ({"restartPolicy": restart} if restart else {})
