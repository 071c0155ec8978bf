"""What NVIDIA GPUs report beside the samples, and all calls of NVML.

    telemetry.py       readings over the sampled window: utilisation, power, clocks, throttling, traffic; GPM
    nvml.py            one call of NVML at a time: its result, the reason for a refusal, or a lost GPU
    nvml_counters.py   counters of traffic, throttling and energy, read at both edges of the window
    facts.py           what does not change while a GPU works: UUID, clock and power limits, links

A metric that a GPU refuses is a `Reading` without a value and with the reason. A lost GPU raises LostGpuError.
"""
