"""From a Program to one native call: passes, lower, schedule, allocate, emit, build (`stages`); `jit`, threads."""
