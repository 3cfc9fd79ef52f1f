#include "ops/attention.h"

namespace motley {

AttentionOutput AttentionMerger::merge_partials(Stream& stream, const AttentionOps& ops,
                                                std::span<const PartialAttention> partials,
                                                const Topology& topology) {
  const auto shards = static_cast<size_t>(topology.config().decode_context_parallel);
  MOTLEY_CHECK(partials.size() == shards, "one partial per cache shard");
  if (shards > 1) ops.merge(stream, partials, partials.front());
  return AttentionOutput(partials.front().out);
}

}  // namespace motley
