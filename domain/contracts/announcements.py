"""Kubernetes Events: reason and wording are API, so they are data that decisions return."""

from enum import StrEnum

from domain.contracts.model import AwareDatetime, Contract


class EventType(StrEnum):
    """The two types that Kubernetes knows."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventReason(StrEnum):
    """One word per step of a pool's life."""

    LAUNCH_ORDERED = "LaunchOrdered"
    INSTANCE_CREATED = "InstanceCreated"
    INSTANCE_RUNNING = "InstanceRunning"
    NODE_JOINED = "NodeJoined"
    INSTANCE_READY = "InstanceReady"
    LAUNCH_REFUSED = "LaunchRefused"
    LAUNCH_REJECTED = "LaunchRejected"
    LAUNCH_UNRESOLVED = "LaunchUnresolved"
    LAUNCH_FAILED = "LaunchFailed"
    SCALE_UP_FAILED = "ScaleUpFailed"
    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    INTERRUPTED = "Interrupted"
    INSTANCE_LOST = "InstanceLost"
    INSTANCE_ADOPTED = "InstanceAdopted"
    INSTANCE_UNTAGGED = "InstanceUntagged"
    DRAINING = "Draining"
    DRAIN_BLOCKED = "DrainBlocked"
    TERMINATING = "Terminating"
    INSTANCE_TERMINATED = "InstanceTerminated"
    FALLBACK = "Fallback"
    INTERVENTION = "Intervention"
    INTERVENTION_REFUSED = "InterventionRefused"
    DELETING = "Deleting"
    DELETED = "Deleted"
    DELETION_STUCK = "DeletionStuck"
    CONFIGURATION_INVALID = "ConfigurationInvalid"
    PROVIDER_UNAVAILABLE = "ProviderUnavailable"
    PROVIDER_AVAILABLE = "ProviderAvailable"
    ORPHAN_FOUND = "OrphanFound"
    ORPHAN_RECLAIMED = "OrphanReclaimed"
    LEFTOVER_RELEASED = "LeftoverReleased"
    LEFTOVERS_FOUND = "LeftoversFound"
    """Addresses or disks that no machine uses and that we may not release."""
    INSTANCE_RETAINED = "InstanceRetained"
    EPOCH_LOST = "EpochLost"
    """Another installation with our id and a higher epoch runs: this one ends no machine any more."""


class Announcement(Contract):
    """One Kubernetes Event to publish about an object."""

    reason: EventReason
    message: str
    type: EventType = EventType.NORMAL
    at: AwareDatetime
    key: str
    """Deduplicates: the same key publishes one Event however often it is tried."""
