"""Kubeconfig files and the tokens they carry."""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TEMPLATE = """\
apiVersion: v1
kind: Config
current-context: sandbox
clusters:
- name: sandbox
  cluster:
    server: {server}
    certificate-authority: {ca}
contexts:
- name: sandbox
  context:
    cluster: sandbox
    user: {user}
users:
- name: {user}
  user:
    token: {token}
"""


@dataclass(frozen=True)
class Identity:
    """Who a token of the token file stands for."""

    user: str
    group: str = ""


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: str, token: str) -> None:
    """Write a kubeconfig that only this user may read.

    Args:
        path: The file; replaced whole.
        server: URL of the API server.
        ca: Certificate file that clients trust. Named by its path, so it may be made later.
        user: Name shown by ``kubectl config view``; plain letters, digits, ``:`` and ``-``.
        token: Bearer token.
    """
    text = _TEMPLATE.format(server=server, ca=_quoted(str(ca)), user=_quoted(user), token=_quoted(token))
    write_private(path, text)


def read_token(path: Path) -> str:
    """Return the token of a kubeconfig that ``write_kubeconfig`` made."""
    line = next(line for line in path.read_text().splitlines() if line.startswith("    token: "))
    return line.removeprefix("    token: ").strip('"')


def write_token_file(path: Path, identities: Mapping[str, Identity]) -> dict[str, str]:
    """Make a token for each identity and write the API server's token file.

    Returns:
        Tokens under the keys of ``identities``.
    """
    tokens = {name: secrets.token_urlsafe(24) for name in identities}
    rows = [(tokens[name], who.user, f"sandbox-{name}", who.group) for name, who in identities.items()]
    scratch = path.with_name(f"{path.name}.rows")
    write_private(scratch, "")
    with scratch.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    scratch.replace(path)
    return tokens


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``, never readable by others, never half written."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    scratch.replace(path)


def _quoted(text: str) -> str:
    """Quote for YAML; the characters that would need an escape do not occur in what we write."""
    if '"' in text or "\\" in text or "\n" in text:
        raise ValueError(f"cannot be written into a kubeconfig: {text!r}. Choose a plainer path or name.")
    return f'"{text}"'
