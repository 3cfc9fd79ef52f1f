// Whether packing pays on a drive: experts as the checkpoint has them against whole records.
//
// Random experts are read by the very ranges that streaming would use, then as many bytes from
// random places in two ranges each, as a pack has them; the two take turns, several times, because
// drives are noisy, and the medians are compared. Rates count bytes of weights only. Takes about
// three seconds and writes nothing.
// Units: bytes, seconds. Thread rule: one thread; nothing else should use the drive meanwhile.
// Errors: kIo when a read fails twice.
#pragma once

#include <cstdint>

#include "base/context.h"
#include "base/status.h"
#include "experts/pack/pack_model.h"
#include "io/stream/read_backend.h"

namespace motley {

struct PackProbe {
  double ranges_per_expert = 0;  // reads of an expert in the checkpoint; a pack has 2
  double bytes_per_expert = 0;   // of weights
  double plain_bytes_per_s = 0;
  double packed_bytes_per_s = 0;

  double gain() const { return packed_bytes_per_s / plain_bytes_per_s - 1; }
};

struct PackProbeOptions {
  ReadBackendKind io = ReadBackendKind::kAuto;
  int at_once = 8;  // experts in flight: as many as a token needs
  int rounds = 5;
  double seconds_per_turn = 0.3;
  uint64_t seed = 0;  // 0: another one each time
};

Result<PackProbe> probe_packing(Context& context, const PackModel& model,
                                const PackProbeOptions& options);

}  // namespace motley
