#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experts/expert_layout.h"
#include "model/blocks/indexer.h"

namespace motley {
namespace {

// Left to the rest of the machine when no budget is given.
constexpr double kDefaultShare = 0.9;
// Program, libraries, thread stacks, read queues.
constexpr int64_t kProcessBytes = int64_t{48} << 20;
// Tokenizer tables: merges, vocabulary and their indices, measured at 330 bytes an entry.
constexpr int64_t kBytesPerToken = 400;

double gigabytes(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

int64_t activation_bytes(const ModelSpec& spec, int experts_per_token, int64_t rows) {
  // Outputs of every chosen expert twice (values and their packed form), and at most 32 hidden
  // rows' worth of projections and packed copies alive at once in a mixer.
  const int64_t per_row =
      (2 * experts_per_token + 32 + spec.residual.streams) * int64_t{spec.hidden_size};
  return 4 * (rows * per_row + 4 * spec.vocab_size);
}

// Choices of keys, and the scores that they are made by.
int64_t selection_bytes(const ModelSpec& spec, const MemoryUse& use) {
  int64_t width = 0;
  bool is_shared = false;
  for (const LayerSpec& layer : spec.layers) {
    const auto* latent = std::get_if<LatentAttentionSpec>(&layer.mixer);
    if (latent == nullptr) continue;
    if (latent->keys == KeySource::kOwn) width = std::max<int64_t>(width, latent->indexer.width());
    is_shared |= latent->keys == KeySource::kShared;
  }
  if (width == 0) return 0;
  // One that later layers share is kept for a whole sweep.
  const int64_t rows = is_shared ? std::min(use.tokens, MemoryNeeds::kSweepTokens) : use.rows;
  const int64_t scores = std::max(Indexer::kMostScores, use.tokens);
  return 4 * (rows * (width + 1) + scores);
}

std::string refusal(const MemoryNeeds& needs, int64_t budget, int64_t cache) {
  const int64_t needed = needs.fixed_bytes() + cache;
  return fmt::format(
      "{}: {:.2f} GB of memory are too little: weights {:.2f} + state {:.2f} + activations {:.2f} "
      "+ program {:.2f} + experts {:.2f} ({} of {} experts of {} layers) = {:.2f} GB; give more "
      "with --memory, or shorten --context",
      needs.model, gigabytes(budget), gigabytes(needs.dense_bytes), gigabytes(needs.state_bytes),
      gigabytes(needs.activation_bytes), gigabytes(needs.process_bytes), gigabytes(cache),
      cache / std::max<int64_t>(needs.slot_bytes, 1), needs.expert_count, needs.expert_layers,
      gigabytes(needed));
}

}  // namespace

int64_t MemorySize::of(int64_t whole_bytes) const {
  if (bytes > 0) return bytes;
  return static_cast<int64_t>(share * static_cast<double>(whole_bytes));
}

MemoryNeeds memory_needs(const ModelSpec& spec, const Placement& placement,
                         const StateLayout& layout, const MemoryUse& use) {
  MemoryNeeds needs;
  const auto row = [&](TensorHandle handle) -> const PlacementRow& {
    return placement.rows[static_cast<size_t>(handle.index)];
  };
  int64_t largest = 0;
  const auto add = [&](const LayerSpec& layer) {
    const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward);
    if (moe == nullptr) return;
    const int64_t bytes =
        row(moe->gate).file_bytes + row(moe->up).file_bytes + row(moe->down).file_bytes;
    largest = std::max(largest, bytes / moe->experts);
    needs.expert_bytes += bytes;
    needs.expert_count += moe->experts;
    needs.experts_per_token = std::max(needs.experts_per_token, moe->experts_per_token);
    ++needs.expert_layers;
  };
  for (const LayerSpec& layer : spec.layers) add(layer);
  if (use.drafts) {
    for (const DraftSpec& draft : spec.drafts) add(draft.layer);
  }
  // Each of up to nine planes may begin and end inside a block.
  if (largest > 0) needs.slot_bytes = largest + 2 * 9 * ExpertLayout::kBlockBytes;
  needs.slot_bytes -= needs.slot_bytes % ExpertLayout::kBlockBytes;
  for (const PlacementRow& entry : placement.rows) {
    if (entry.where == PlacementKind::kMapped || entry.where == PlacementKind::kCopied) {
      needs.dense_bytes += entry.memory_bytes;
    }
  }
  needs.state_bytes = layout.bytes_for(use.tokens);
  needs.activation_bytes = activation_bytes(spec, needs.experts_per_token, use.rows) +
                           4 * (spec.residual.streams + (use.drafts ? 2 : 0)) * spec.hidden_size *
                               std::min(use.tokens, MemoryNeeds::kSweepTokens) +
                           selection_bytes(spec, use);
  needs.process_bytes = kProcessBytes + kBytesPerToken * spec.vocab_size;
  return needs;
}

SweepChoice choose_sweep(const MemoryNeeds& needs, int64_t tokens, int64_t chunk) {
  // Reading ahead what may not be needed is worth this much more: it overlaps with the computation.
  constexpr double kSweepAllowance = 1.25;
  const double per_layer = static_cast<double>(needs.expert_count) / needs.expert_layers;
  // Experts that `rows` tokens touch when each chooses evenly.
  const auto touched = [&](int64_t rows) {
    const double missed = 1 - needs.experts_per_token / per_layer;
    return 1 - std::pow(missed, static_cast<double>(rows));
  };
  const auto whole = static_cast<double>(needs.expert_bytes);
  SweepChoice choice{.sweep_bytes = whole};
  choice.chunks_bytes = whole * static_cast<double>(tokens / chunk) * touched(chunk) +
                        whole * touched(tokens % chunk);
  choice.sweep = choice.sweep_bytes <= kSweepAllowance * choice.chunks_bytes;
  return choice;
}

Result<MemoryPlan> plan_memory(const MemoryNeeds& needs, const MemoryRequest& request) {
  MemoryPlan plan{.needs = needs};
  plan.budget_bytes = request.budget.is_set()
                          ? request.budget.of(request.usable_total_bytes)
                          : MemorySize{.share = kDefaultShare}.of(request.usable_bytes);
  if (plan.budget_bytes > request.usable_total_bytes) {
    return resource_exhausted(fmt::format("memory of {:.2f} GB wanted, this machine allows {:.2f}",
                                          gigabytes(plan.budget_bytes),
                                          gigabytes(request.usable_total_bytes)));
  }
  const int64_t left = plan.budget_bytes - needs.fixed_bytes();
  if (!request.expert_cache.is_set()) {
    // Mapped experts give way under pressure, so without a budget all that is free may be planned.
    const int64_t allowed =
        request.budget.is_set() ? left : request.usable_bytes - needs.fixed_bytes();
    if (needs.expert_bytes <= allowed) return plan;
  }
  plan.streamed = needs.expert_count > 0;
  const int64_t floor = needs.floor_slots();
  const int64_t wanted =
      request.expert_cache.is_set() ? request.expert_cache.of(needs.expert_bytes) : left;
  // A share of the experts is a number of them, whatever blocks add to each.
  plan.slots =
      request.expert_cache.share > 0
          ? std::llround(request.expert_cache.share * static_cast<double>(needs.expert_count))
          : wanted / std::max<int64_t>(needs.slot_bytes, 1);
  if (plan.slots < floor && request.expert_cache.is_set()) {
    return resource_exhausted(fmt::format(
        "{}: an expert cache of {} experts is too small: {} layers need {} each at once, {} in "
        "all, which is {:.2f} GB or {:.1f} %",
        needs.model, plan.slots, needs.expert_layers, needs.experts_per_token, floor,
        gigabytes(floor * needs.slot_bytes),
        100.0 * static_cast<double>(floor) / static_cast<double>(needs.expert_count)));
  }
  plan.slots = std::min(std::max(plan.slots, floor), needs.expert_count);
  if (plan.total_bytes() > plan.budget_bytes) {
    return resource_exhausted(refusal(needs, plan.budget_bytes, plan.cache_bytes()));
  }
  return plan;
}

std::vector<std::string> MemoryPlan::lines() const {
  std::vector<std::string> all;
  const auto line = [&](std::string_view name, int64_t bytes, std::string_view note) {
    all.push_back(fmt::format("{:<14}{:>9.3f} GB  {}", name, gigabytes(bytes), note));
  };
  line("weights", needs.dense_bytes, "always in memory");
  line("state", needs.state_bytes, "of one sequence");
  line("activations", needs.activation_bytes, "");
  line("program", needs.process_bytes, "with tokenizer and read buffers");
  if (streamed) {
    line("expert cache", cache_bytes(),
         fmt::format("{} of {} experts ({:.1f} %), at least {} a layer; the others stay on disk",
                     slots, needs.expert_count,
                     100.0 * static_cast<double>(slots) / static_cast<double>(needs.expert_count),
                     needs.experts_per_token));
  } else {
    line("experts", needs.expert_bytes, "all in memory");
  }
  line("total", total_bytes(), "");
  line("budget", budget_bytes, "");
  return all;
}

}  // namespace motley
