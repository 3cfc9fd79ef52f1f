// What this machine can do at best, to judge the ops by.
#pragma once

namespace motley {

// Fused multiply-adds on registers, one thread: GFLOP/s (two per fma).
double measure_fma_gflops();

// Reading memory far larger than the caches, one thread: GB/s.
double measure_read_gbps();

}  // namespace motley
