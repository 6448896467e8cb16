"""The service's page for people."""
