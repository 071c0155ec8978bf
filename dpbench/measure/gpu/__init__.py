"""What NVIDIA GPUs report beside the samples, and all calls of NVML.

    telemetry.py       readings over the sampled window
    bindings.py        NVIDIA's own module pynvml
    nvml.py            one call of NVML
    nvml_counters.py   counters of traffic, throttling and energy
    facts.py           what does not change while a GPU works

A metric that a GPU refuses is a `Reading` without a value and with the reason. A lost GPU raises LostGpuError.
"""
