"""Kubeconfig and token files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from sandbox.control_plane.kubeconfigs import Identity, read_token, write_kubeconfig, write_token_file


def test_write_kubeconfig_names_server_issuer_and_token(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    user = "system:serviceaccount:a:b"
    write_kubeconfig(path, server="https://127.0.0.1:1", ca=Path("/x y/ca.crt"), user=user, token="t-1")
    content = yaml.safe_load(path.read_text())
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert content["clusters"][0]["cluster"]["certificate-authority"] == "/x y/ca.crt"
    assert content["users"] == [{"name": user, "user": {"token": "t-1"}}]
    assert read_token(path) == "t-1"
    assert path.stat().st_mode & 0o077 == 0


def test_write_kubeconfig_refuses_what_it_cannot_quote(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plainer path"):
        write_kubeconfig(tmp_path / "k", server="s", ca=Path('/a"b'), user="u", token="t")


def test_write_token_file_gives_each_identity_its_own_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    tokens = write_token_file(path, {"admin": Identity("boss", "system:masters"), "kwok": Identity("kwok")})
    rows = list(csv.reader(path.read_text().splitlines()))
    assert rows == [
        [tokens["admin"], "boss", "sandbox-admin", "system:masters"],
        [tokens["kwok"], "kwok", "sandbox-kwok", ""],
    ]
    assert len(set(tokens.values())) == 2
    assert path.stat().st_mode & 0o077 == 0
