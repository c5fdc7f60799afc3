"""Wraps any provider with latency, outcomes and error counts."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from activities.providers.base import Capability, Provider
from activities.telemetry import metrics
from domain.contracts.errors import KEYS_REFUSED, MAX_MESSAGE_CHARS, ErrorCode, ProviderError
from domain.contracts.instances import Created, Instance, LaunchRequest, LaunchResult, OfferQuery, Rejected
from domain.contracts.leftovers import Leftover
from domain.contracts.offers import InstanceType, Offer, RegionKey

Answer = TypeVar("Answer")
OnThrottled = Callable[[RegionKey, str], None]


def nobody(key: RegionKey, operation: str) -> None:
    """Nobody is told."""


class InstrumentedProvider:
    """The same port, observed. Adds no call and changes no answer, but refused keys name their Secret."""

    def __init__(self, provider: Provider, on_throttled: OnThrottled = nobody) -> None:
        """Observe an adapter; ``on_throttled`` is told the region and the operation, and must not fail."""
        self._provider = provider
        self._on_throttled = on_throttled

    @property
    def key(self) -> RegionKey:
        """See ``Provider.key``."""
        return self._provider.key

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See ``Provider.capabilities``."""
        return self._provider.capabilities

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        """See ``Provider.launch``; a market answer counts under its code."""
        result = self._observe("launch", lambda: self._provider.launch(request, user_data), _launch_outcome)
        if isinstance(result, Rejected) and result.code in KEYS_REFUSED:
            return result.model_copy(update={"message": self._with_secret(result.message)})
        return result

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """See ``Provider.terminate``."""
        self._observe("terminate", lambda: self._provider.terminate(instance_ids))

    def describe(self, instance_ids: Sequence[str]) -> list[Instance]:
        """See ``Provider.describe``."""
        return self._observe("describe", lambda: self._provider.describe(instance_ids))

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        """See ``Provider.list_tagged``."""
        return self._observe("list_tagged", lambda: self._provider.list_tagged(tags))

    def offers(self, query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        """See ``Provider.offers``."""
        return self._observe("offers", lambda: self._provider.offers(query, types))

    def retain(self, instance_ids: Sequence[str], installation: str) -> None:
        """See ``Provider.retain``."""
        self._observe("retain", lambda: self._provider.retain(instance_ids, installation))

    def dead_man_times(self, instance_ids: Sequence[str]) -> dict[str, datetime]:
        """See ``Provider.dead_man_times``."""
        return self._observe("dead_man_times", lambda: self._provider.dead_man_times(instance_ids))

    def renew_dead_man(self, instance_ids: Sequence[str], at: datetime) -> None:
        """See ``Provider.renew_dead_man``."""
        self._observe("renew_dead_man", lambda: self._provider.renew_dead_man(instance_ids, at))

    def leftovers(self, tags: Mapping[str, str]) -> list[Leftover]:
        """See ``Provider.leftovers``."""
        return self._observe("leftovers", lambda: self._provider.leftovers(tags))

    def release(self, leftovers: Sequence[Leftover]) -> None:
        """See ``Provider.release``."""
        self._observe("release", lambda: self._provider.release(leftovers))

    def close(self) -> None:
        """See ``Provider.close``."""
        self._provider.close()

    def _with_secret(self, text: str) -> str:
        """What concerns keys names the Secret that they are in, so that a person knows where to look."""
        secret = f"Secret {self.key.account}"
        return text if self.key.account in text else f"{secret}: {text}"[:MAX_MESSAGE_CHARS]

    def _observe(
        self,
        operation: str,
        call: Callable[[], Answer],
        outcome_of: Callable[[Answer], str] = lambda _: "ok",
    ) -> Answer:
        provider, region = self.key.provider.value, self.key.region
        started = time.monotonic()
        outcome = "crashed"
        try:
            answer = call()
            outcome = outcome_of(answer)
        except ProviderError as error:
            outcome = error.code.value
            if error.code in KEYS_REFUSED:
                error.args = (self._with_secret(str(error)),)
            if error.code is ErrorCode.THROTTLED:
                self._on_throttled(self.key, operation)
            metrics.PROVIDER_ERRORS.labels(provider, region, outcome).inc()
            if error.code is ErrorCode.UNKNOWN:
                metrics.UNKNOWN_CODES.labels(provider, error.operation, error.vendor_code).inc()
            raise
        else:
            return answer
        finally:
            metrics.PROVIDER_CALL_SECONDS.labels(provider, region, operation).observe(
                time.monotonic() - started
            )
            metrics.PROVIDER_CALLS.labels(provider, region, operation, outcome).inc()


def _launch_outcome(result: LaunchResult) -> str:
    return "ok" if isinstance(result, Created) else result.code.value
