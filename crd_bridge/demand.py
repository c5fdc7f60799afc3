"""What the workloads bound to a pool ask for, counted as Kubernetes counts. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from activities.cluster.base import Object
from crd_bridge.parts import pod_selector_of
from crd_bridge.quantities import count_of
from crd_bridge.sections import entries, section
from domain.contracts.facts import Demand, ProfileDemand
from domain.contracts.names import GPU_RESOURCE, LABEL_PROFILE
from domain.contracts.resolved import ProfilePart

_ENDED = ("Succeeded", "Failed")
_NOT_MOVED_BY = ("DaemonSet", "Node")
"""Owners whose pods come with a Node and never ask for one."""


def assess_demand(profiles: Sequence[ProfilePart], pods: Iterable[Object], *, as_of: datetime) -> Demand:
    """Sum up the live and pending pods of each profile.

    Args:
        profiles: Those bound to the pool, sorted by name.
        pods: Pods of the pool's namespace, any number of times and with others among them.
        as_of: When the pods were as given.

    Returns:
        One entry for each profile, in their order, also for one without pods. A pod counts once: for the
        profile that its label names, else for the first whose selector matches.
    """
    claimed: dict[str, list[int]] = {profile.origin.name: [] for profile in profiles}
    distinct = {str(pod["metadata"]["uid"]): pod for pod in pods if wants_a_place(pod)}
    for pod in distinct.values():
        name = _profile_of(pod, profiles)
        if name:
            claimed[name].append(gpus_of(pod))
    return Demand(
        as_of=as_of,
        profiles=tuple(
            ProfileDemand(profile=name, pods=len(gpus), gpus=sum(gpus), max_gpus_per_pod=max(gpus, default=0))
            for name, gpus in claimed.items()
        ),
    )


def wants_a_place(pod: Object) -> bool:
    """Whether a pod lives or waits, and has to live on some machine of the pool.

    A pod that is being deleted makes room, but for a StatefulSet's: its successor comes only when it is gone.

    Source: the rule of Karpenter's ``IsReschedulable`` (pkg/utils/pod), read 2026-11.
    """
    metadata = section(pod, "metadata")
    if section(pod, "status").get("phase") in _ENDED:
        return False
    owners = {owner.get("kind") for owner in entries(metadata, "ownerReferences") if owner.get("controller")}
    if owners.intersection(_NOT_MOVED_BY):
        return False
    return not metadata.get("deletionTimestamp") or "StatefulSet" in owners


def gpus_of(pod: Object) -> int:
    """GPUs that the scheduler sets aside for a pod.

    The larger of all containers together and of each init container while it runs; sidecars (init containers
    that restart always) run beside both.

    Source: Kubernetes documentation, "Sidecar containers", section on resource sharing, read 2026-11.
    """
    spec = section(pod, "spec")
    sidecars, peak = 0, 0
    for container in entries(spec, "initContainers"):
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + asked)
    return max(peak, sidecars + sum(_asked(container) for container in entries(spec, "containers")))


def trim_pod(body: Object) -> Object:
    """Keep of a pod only what is looked at here."""
    metadata, spec, status = section(body, "metadata"), section(body, "spec"), section(body, "status")
    kept = (
        "name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp", "ownerReferences",
    )  # fmt: skip
    return {
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {
            part: [_trim_container(container) for container in entries(spec, part)]
            for part in ("initContainers", "containers")
        },
        "status": {"phase": status.get("phase")},
    }


def _trim_container(container: Object) -> Object:
    return {name: container[name] for name in ("resources", "restartPolicy") if name in container}


def _asked(container: Object) -> int:
    """The request, or the limit when only that is given: they are equal for what cannot be overcommitted."""
    resources = section(container, "resources")
    for part in ("requests", "limits"):
        amount = section(resources, part).get(GPU_RESOURCE)
        if amount is not None:
            return count_of(amount)
    return 0


def _profile_of(pod: Object, profiles: Sequence[ProfilePart]) -> str:
    labels = section(section(pod, "metadata"), "labels")
    named = labels.get(LABEL_PROFILE)
    matching = [
        profile.origin.name
        for profile in profiles
        if all(labels.get(name) == value for name, value in pod_selector_of(profile).items())
    ]
    return named if named in matching else next(iter(matching), "")
