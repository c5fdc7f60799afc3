"""What a machine's user data makes of it: the few things of a shell script that decide how a Node is born.

Read are: assignments (also from ``curl`` of the machine's own metadata, with one ``sed 's/…/…/'`` behind it),
here-documents, the kubelet's flags and ``kubeadm join``. Everything else in a script is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Taint:
    """One taint of a Node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class JoinLine:
    """The arguments of ``kubeadm join``."""

    server: str
    """``host:port`` of the API server."""
    token: str
    ca_cert_hash: str
    """``sha256:`` and the hex digest of the CA's public key."""


@dataclass(frozen=True)
class BootPlan:
    """What a script says about the Node; an empty field was not said."""

    provider_id: str = ""
    node_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Taint, ...] = ()
    join: JoinLine | None = None


class BootScriptError(Exception):
    """The kubelet would not start with these flags; the message names the flag and the value."""


_HEREDOC = re.compile(r"<<-?\s*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")
_ASSIGNMENT = re.compile(r"^(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>.*)$")
_CURL = re.compile(r"^\$\(\s*curl\b.*?(?P<url>https?://[^\s)\"']+).*\)$")
_SED = re.compile(r"\|\s*sed\s+'s(?P<mark>[/|,])(?P<find>.*?)(?P=mark)(?P<put>.*?)(?P=mark)'\s*\)$")
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>\w+))")
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
# Source: kubernetes 1.36, pkg/kubelet/apis/well_known_labels.go and cmd/kubelet/app/options: a kubelet with
# another label of these domains in --node-labels does not start.
_KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    }
)
_KUBELET_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def read_boot_script(script: str, metadata: Mapping[str, str]) -> BootPlan:
    """Work out what a script does to its machine.

    Args:
        script: Decoded user data.
        metadata: Path of the metadata service, such as ``/latest/meta-data/instance-id``, to its text.

    Raises:
        BootScriptError: A label or taint that a kubelet refuses.
    """
    text = "\n".join(_run(script, metadata))
    return BootPlan(
        provider_id=_flag(text, "provider-id"),
        node_name=_flag(text, "hostname-override")
        or _flag(text, "node-name")
        or _first(r"^\s*hostnamectl\s+set-hostname\s+([^\s\"']+)", text),
        labels=dict(_labels(_flag(text, "node-labels"))),
        taints=tuple(_taints(_flag(text, "register-with-taints"))),
        join=_join(text),
    )


def _run(script: str, metadata: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the script with variables filled in, comments left out."""
    variables: dict[str, str] = {}
    ends_at, literal = "", False
    for line in script.replace("\\\n", " ").splitlines():
        if ends_at:
            if line.strip() == ends_at:
                ends_at = ""
            else:
                yield line if literal else _expand(line, variables)
            continue
        if line.lstrip().startswith("#"):
            continue
        heredoc = _HEREDOC.search(line)
        if heredoc:
            ends_at, literal = heredoc["word"], bool(heredoc["quote"])
        _assign(line.strip(), variables, metadata)
        yield _expand(line, variables)


def _assign(line: str, variables: dict[str, str], metadata: Mapping[str, str]) -> None:
    found = _ASSIGNMENT.match(line)
    if found is None:
        return
    value = found["value"].strip()
    unquoted = value[1:-1] if value[:1] == value[-1:] == '"' else value
    curl = _CURL.match(unquoted)
    if curl:
        path = urlsplit(_expand(curl["url"], variables)).path
        # curl -f prints nothing for a 404
        variables[found["name"]] = _filtered(metadata.get(path, ""), unquoted)
    else:
        variables[found["name"]] = _expand(unquoted.strip("'"), variables)


def _filtered(text: str, command: str) -> str:
    """What the ``sed`` of a pipe makes of a text; the text itself without one."""
    sed = _SED.search(command)
    if sed is None:
        return text
    # A group is \( \) for sed and ( ) for Python; the rest of a simple expression is the same for both.
    pattern = re.sub(r"\\?[()]", lambda found: found[0][1:] or f"\\{found[0]}", sed["find"])
    return re.sub(pattern, sed["put"], text, count=1)


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Fill in what is set; what is not becomes empty, as in a shell."""
    return _VARIABLE.sub(lambda found: variables.get(found["braced"] or found["plain"], ""), text)


def _flag(text: str, name: str) -> str:
    """The value of the last ``--name=value`` or ``--name value``."""
    values = re.findall(rf"--{name}(?:=|\s+(?!-))[\"']?([^\s\"']*)", text)
    return values[-1] if values else ""


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else ""


def _join(text: str) -> JoinLine | None:
    line = _first(r"^(.*\bkubeadm\s+join\s.*)$", text)
    if not line:
        return None
    server = _first(r"\bkubeadm\s+join\s+(?!-)(\S+)", line)
    return JoinLine(server, _flag(line, "token"), _flag(line, "discovery-token-ca-cert-hash"))


def _labels(value: str) -> Iterator[tuple[str, str]]:
    for item in filter(None, value.split(",")):
        key, _, label = item.partition("=")
        domain = key.rpartition("/")[0]
        ours = re.search(r"(?:^|\.)(?:kubernetes|k8s)\.io$", domain)
        allowed = key in _KUBELET_LABELS or any(
            domain == known or domain.endswith(f".{known}") for known in _KUBELET_LABEL_DOMAINS
        )
        if ours and not allowed:
            raise BootScriptError(f"--node-labels: a kubelet does not start with the label {key}")
        yield key, label


def _taints(value: str) -> Iterator[Taint]:
    for item in filter(None, value.split(",")):
        pair, _, effect = item.rpartition(":")
        key, _, taint = pair.partition("=")
        if not key or effect not in _EFFECTS:
            raise BootScriptError(f"--register-with-taints: {item!r} is not key=value:Effect")
        yield Taint(key, taint, effect)
