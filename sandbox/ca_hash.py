"""The hash by which ``kubeadm join`` knows a cluster's certificate authority."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

_SEQUENCE = 0x30
_EXPLICIT_VERSION = 0xA0
_PEM_END = "-----END CERTIFICATE-----"


def ca_cert_hash(certificates: Path) -> str:
    """Return ``sha256:`` and the hex digest of the public key of the last certificate of a PEM file.

    Source: kubeadm, ``--discovery-token-ca-cert-hash``: SHA-256 of the DER of SubjectPublicKeyInfo. In a
    chain the issuer stands last.

    Raises:
        ValueError: The file holds no X.509 certificate.
    """
    parts = certificates.read_text().split(_PEM_END)
    if len(parts) < 2:
        raise ValueError(f"{certificates} holds no certificate")
    der = ssl.PEM_cert_to_DER_cert(parts[-2].lstrip() + _PEM_END)
    return "sha256:" + hashlib.sha256(_public_key(der)).hexdigest()


def _public_key(der: bytes) -> bytes:
    """Cut SubjectPublicKeyInfo out: Certificate, TBSCertificate, then its seventh field."""
    (certificate,) = _elements(der)
    to_be_signed = _elements(_content(certificate))[0]
    fields = _elements(_content(to_be_signed))
    if fields[0][0] == _EXPLICIT_VERSION:
        fields = fields[1:]
    # serialNumber, signature, issuer, validity, subject, subjectPublicKeyInfo
    key = fields[5]
    if key[0] != _SEQUENCE:
        raise ValueError("not an X.509 certificate")
    return key


def _elements(der: bytes) -> list[bytes]:
    """Split a sequence's content into its elements, each with its header."""
    found: list[bytes] = []
    while der:
        header, length = _header(der)
        found.append(der[: header + length])
        der = der[header + length :]
    return found


def _content(element: bytes) -> bytes:
    header, length = _header(element)
    return element[header : header + length]


def _header(der: bytes) -> tuple[int, int]:
    """Length of an element's header and of its content."""
    if len(der) < 2:
        raise ValueError("not an X.509 certificate")
    first = der[1]
    if first < 0x80:
        return 2, first
    count = first & 0x7F
    return 2 + count, int.from_bytes(der[2 : 2 + count])
