"""What a cluster needs before an operator can run in it: definitions, rights, Secrets, node classes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from sandbox.boot_script import JoinLine
from sandbox.clusters import Cluster
from sandbox.world_config import CloudConfig

REPOSITORY = Path(__file__).resolve().parent.parent
"""The sandbox applies the manifests and examples of the repository as they stand."""

OPERATOR_NAMESPACE = "spotgpu-system"
JOIN_SECRET = "cluster-join"  # noqa: S105 - a Secret's name, not a secret
CRDS = REPOSITORY / "deploy" / "crds"
MANIFESTS = REPOSITORY / "deploy" / "manifests"
RBAC = REPOSITORY / "deploy" / "rbac"
EXAMPLES = REPOSITORY / "docs" / "examples"


def provision(cluster: Cluster, clouds: tuple[CloudConfig, ...], join: JoinLine) -> None:
    """Apply everything; repeating it changes nothing.

    Raises:
        ControlPlaneError: The API server refused something; its words are in the message.
    """
    # Server-side, since a client-side apply would copy a Secret's content into an annotation.
    apply = ("apply", "--server-side", "--force-conflicts")
    cluster.kubectl(*apply, f"--filename={CRDS}", f"--filename={MANIFESTS}", f"--filename={RBAC}")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"--filename={CRDS}")
    items = [
        _secret(JOIN_SECRET, _join_fields(join)),
        *(_secret(account_of(cloud), _keys(cloud)) for cloud in clouds),
        *(_in_operators_namespace(_read(cloud.node_class)) for cloud in clouds),
    ]
    everything = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl(*apply, "--filename=-", stdin=json.dumps(everything))


def account_of(cloud: CloudConfig) -> str:
    """Name of the credentials Secret that the cloud's node class names."""
    return str(_read(cloud.node_class)["spec"]["credentialsSecretRef"]["name"])


def service_accounts() -> Mapping[str, str]:
    """Return the service accounts of ``worker`` and ``bridge`` by process, as the manifests name them.

    Raises:
        ValueError: The manifests have no service account for one of the two.
    """
    names = [
        str(document["metadata"]["name"])
        for path in sorted(RBAC.glob("*.yaml"))
        for document in _documents(path)
        if document.get("kind") == "ServiceAccount"
    ]
    found: dict[str, str] = {}
    for process in ("worker", "bridge"):
        matching = [name for name in names if name.endswith(process)]
        if len(matching) != 1:
            raise ValueError(f"{RBAC} names no service account of the {process}: {names}")
        found[process] = matching[0]
    return found


def _in_operators_namespace(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": OPERATOR_NAMESPACE}}


def _secret(name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": OPERATOR_NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": dict(fields)}


def _join_fields(join: JoinLine) -> dict[str, str]:
    return {"server": join.server, "token": join.token, "caCertHash": join.ca_cert_hash}


def _keys(cloud: CloudConfig) -> dict[str, str]:
    keys = {"accessKeyId": cloud.access_key_id, "accessKeySecret": cloud.access_key_secret}
    return {**keys, **cloud.projects}


def _read(path: Path) -> dict[str, Any]:
    return next(_documents(path))


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(path.read_text()):
        if isinstance(document, dict):
            yield document
