"""Where the time of a step goes: one timeline for each variant, from a simulation or a profile. Pure."""
