"""Wire-level simulators, one file per cloud, same names as the adapters."""
