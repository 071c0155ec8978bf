"""One process per device. SCRIPTS.md is the manual of `dpbench counts --script`."""
