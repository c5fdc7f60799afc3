"""Nodes on their way to the pools: only what changed, gathered, and everything once per run of a workflow."""

from collections import Counter
from collections.abc import Callable, Mapping

from crd_bridge.collection import Collection
from crd_bridge.keyed_queue import Key
from crd_bridge.keyed_tasks import KeyedTasks, Pace, ServedHook, ignore_served
from crd_bridge.nodes import SeenNode, SkipReason, gone, read_node
from crd_bridge.pool_workflows import DeliveryError, PoolWorkflows
from crd_bridge.watch import Change
from domain.contracts.facts import NodeFact, NodesSeen
from workflows.messages import NODE_SEEN

MAX_NODES_PER_SIGNAL = 500
"""A fact is about 250 bytes of JSON, and payloads are best kept far below the server's 512 KB warning."""

SkipHook = Callable[[Mapping[SkipReason, int]], None]
"""Told how many Nodes there are now that are no pool's business, by reason."""


class NodeRelay:
    """Signals ``node_seen``. Use ``tasks`` as a context, and feed it the changes of the Nodes."""

    def __init__(
        self,
        nodes: Collection,
        pool_of_uid: Callable[[str], Key | None],
        workflows: PoolWorkflows,
        *,
        gather_seconds: float = 0.2,
        on_skipped: SkipHook = lambda _: None,
        on_served: ServedHook = ignore_served,
    ) -> None:
        """Wire up.

        Args:
            nodes: All Nodes of the cluster as watched.
            pool_of_uid: Namespace and name of the pool with a uid, None if there is none.
            workflows: Where signals go.
            gather_seconds: How long changes are gathered into one signal.
            on_skipped: Counts.
            on_served: Told of each attempt to send.
        """
        self._nodes = nodes
        self._pool_of_uid = pool_of_uid
        self._workflows = workflows
        self._on_skipped = on_skipped
        self._seen: dict[Key, SeenNode] = {}
        self._skipped: dict[Key, SkipReason] = {}
        self._owners: dict[str, str] = {}
        self._pending: dict[str, dict[str, NodeFact]] = {}
        self._whole: set[str] = set()
        self._open: set[str] = set()
        self.tasks = KeyedTasks("node_seen", self._send, Pace(gather_seconds=gather_seconds), on_served)

    def take(self, key: Key, change: Change) -> None:
        """Take in one change of a Node."""
        read = read_node(change.object, self._owners)
        self._count_skipped(key, read if change.type != "DELETED" else None)
        before = self._seen.pop(key, None)
        now = read if isinstance(read, SeenNode) and change.type != "DELETED" else None
        if before and (now is None or _identity(now) != _identity(before)):
            self._owners.pop(before.fact.provider_id, None)
            self._note(before.pool_uid, gone(before.fact))
        if now:
            self._seen[key] = now
            self._owners[now.fact.provider_id] = now.pool_uid
            if now != before:
                self._note(now.pool_uid, now.fact)

    def send_all(self, pool_uid: str) -> None:
        """Send all Nodes of a pool once, also when it has none: a run answered that may have missed some.

        Before the first time nothing is sent to a pool: what changes until then is among all Nodes.
        """
        self._open.add(pool_uid)
        self._whole.add(pool_uid)
        self.tasks.mark(pool_uid)

    def forget(self, pool_uid: str) -> None:
        """The pool is gone."""
        self._open.discard(pool_uid)
        self._whole.discard(pool_uid)
        self._pending.pop(pool_uid, None)

    def _note(self, pool_uid: str, fact: NodeFact) -> None:
        self._pending.setdefault(pool_uid, {})[fact.provider_id] = fact
        self.tasks.mark(pool_uid)

    def _count_skipped(self, key: Key, read: SeenNode | SkipReason | None) -> None:
        before = self._skipped.pop(key, None)
        if isinstance(read, SkipReason):
            self._skipped[key] = read
        if before != self._skipped.get(key):
            self._on_skipped(Counter(self._skipped.values()))

    async def _send(self, pool_uid: str) -> None:
        """Send what is pending; what was not delivered stays pending unless something newer came."""
        pool = self._pool_of_uid(pool_uid)
        pending, whole = self._pending.pop(pool_uid, {}), pool_uid in self._whole
        self._whole.discard(pool_uid)
        if pool is None or pool_uid not in self._open:
            return
        try:
            for message in self._messages(pool_uid, pending, whole=whole):
                if not await self._workflows.signal(pool, NODE_SEEN, message):
                    self._open.discard(pool_uid)  # no run: the next one gets all Nodes
                    return
        except DeliveryError:
            self._pending[pool_uid] = {**pending, **self._pending.get(pool_uid, {})}
            if whole:
                self._whole.add(pool_uid)
            raise

    def _messages(self, pool_uid: str, pending: dict[str, NodeFact], *, whole: bool) -> list[NodesSeen]:
        """The signals to send; a complete one comes first and is one, whatever its size."""
        as_of = self._nodes.as_of
        if whole:
            read = (read_node(body, self._owners) for body in self._nodes.objects())
            facts = [node.fact for node in read if isinstance(node, SeenNode) and node.pool_uid == pool_uid]
            facts.sort(key=lambda fact: fact.provider_id)
            return [NodesSeen(as_of=as_of, nodes=tuple(facts), complete=True)]
        facts = [pending[provider_id] for provider_id in sorted(pending)]
        batches = range(0, len(facts), MAX_NODES_PER_SIGNAL)
        return [NodesSeen(as_of=as_of, nodes=tuple(facts[at : at + MAX_NODES_PER_SIGNAL])) for at in batches]


def _identity(node: SeenNode) -> tuple[str, str]:
    return node.pool_uid, node.fact.provider_id
