"""Servers and Java on this machine: find, install, start and supervise them."""
