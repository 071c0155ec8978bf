"""One line on each name of the vocabulary, for `dpbench list`."""

from dpbench.sweep.names import Family, Mode, Size, VariantName

VARIANTS: dict[VariantName, str] = {
    VariantName.SINGLE: "the plain model on the first device: the yardstick",
    VariantName.TORCH_DP: "torch.nn.DataParallel, the stock one; needs accelerators",
    VariantName.NAIVE: "the stock algorithm in plain Python, on any devices: rebuilds all replicas every forward",
    VariantName.FLOOR: "the plain model on each chunk in turn and one backward: no scheme on shared lanes does less",
    VariantName.TUNED: "dpbench.DataParallel: cached replicas, coalesced copies, long-lived dispatch",
    VariantName.DDP: "torch DistributedDataParallel, one process per device, gloo on CPU and nccl on CUDA",
    VariantName.TUNED_NO_CACHE_REPLICAS: "tuned, but all replicas are built anew every forward",
    VariantName.TUNED_NO_COALESCE: "tuned, but every tensor travels alone",
    VariantName.TUNED_NO_OVERLAP_BROADCAST: "tuned, but parameters travel on the compute streams",
    VariantName.TUNED_NO_OVERLAP_REDUCE: "tuned, but gradients are added up after backward, on the compute streams",
    VariantName.TUNED_NO_OVERLAP_COPIES: "tuned, but inputs and outputs travel on the compute streams",
    VariantName.TUNED_THREADS: "tuned, always a thread per lane",
    VariantName.TUNED_SEQUENCE: "tuned, always one lane after the other",
    VariantName.TUNED_SKIP_UNCHANGED: "tuned, and parameters that did not change are not sent again",
    VariantName.TUNED_HOST_STAGED: "tuned, but what goes between devices goes through the host",
}

FAMILIES: dict[Family, str] = {
    Family.MLP: "launch-bound: many small linear layers",
    Family.CONVNET: "ResNet layout with batch norm; base is ResNet-50 with 25,557,032 parameters",
    Family.TRANSFORMER: "GPT-2 layout with tied head; small has 124,439,808 parameters",
    Family.EMBEDDING: "parameter-heavy: large tables, dense gradients",
    Family.EMBEDDING_SPARSE: "the same with sparse gradients",
}

SIZES = tuple(Size)

MODES: dict[Mode, str] = {
    Mode.TRAIN: "zero_grad, forward, loss, backward, optimiser step",
    Mode.INFER: "forward under no_grad",
}

METRICS: dict[str, str] = {
    "step_time_s": "seconds per step: median over rounds of the median over samples, with a 95 % interval",
    "ratio": "step time over the reference variant's in the same run, with a 95 % interval",
    "percent_of_limit": "one device's time for its share alone, over the step time; where each lane has a device",
    "percent_of_single": "one device's time for the whole batch, over the step time; where lanes share a device",
    "throughput": "batch items per second",
    "skew_s": "per step, the slowest rank's time less the fastest's; one process per device only",
    "rank_lag_s": "per rank, the median of its step time less the fastest's; one process per device only",
    "phases_s": "seconds by phase of the step, from steps beside the samples, or why there are none",
    "relative_error": "distance of the gradients from those of the plain module run chunk by chunk",
    "peak_rss_bytes": "the most host memory that each process of the case held, summed",
    "peak_device_bytes": "the most that the allocator of each device had given out during the samples",
    "peak_reserved_bytes": "the most that it had taken from the device",
    "telemetry": "of each GPU during the samples: utilisation, power, energy, traffic, clocks, time throttled",
}
