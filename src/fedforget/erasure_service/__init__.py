"""The erasure service: HTTP access to the erasures of a run. Needs ``fedforget[service]``."""
