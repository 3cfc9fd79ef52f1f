#include "cli/inspect_report.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/token_cost.h"

namespace motley {
namespace {

std::string latent_heads(const LatentAttentionSpec& latent) {
  std::string keys = "every key";
  if (latent.keys == KeySource::kShared) keys = "keys of the layer before";
  if (latent.keys == KeySource::kOwn) {
    keys = fmt::format("{} keys by an indexer of {} heads of {}", latent.indexer.width(),
                       latent.indexer.heads, latent.indexer.head_dim);
    if (latent.indexer.is_pooled()) keys += fmt::format(" over pools of {}", latent.indexer.pool);
  }
  return fmt::format("{} heads, latents of {}, rotary {}, {}", latent.heads, latent.kv_rank,
                     latent.rope_dim, keys);
}

std::string mixer_heads(const MixerSpec& mixer) {
  if (const auto* delta = std::get_if<GatedDeltaSpec>(&mixer)) {
    return fmt::format("{} key heads of {}, {} value heads of {}, convolution {}", delta->key_heads,
                       delta->key_head_dim, delta->value_heads, delta->value_head_dim,
                       delta->conv_kernel);
  }
  if (const auto* channel = std::get_if<ChannelDeltaSpec>(&mixer)) {
    return fmt::format("{} heads, keys of {}, values of {}, convolution {}", channel->heads,
                       channel->key_head_dim, channel->value_head_dim, channel->conv_kernel);
  }
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&mixer)) return latent_heads(*latent);
  const auto& attention = std::get<GatedAttentionSpec>(mixer);
  return fmt::format("{} query heads, {} key-value heads of {}, rotary {}", attention.heads,
                     attention.kv_heads, attention.head_dim, attention.rotary_dim);
}

std::string feed_forward_name(const FeedForwardSpec& feed_forward) {
  if (const auto* moe = std::get_if<MoeSpec>(&feed_forward)) {
    return fmt::format("{} experts of {}, {} a token{}", moe->experts, moe->intermediate_size,
                       moe->experts_per_token,
                       moe->shared_intermediate_size > 0
                           ? fmt::format(", shared expert of {}", moe->shared_intermediate_size)
                           : "");
  }
  return fmt::format("dense of {}", std::get<DenseMlpSpec>(feed_forward).intermediate_size);
}

std::vector<LayerGroup> group_layers(const ModelSpec& spec) {
  std::vector<LayerGroup> groups;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    LayerGroup group{std::string(mixer_name(layer.mixer)),
                     feed_forward_name(layer.feed_forward),
                     mixer_heads(layer.mixer),
                     {}};
    auto found = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& other) {
      return other.mixer == group.mixer && other.feed_forward == group.feed_forward &&
             other.heads == group.heads;
    });
    if (found == groups.end()) found = groups.insert(found, std::move(group));
    found->layers.push_back(static_cast<int>(i));
  }
  return groups;
}

std::vector<StateRow> state_rows(const ModelSpec& spec) {
  std::vector<StateRow> rows;
  for (const DType kv : {DType::kF32, DType::kBf16}) {
    StateFormat format;
    format.kv = kv;
    format.drafts = false;
    const StateLayout layout = make_state_layout(spec, format);
    rows.push_back(
        {kv == DType::kF32 ? "f32" : "bf16", layout.fixed_bytes(), layout.bytes_per_token()});
  }
  return rows;
}

void read_template_facts(const TextModel& model, TextFacts* facts) {
  facts->template_error = model.chat_template_error.message();
  facts->has_template = model.chat_template.has_value();
  if (!facts->has_template) return;
  facts->tools = model.chat_template->refers_to("tools");
  facts->system_role = model.config.chat_template()->find("system") != std::string::npos;
  facts->reasoning = model.chat_template->refers_to("reasoning_content");
  facts->thinking_switches = model.thinking_switches();
}

TextFacts read_text_facts(const std::string& path, const ModelSpec& spec) {
  TextFacts facts;
  const Result<TextModel> model = load_text_model(path);
  if (!model.is_ok()) {
    const bool absent = model.status().code() == StatusCode::kNotFound;
    facts.tokenizer_error = absent ? "no tokenizer.json" : model.status().message();
    return facts;
  }
  const Tokenizer& tokenizer = model->tokenizer;
  facts.has_tokenizer = true;
  facts.vocab = static_cast<int64_t>(tokenizer.vocab_size());
  for (TokenId id = 0; id < facts.vocab; ++id) {
    facts.added += tokenizer.is_added(id) ? 1 : 0;
    facts.special += tokenizer.is_special(id) ? 1 : 0;
  }
  for (const TokenId id : model->stop_tokens(spec.eos_tokens)) {
    facts.stop_tokens.emplace_back(id, tokenizer.token_bytes(id));
  }
  read_template_facts(*model, &facts);
  return facts;
}

}  // namespace

Result<ModelFacts> read_model_facts(Context& context, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(const OpenedModel model, open_model(context, path));
  ModelFacts facts;
  MOTLEY_ASSIGN_OR_RETURN(facts.placement, place_model(model));
  const ModelSpec& spec = model.spec;
  facts.path = path;
  facts.family = spec.family;
  facts.hidden = spec.hidden_size;
  facts.vocab = spec.vocab_size;
  facts.context = spec.context_length;
  facts.groups = group_layers(spec);
  facts.drafts = static_cast<int>(spec.drafts.size());
  const ParameterCounts counts = count_parameters(spec);
  facts.parameters = counts.total;
  facts.active = counts.active;
  facts.draft_parameters = counts.drafts;
  facts.state = state_rows(spec);
  facts.shards = model.checkpoint.shard_count();
  facts.text = read_text_facts(path, spec);
  return facts;
}

}  // namespace motley
