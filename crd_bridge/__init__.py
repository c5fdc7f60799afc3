"""The front door: custom resources to workflow messages. Holds no truth."""
