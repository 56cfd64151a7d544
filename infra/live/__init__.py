"""The live view's server, Valkey or Redis: access and keys."""
