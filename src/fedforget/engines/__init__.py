"""Engines: how server and devices talk."""
