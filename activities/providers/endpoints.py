"""Where an adapter sends its requests when it is not to the vendor's own address."""

import ipaddress
from urllib.parse import urlsplit

from domain.contracts.model import Contract


class Endpoint(Contract):
    """A host with its protocol. The SDKs want no scheme in the host: it would be signed as part of it."""

    host: str
    protocol: str

    @property
    def is_loopback(self) -> bool:
        """Whether this is a server on the same machine, which no proxy can reach."""
        name = urlsplit(f"//{self.host}").hostname or ""
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name == "localhost"


def endpoint_from(text: str) -> Endpoint | None:
    """Read ``host:port`` or a URL; None for an empty text, which is the vendor's own endpoint.

    Without a scheme it is HTTPS, but plain HTTP on loopback.
    """
    if not text:
        return None
    if "://" in text:
        parts = urlsplit(text)
        return Endpoint(host=parts.netloc, protocol=parts.scheme)
    endpoint = Endpoint(host=text, protocol="https")
    return endpoint.model_copy(update={"protocol": "http"}) if endpoint.is_loopback else endpoint
