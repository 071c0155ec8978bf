"""What is compared: ways to run one training step on several devices, each a value."""
