"""One child process per case and round. The parent side imports no torch."""
