"""The metadata service of the machine that this runs on, asked for notices.

reader = MetadataReader(ProviderName.AWS)
reading = await reader.read()
await reader.close()
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from domain.contracts.interruptions import Notice
from domain.contracts.offers import ProviderName
from node_agent.notices import NOTICE_SOURCES, NoticeSource, UnreadableNoticeError


@dataclass(frozen=True)
class Reading:
    """What the metadata service said in one round, and what could not be read."""

    notices: tuple[Notice, ...] = ()
    faults: tuple[str, ...] = ()
    """One line each: what was asked and why there is no answer. With a fault, no notice is not good news."""


class MetadataError(Exception):
    """The metadata service did not answer, or not as it should; the message says what was asked."""


@dataclass(frozen=True)
class _Session:
    """How a service opens sessions: a token is put before the first question and sent with each."""

    path: str
    token_header: str
    life_header: str
    seconds: int
    required: bool
    """Whether the service answers nobody without one."""


@dataclass(frozen=True)
class _Service:
    address: str
    session: _Session | None = None


_SERVICES: Final[Mapping[ProviderName, _Service]] = {
    ProviderName.TENCENT: _Service("http://metadata.tencentyun.com"),
    ProviderName.ALIYUN: _Service(
        "http://100.100.100.200",
        _Session(
            "/latest/api/token",
            "X-aliyun-ecs-metadata-token",
            "X-aliyun-ecs-metadata-token-ttl-seconds",
            seconds=21_600,
            required=False,
        ),
    ),
    ProviderName.HUAWEI: _Service(
        "http://169.254.169.254",
        # Sessions exist in some regions only. A minute is what is known to be granted.
        _Session(
            "/meta-data/latest/api/token",
            "X-Metadata-Token",
            "X-Metadata-Token-Ttl-Seconds",
            seconds=60,
            required=False,
        ),
    ),
    ProviderName.AWS: _Service(
        "http://169.254.169.254",
        _Session(
            "/latest/api/token",
            "X-aws-ec2-metadata-token",
            "X-aws-ec2-metadata-token-ttl-seconds",
            seconds=21_600,  # the longest that AWS grants
            required=True,
        ),
    ),
}
_NO_SESSIONS: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
_SESSION_OVER: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class MetadataReader:
    """Asks one machine's metadata service. Belongs to the event loop that it was made in."""

    def __init__(self, provider: ProviderName, base_url: str = "", *, timeout_seconds: float = 2.0) -> None:
        """Read as a machine of ``provider`` does.

        Args:
            provider: The cloud that the machine runs at.
            base_url: Where the service is, without the vendor's path; empty means the vendor's own address.
            timeout_seconds: The longest wait for one answer.
        """
        self._service = _SERVICES[provider]
        self._sources = NOTICE_SOURCES[provider]
        self._base_url = (base_url or self._service.address).rstrip("/")
        self._token: str | None = None
        # A link-local address is never reached through a proxy.
        self._client = ClientSession(timeout=ClientTimeout(total=timeout_seconds), trust_env=False)

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.close()

    async def read(self) -> Reading:
        """Ask every source once; one that fails hides no other, its fault stands beside their notices."""
        try:
            await self._open_session()
        except MetadataError as error:
            return Reading(faults=(str(error),))
        notices: list[Notice] = []
        faults: list[str] = []
        for group in self._sources:
            for source in group:
                try:
                    notice = await self._ask(source)
                except (MetadataError, UnreadableNoticeError) as error:
                    faults.append(str(error))
                    continue
                if notice is not None:
                    notices.append(notice)
                    break
        return Reading(tuple(notices), tuple(faults))

    async def _ask(self, source: NoticeSource) -> Notice | None:
        status, text = await self._get(source.path)
        if status in _SESSION_OVER and self._service.session is not None:
            self._token = None
            await self._open_session()
            status, text = await self._get(source.path)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise MetadataError(f"GET {self._base_url}{source.path}: status {status}")
        return source.parse(text)

    async def _open_session(self) -> None:
        """Get a token unless there is one; an empty token stands for a service without sessions."""
        session = self._service.session
        if session is None or self._token is not None:
            return
        status, text = await self._request("PUT", session.path, {session.life_header: str(session.seconds)})
        if status in _NO_SESSIONS and not session.required:
            self._token = ""
            return
        if status != HTTPStatus.OK:
            raise MetadataError(f"PUT {self._base_url}{session.path}: no session: status {status}")
        token = text.strip()
        if not token or not token.isprintable() or " " in token:
            raise MetadataError(f"PUT {self._base_url}{session.path}: the answer is no token")
        self._token = token

    async def _get(self, path: str) -> tuple[int, str]:
        session = self._service.session
        headers = {session.token_header: self._token} if session is not None and self._token else {}
        return await self._request("GET", path, headers)

    async def _request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        url = self._base_url + path
        try:
            async with self._client.request(method, url, headers=headers, allow_redirects=False) as answer:
                return answer.status, await answer.text(encoding="utf-8", errors="replace")
        except (ClientError, TimeoutError) as error:
            raise MetadataError(f"{method} {url}: {str(error) or type(error).__name__}") from error
