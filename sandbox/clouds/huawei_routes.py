"""Which action a request to Huawei means, and what its parameters are."""

import re
from collections.abc import Mapping
from typing import Final

from sandbox.clouds import huawei_parameters as parameters
from sandbox.clouds.cloud import WireRequest
from sandbox.clouds.huawei_parameters import wrong

_PROJECT: Final = r"(?P<project>[^/]+)"
_SERVER: Final = r"(?P<server>[^/]+)"
ROUTES: Final[tuple[tuple[str, str, str], ...]] = (
    ("GET", r"/v3/projects", "KeystoneListProjects"),
    ("POST", r"/v2/bills/ratings/on-demand-resources", "ListOnDemandResourceRatings"),
    ("POST", rf"/v1/{_PROJECT}/cloudservers", "CreatePostPaidServers"),
    ("POST", rf"/v1\.1/{_PROJECT}/cloudservers", "CreateServers"),
    ("POST", rf"/v1/{_PROJECT}/cloudservers/delete", "DeleteServers"),
    ("GET", rf"/v1/{_PROJECT}/cloudservers/detail", "ListServersDetails"),
    ("GET", rf"/v1/{_PROJECT}/cloudservers/flavors", "ListFlavors"),
    ("GET", rf"/v1/{_PROJECT}/cloudservers/flavor-sell-policies", "ListFlavorSellPolicies"),
    ("GET", rf"/v1/{_PROJECT}/cloudservers/limits", "ShowServerLimits"),
    ("POST", rf"/v1/{_PROJECT}/cloudservers/resource_instances/action", "ListServersByTag"),
    ("GET", rf"/v1/{_PROJECT}/cloudservers/{_SERVER}", "ShowServer"),
    ("POST", rf"/v1/{_PROJECT}/cloudservers/{_SERVER}/tags/action", "BatchCreateServerTags"),
    (
        "POST",
        rf"/v1/{_PROJECT}/cloudservers/{_SERVER}/actions/update-auto-terminate-time",
        "UpdateServerAutoTerminateTime",
    ),
    ("GET", rf"/v1/{_PROJECT}/jobs/(?P<job>[^/]+)", "ShowJob"),
    ("GET", rf"/v2/{_PROJECT}/cloudvolumes/detail", "ListVolumes"),
    ("DELETE", rf"/v2/{_PROJECT}/cloudvolumes/(?P<thing>[^/]+)", "DeleteVolume"),
    ("GET", rf"/v3/{_PROJECT}/eip/publicips", "ListPublicips"),
    ("DELETE", rf"/v1/{_PROJECT}/publicips/(?P<thing>[^/]+)", "DeletePublicip"),
)
MODELS: Final[Mapping[str, type[parameters.Parameters]]] = {
    "KeystoneListProjects": parameters.ListProjects,
    "ListOnDemandResourceRatings": parameters.ListOnDemandResourceRatings,
    "CreatePostPaidServers": parameters.CreatePostPaidServers,
    "CreateServers": parameters.CreateServers,
    "DeleteServers": parameters.DeleteServers,
    "ListServersDetails": parameters.ListServersDetails,
    "ListFlavors": parameters.ListFlavors,
    "ListFlavorSellPolicies": parameters.ListFlavorSellPolicies,
    "ShowServerLimits": parameters.Nothing,
    "ListServersByTag": parameters.ListServersByTag,
    "ShowServer": parameters.Nothing,
    "BatchCreateServerTags": parameters.BatchTags,
    "UpdateServerAutoTerminateTime": parameters.UpdateServerAutoTerminateTime,
    "ShowJob": parameters.Nothing,
    "ListVolumes": parameters.ListThings,
    "DeleteVolume": parameters.Nothing,
    "ListPublicips": parameters.ListThings,
    "DeletePublicip": parameters.Nothing,
}


def route(request: WireRequest) -> tuple[str, Mapping[str, str]]:
    """Action and the ids in the path; the action is empty when there is no such API."""
    for method, pattern, action in ROUTES:
        match = re.fullmatch(pattern, request.path) if method == request.method else None
        if match is not None:
            return action, match.groupdict()
    return "", {}


def decoded(request: WireRequest, action: str) -> parameters.Parameters:
    """The parameters of a request.

    Raises:
        VendorError: one of them is wrong.
    """
    model = MODELS[action]
    if request.method in ("GET", "DELETE"):
        return parameters.from_query(model, request.query)
    if not request.headers.get("content-type", "").lower().startswith("application/json"):
        raise wrong("the Content-Type must be application/json")
    if request.query:
        raise wrong("a query")
    return parameters.from_body(model, request.body)
