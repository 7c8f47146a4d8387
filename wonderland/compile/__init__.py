"""From a Program to one native call: passes, fusion, memory plan, loop nests, LLVM, threads, `jit`."""
