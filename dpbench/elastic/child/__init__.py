"""agent.py         torchrun with time stamps
fleet.py         an agent for each rank, which may leave and join
trainer.py       the worker that trains
checkpoints.py   what it writes and reads again
inject.py        the faults
"""
