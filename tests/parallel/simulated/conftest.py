"""Fixtures for links between simulated devices."""

import pytest

from dpbench.parallel import transfer


@pytest.fixture
def _fresh_links():
    transfer._peers_are_sound.cache_clear()
    yield
    transfer._peers_are_sound.cache_clear()


@pytest.fixture
def corrupt(_fresh_links, monkeypatch):
    """A function that lets direct copies to a device arrive corrupted: from one device, or from all."""

    def corrupt(destination, source=None):
        def copy(tensor, device):
            is_corrupt = str(device) == destination and source in (None, str(tensor.device))
            return direct(tensor, device) + is_corrupt

        direct = transfer._direct_copy
        monkeypatch.setattr(transfer, "_direct_copy", copy)

    return corrupt
