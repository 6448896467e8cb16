"""Audits of forgetting: worlds with and without some users, who are forgotten there by several methods."""
