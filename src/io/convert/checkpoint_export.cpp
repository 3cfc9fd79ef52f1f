#include "io/convert/checkpoint_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "io/convert/json_text.h"
#include "io/convert/output_directory.h"
#include "io/convert/quantization_json.h"
#include "io/file.h"

namespace motley {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

// One piece of work: rows of one module's expert, small enough for a worker's buffer.
struct Block {
  size_t plan = 0;
  int64_t expert = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

std::vector<Block> cut_blocks(const std::vector<ModulePlan>& plans, size_t begin, size_t end) {
  std::vector<Block> blocks;
  for (size_t i = begin; i < end; ++i) {
    const ModulePlan& plan = plans[i];
    const int64_t step = plan.spelling ? plan.block.block_rows : 1;
    const int64_t rows = std::max<int64_t>(1, kBlockBytes / plan.bytes_of(step)) * step;
    for (int64_t expert = 0; expert < std::max<int64_t>(plan.experts, 1); ++expert) {
      for (int64_t first = 0; first < plan.rows; first += rows) {
        blocks.push_back({i, expert, first, std::min(rows, plan.rows - first)});
      }
    }
  }
  return blocks;
}

// The first `count` plans as shards of at most `limit` bytes, unless one module alone is larger.
std::vector<std::pair<size_t, size_t>> cut_shards(const std::vector<ModulePlan>& plans,
                                                  size_t count, int64_t limit) {
  std::vector<std::pair<size_t, size_t>> shards;
  int64_t bytes = 0;
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > begin && bytes + plans[i].bytes() > limit) {
      shards.emplace_back(begin, i);
      begin = i;
      bytes = 0;
    }
    bytes += plans[i].bytes();
  }
  shards.emplace_back(begin, count);
  return shards;
}

class Exporter {
 public:
  Exporter(Context& context, const FormatRequest& request, const std::vector<ModulePlan>& plans,
           const ModuleSource& source, const ExportOptions& options, OutputDirectory& output)
      : context_(context),
        request_(request),
        plans_(plans),
        source_(source),
        options_(options),
        output_(output) {
    for (const ModulePlan& plan : plans) total_bytes_ += plan.bytes();
  }

  // In the MLX layout the draft layers get a file of their own: other readers load "model*" and
  // add 1 to the norms of a model whose draft they see there (docs/formats.md).
  Status write_shards() {
    size_t count = plans_.size();
    if (request_.layout == CheckpointLayout::kMlx) {
      const auto drafts = std::find_if(plans_.begin(), plans_.end(),
                                       [](const ModulePlan& plan) { return plan.is_draft; });
      count = static_cast<size_t>(drafts - plans_.begin());
    }
    const auto shards = cut_shards(plans_, count, options_.shard_bytes);
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shards.size() == 1 ? "model.safetensors"
                                                  : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                                i + 1, shards.size());
      MOTLEY_RETURN_IF_ERROR(write_shard(name, shards[i].first, shards[i].second));
    }
    if (count < plans_.size()) {
      MOTLEY_RETURN_IF_ERROR(write_shard("mtp.safetensors", count, plans_.size()));
    } else if (shards.size() == 1) {
      return Status::ok();
    }
    output_.add("model.safetensors.index.json");
    return write_safetensors_index(context_.faults, output_.path(), shard_of_tensor_, total_bytes_);
  }

 private:
  Status write_shard(const std::string& name, size_t begin, size_t end) {
    std::vector<TensorDeclaration> declarations;
    std::vector<size_t> first_declaration;
    for (size_t i = begin; i < end; ++i) {
      first_declaration.push_back(declarations.size());
      for (TensorDeclaration& declaration : plans_[i].declarations(request_.layout)) {
        shard_of_tensor_[declaration.name] = name;
        declarations.push_back(std::move(declaration));
      }
    }
    const std::vector<std::pair<std::string, std::string>> metadata = {
        {"format", request_.layout == CheckpointLayout::kMlx ? "mlx" : "pt"}};
    MOTLEY_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                            SafetensorsWriter::create(context_.faults, output_.add(name),
                                                      std::move(declarations), metadata));
    const std::vector<Block> blocks = cut_blocks(plans_, begin, end);
    std::mutex mutex;
    Status first_error;
    std::atomic<bool> failed{false};
    context_.threads.parallel_for(std::ssize(blocks), 1, [&](int worker, int64_t from, int64_t to) {
      std::vector<std::byte> buffer;
      for (int64_t i = from; i < to && !failed; ++i) {
        const Block& block = blocks[static_cast<size_t>(i)];
        const Status status =
            write_block(writer, first_declaration[block.plan - begin], block, &buffer);
        if (status.is_ok()) {
          report(worker);
          continue;
        }
        const std::lock_guard lock(mutex);
        if (first_error.is_ok()) first_error = status;
        failed = true;
      }
    });
    MOTLEY_RETURN_IF_ERROR(first_error);
    return writer.finish();
  }

  Status write_block(SafetensorsWriter& writer, size_t declaration, const Block& block,
                     std::vector<std::byte>* buffer) {
    if (options_.stop && options_.stop()) return cancelled("stopped; nothing was kept");
    const ModulePlan& plan = plans_[block.plan];
    const auto value_bytes = static_cast<size_t>(block.rows * plan.value_row_bytes());
    const auto scale_bytes =
        static_cast<size_t>(plan.scale_lines(block.rows) * plan.scale_row_bytes());
    buffer->resize(static_cast<size_t>(plan.bytes_of(block.rows)));
    PackedRows rows{.values = buffer->data()};
    if (plan.scale_planes() > 0) rows.scales = rows.values + value_bytes;
    if (plan.scale_planes() > 1) rows.biases = rows.scales + scale_bytes;
    source_.fill(plan, plan.first_expert + block.expert, block.first_row, block.rows, rows);
    const int64_t row = block.expert * plan.rows + block.first_row;
    MOTLEY_RETURN_IF_ERROR(
        writer.write(declaration, row * plan.value_row_bytes(), {rows.values, value_bytes}));
    const int64_t offset = plan.scale_lines(row) * plan.scale_row_bytes();
    if (rows.scales != nullptr) {
      MOTLEY_RETURN_IF_ERROR(writer.write(declaration + 1, offset, {rows.scales, scale_bytes}));
    }
    if (rows.biases != nullptr) {
      MOTLEY_RETURN_IF_ERROR(writer.write(declaration + 2, offset, {rows.biases, scale_bytes}));
    }
    done_bytes_ += plan.bytes_of(block.rows);
    if (!plan.has_tensor_scale() || block.first_row > 0) return Status::ok();
    const float scale = source_.tensor_scale(plan);
    return writer.write(declaration + 2, 0, std::as_bytes(std::span(&scale, 1)));
  }

  // The caller's thread is worker 0, and progress is promised on that thread alone.
  void report(int worker) {
    if (worker == 0 && options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  Context& context_;
  const FormatRequest& request_;
  const std::vector<ModulePlan>& plans_;
  const ModuleSource& source_;
  const ExportOptions& options_;
  OutputDirectory& output_;
  std::map<std::string, std::string> shard_of_tensor_;
  int64_t total_bytes_ = 0;
  std::atomic<int64_t> done_bytes_{0};
};

}  // namespace

Status export_checkpoint(Context& context, const FormatRequest& request, const JsonValue& config,
                         const std::vector<ModulePlan>& plans, const ModuleSource& source,
                         const std::vector<CompanionFile>& companions,
                         const ExportOptions& options) {
  MOTLEY_CHECK(config.as_object() != nullptr, "config.json is an object");
  MOTLEY_ASSIGN_OR_RETURN(OutputDirectory output,
                          OutputDirectory::create(context.faults, options.directory));
  for (const CompanionFile& file : companions) {
    MOTLEY_RETURN_IF_ERROR(output.write(file.name, file.text));
  }
  MOTLEY_RETURN_IF_ERROR(Exporter(context, request, plans, source, options, output).write_shards());
  MOTLEY_RETURN_IF_ERROR(
      output.write("config.json", json_text(with_quantization(config, request, plans)) + "\n"));
  return output.finish();
}

Result<std::vector<CompanionFile>> read_companions(Context& context, const std::string& path) {
  constexpr int64_t kMaxBytes = int64_t{256} << 20;
  MOTLEY_ASSIGN_OR_RETURN(const ModelDirectory source, ModelDirectory::open(context.faults, path));
  std::vector<CompanionFile> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json", "special_tokens_map.json"}) {
    if (!source.contains(name)) continue;
    MOTLEY_ASSIGN_OR_RETURN(std::string text, source.read_text(name, kMaxBytes));
    files.push_back({name, std::move(text)});
  }
  return files;
}

}  // namespace motley
