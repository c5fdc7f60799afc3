"""One file per cloud, all of one shape; reached through the registry only."""
