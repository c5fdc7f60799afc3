"""The boot script of a machine: a node class's template with its placeholders filled in."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from domain.contracts.instances import LaunchRequest
from domain.contracts.offers import ProviderName
from domain.contracts.provider_ids import provider_id

INSTANCE_ID_VARIABLE: Final = "$INSTANCE_ID"
"""The id is known on the machine only: scripts read it from ``metadata.instanceIdURL`` into this variable."""

# Source: the vendors' pages on instance metadata; each answers the bare id as text.
_INSTANCE_ID_URLS: Final[Mapping[ProviderName, str]] = {
    ProviderName.TENCENT: "http://metadata.tencentyun.com/latest/meta-data/instance-id",
    ProviderName.ALIYUN: "http://100.100.100.200/latest/meta-data/instance-id",
    ProviderName.AWS: "http://169.254.169.254/latest/meta-data/instance-id",
}
_PLACEHOLDER: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_JOIN: Final = "join."
_SHOWN_CHARS: Final = 60


class UserDataError(ValueError):
    """The template cannot be filled in; the text names the placeholder and never a value."""


def render_user_data(request: LaunchRequest, join: Mapping[str, str]) -> str:
    """Fill in every placeholder of the template.

    Args:
        request: The launch; its template may use ``{{ providerID }}``, ``{{ taints }}``, ``{{ labels }}``,
            ``{{ nodeName }}``, ``{{ metadata.instanceIdURL }}`` and ``{{ join.KEY }}``.
        join: The decoded join Secret; white space around a value (a file's last line break) is dropped.

    Returns:
        The script as plain text. It holds the join token: it goes to the cloud and nowhere else.

    Raises:
        UserDataError: A placeholder is unknown, or the Secret lacks its key.
    """
    return _PLACEHOLDER.sub(
        lambda found: _value(found.group(1).strip(), request, join), request.user_data_template
    )


def uses_join_secret(template: str) -> bool:
    """Whether the template needs the join Secret at all."""
    return any(name.strip().startswith(_JOIN) for name in _PLACEHOLDER.findall(template))


def _value(name: str, request: LaunchRequest, join: Mapping[str, str]) -> str:
    if name.startswith(_JOIN):
        return _join_value(name.removeprefix(_JOIN), request.join_secret, join)
    if name not in _VALUES:
        known = ", ".join([*_VALUES, f"{_JOIN}KEY"])
        raise UserDataError(
            f"userDataTemplate: placeholder {{{{ {name[:_SHOWN_CHARS]} }}}} is not known; known are {known}"
        )
    return _VALUES[name](request)


def _join_value(key: str, secret: str, join: Mapping[str, str]) -> str:
    value = join.get(key, "").strip()
    if not value:
        shown = key[:_SHOWN_CHARS]
        raise UserDataError(f"userDataTemplate: {{{{ join.{shown} }}}}: Secret {secret} has no key {shown}")
    return value


def _provider_id(request: LaunchRequest) -> str:
    offer = request.offer
    return provider_id(offer.provider, offer.region, offer.zone, INSTANCE_ID_VARIABLE)


def _taints(request: LaunchRequest) -> str:
    return ",".join(request.taints)


def _labels(request: LaunchRequest) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(request.labels.items()))


def _node_name(request: LaunchRequest) -> str:
    return request.name


def _instance_id_url(request: LaunchRequest) -> str:
    provider = request.offer.provider
    if provider not in _INSTANCE_ID_URLS:
        raise UserDataError(f"userDataTemplate: {{{{ metadata.instanceIdURL }}}} is not known for {provider}")
    return _INSTANCE_ID_URLS[provider]


_VALUES: Final[Mapping[str, Callable[[LaunchRequest], str]]] = {
    "providerID": _provider_id,
    "taints": _taints,
    "labels": _labels,
    "nodeName": _node_name,
    "metadata.instanceIdURL": _instance_id_url,
}
