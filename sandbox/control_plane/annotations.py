"""The annotations by which the sandbox tells kwok's stages what a machine and its pods do.

The stage files in ``kwok_stages`` select by these names; a test holds the two together.
"""

MANAGED_BY_KWOK = "kwok.x-k8s.io/node"
"""On a Node, value ``MANAGED_BY_KWOK_VALUE``: kwok plays its kubelet, as long as the Node lives."""

MANAGED_BY_KWOK_VALUE = "fake"

POWER = "sandbox.spotgpu.zuoyang.io/power"
"""On a Node: heartbeats are sent only while it is ``POWER_ON``. On a Pod: ``POWER_OFF`` freezes it."""

POWER_ON = "on"
POWER_OFF = "off"

RUN_AS = "sandbox.spotgpu.zuoyang.io/run-as"
"""On a Pod: ``RUN_AS_PROCESS`` keeps kwok away from it, because the sandbox runs its command for real."""

RUN_AS_PROCESS = "process"

RUN_SECONDS = "sandbox.spotgpu.zuoyang.io/run-seconds"
"""On a Pod of a Job: how many seconds it runs before it succeeds; 1 without it."""
