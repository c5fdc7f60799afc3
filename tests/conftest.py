"""What every test shares: how many examples properties try, and a proxy-free environment."""

import os

from hypothesis import HealthCheck, settings

# No deadline anywhere: the machine may be busy, and a property is about values, not about time.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=300, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# The SDKs of two clouds send even loopback calls to a proxy, whatever NO_PROXY says.
for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(name, None)
    os.environ.pop(name.lower(), None)
