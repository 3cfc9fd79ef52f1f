#include "io/weight_assembler.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>

#include "base/thread_pool.h"
#include "io/column_order.h"
#include "io/matrix_copy.h"

namespace motley {
namespace {

// Decodes to float32, one source after the other, and says whether all values are finite.
bool convert_values(const std::vector<WeightMatrix>& sources, float* out) {
  bool finite = true;
  for (const WeightMatrix& source : sources) {
    for (int64_t row = 0; row < source.rows; ++row, out += source.cols) {
      decode_row(source, row, out);
      finite &=
          std::all_of(out, out + source.cols, [](float value) { return std::isfinite(value); });
    }
  }
  return finite;
}

bool is_values(TensorRole role) {
  return role == TensorRole::kVector || role == TensorRole::kTable ||
         role == TensorRole::kConvolution;
}

}  // namespace

WeightAssembler::WeightAssembler(const ModelSpec& spec, const ModuleTable& table,
                                 bool stream_experts)
    : spec_(spec), table_(table), stream_experts_(stream_experts), slots_(spec.tensors.size()) {}

Result<Placement> WeightAssembler::plan() {
  Placement placement;
  for (size_t i = 0; i < spec_.tensors.size(); ++i) {
    MOTLEY_ASSIGN_OR_RETURN(PlacementRow row, plan_tensor(i));
    placement.rows.push_back(std::move(row));
  }
  for (const ModuleTable::Skipped& skipped : table_.skipped()) {
    const CheckpointTensor& tensor = *skipped.tensor;
    int64_t elements = 1;
    for (const int64_t dim : tensor.entry.shape) elements *= dim;
    std::string format(dtype_name(tensor.entry.dtype));
    std::transform(format.begin(), format.end(), format.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    placement.rows.push_back(
        {.name = tensor.name,
         .part = "skipped",
         .format = std::move(format),
         .elements = elements,
         .file_bytes = static_cast<int64_t>(tensor.bytes.size()),
         .where = skipped.reason == kTiedReason ? PlacementKind::kTied : PlacementKind::kSkipped,
         .reason = std::string(skipped.reason)});
  }
  return placement;
}

Result<PlacementRow> WeightAssembler::plan_tensor(size_t index) {
  const TensorSpec& tensor = spec_.tensors[index];
  slots_[index].role = tensor.role;
  PlacementRow row{.name = tensor.name, .part = tensor.part, .elements = tensor.shape.elements()};
  if (tensor.role == TensorRole::kExperts) {
    plan_experts(index, &row);
  } else if (tensor.role == TensorRole::kMatrix) {
    MOTLEY_RETURN_IF_ERROR(plan_matrix(index, &row));
  } else {
    plan_values(index, &row);
  }
  return row;
}

Status WeightAssembler::plan_matrix(size_t index, PlacementRow* row) {
  const TensorSpec& tensor = spec_.tensors[index];
  std::vector<WeightMatrix> sources;
  for (const TensorPiece& piece : tensor.pieces) {
    const Module& module = table_.module_of(piece, 0);
    const WeightMatrix rows = module.matrix.slice_rows(piece.row_begin, piece.row_count);
    row->file_bytes += rows.bytes() + (piece.row_begin == 0 ? module.scalar_bytes : 0);
    if (!sources.empty() && !same_format(sources.front(), rows)) {
      return unsupported(fmt::format("tensor '{}': '{}' and '{}' differ in format", tensor.name,
                                     tensor.pieces.front().module, piece.module));
    }
    if (!sources.empty() && follows(sources.back(), rows)) {
      sources.back().rows += rows.rows;
    } else {
      sources.push_back(rows);
    }
  }
  row->format = format_name(sources.front());
  row->memory_bytes = row->file_bytes;
  if (plan_column_order(index, sources, row)) return Status::ok();
  if (sources.size() == 1 && !stream_experts_) {
    slots_[index].matrices = std::move(sources);
    return Status::ok();
  }
  row->where = PlacementKind::kCopied;
  const int64_t bytes = copied_matrix_bytes(sources);
  // Its scales may take more room than in the file.
  if (sources.front().format == WeightFormat::kBlockFloat) row->memory_bytes = bytes;
  copies_.push_back(
      {.tensor = index, .sources = std::move(sources), .offset = reserve(bytes), .bytes = bytes});
  return Status::ok();
}

// A matrix whose columns lie in another order gets a copy in which they do not.
bool WeightAssembler::plan_column_order(size_t index, const std::vector<WeightMatrix>& sources,
                                        PlacementRow* row) {
  const Module& module = table_.module_of(spec_.tensors[index].pieces.front(), 0);
  const TiledHeads& columns = module.tensors.front()->tiled_columns;
  if (!columns.is_needed()) return false;
  MOTLEY_CHECK(sources.size() == 1, "columns are put in order for whole matrices");
  const int64_t bytes = untiled_bytes(sources.front(), columns);
  row->format = format_name(untiled_format(sources.front(), columns));
  row->memory_bytes = bytes;
  row->where = PlacementKind::kCopied;
  copies_.push_back({.tensor = index,
                     .sources = sources,
                     .offset = reserve(bytes),
                     .bytes = bytes,
                     .columns = columns});
  return true;
}

void WeightAssembler::plan_experts(size_t index, PlacementRow* row) {
  const TensorSpec& tensor = spec_.tensors[index];
  const TensorPiece& piece = tensor.pieces.front();
  std::vector<WeightMatrix>& matrices = slots_[index].matrices;
  matrices.reserve(static_cast<size_t>(tensor.shape[0]));
  for (int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
    const Module& module = table_.module_of(piece, expert);
    const WeightMatrix whole = module.stacked ? module.expert(expert) : module.matrix;
    matrices.push_back(whole.slice_rows(piece.row_begin, piece.row_count));
    row->file_bytes += matrices.back().bytes();
    if (piece.row_begin == 0 && (expert == 0 || !module.stacked)) {
      row->file_bytes += module.scalar_bytes;
    }
  }
  row->memory_bytes = stream_experts_ ? 0 : row->file_bytes;
  if (stream_experts_) row->where = PlacementKind::kStreamed;
  const bool uniform =
      std::all_of(matrices.begin(), matrices.end(),
                  [&](const WeightMatrix& other) { return same_format(matrices.front(), other); });
  row->format = uniform ? format_name(matrices.front()) : "mixed";
}

void WeightAssembler::plan_values(size_t index, PlacementRow* row) {
  const TensorSpec& tensor = spec_.tensors[index];
  std::vector<WeightMatrix> sources;
  for (const TensorPiece& piece : tensor.pieces) {
    sources.push_back(
        table_.module_of(piece, 0).matrix.slice_rows(piece.row_begin, piece.row_count));
    row->file_bytes += sources.back().bytes();
  }
  const bool uniform = std::all_of(sources.begin(), sources.end(), [&](const WeightMatrix& other) {
    return same_format(sources.front(), other);
  });
  row->format = uniform ? format_name(sources.front()) : "mixed";
  const int64_t bytes = tensor.shape.elements() * int64_t{sizeof(float)};
  row->memory_bytes = bytes;
  row->where = PlacementKind::kCopied;
  copies_.push_back(
      {.tensor = index, .sources = std::move(sources), .offset = reserve(bytes), .bytes = bytes});
}

int64_t WeightAssembler::reserve(int64_t bytes) {
  const int64_t offset = copy_bytes_;
  copy_bytes_ += aligned_copy_bytes(bytes);
  return offset;
}

void WeightAssembler::leave_copies() {
  copies_.clear();
  copy_bytes_ = 0;
}

Result<LoadedWeights> WeightAssembler::assemble(Context& context, Checkpoint checkpoint) {
  LoadedWeights weights(std::move(checkpoint));
  MOTLEY_ASSIGN_OR_RETURN(weights.copies_,
                          AlignedBuffer::allocate(static_cast<size_t>(copy_bytes_)));
  if (stream_experts_ && mlock(weights.copies_.data(), weights.copies_.size()) == 0) {
    weights.locked_bytes_ = copy_bytes_;
  }
  weights.slots_ = std::move(slots_);
  std::atomic<int64_t> first_bad{static_cast<int64_t>(spec_.tensors.size())};
  const auto run = [&](const Copy& copy) {
    const TensorSpec& tensor = spec_.tensors[copy.tensor];
    LoadedWeights::Slot& slot = weights.slots_[copy.tensor];
    std::byte* out = weights.copies_.data() + copy.offset;
    if (!is_values(tensor.role)) {
      slot.matrices = {copy.columns.is_needed()
                           ? untile_columns(copy.sources.front(), copy.columns, out)
                           : copy_matrix(copy.sources, out)};
      if (stream_experts_) {
        // At once, so that memory never holds both the copies and what they were made from.
        std::vector<std::span<const std::byte>> ranges;
        add_ranges(copy, &ranges);
        release_pages(ranges);
      }
      return;
    }
    auto* values = reinterpret_cast<float*>(out);
    slot.values = view_of(static_cast<const float*>(values), tensor.shape);
    if (convert_values(copy.sources, values)) return;
    // The first in order of the spec, so that the message does not depend on timing.
    auto bad = static_cast<int64_t>(copy.tensor);
    int64_t seen = first_bad.load();
    while (bad < seen && !first_bad.compare_exchange_weak(seen, bad)) {
    }
  };
  context.threads.parallel_for(static_cast<int64_t>(copies_.size()), 1,
                               [&](int, int64_t begin, int64_t end) {
                                 for (int64_t i = begin; i < end; ++i) {
                                   run(copies_[static_cast<size_t>(i)]);
                                 }
                               });
  const auto bad = static_cast<size_t>(first_bad.load());
  if (bad < spec_.tensors.size()) {
    return corrupt(fmt::format("{}: tensor '{}' holds NaN or infinity",
                               weights.checkpoint().directory().path(),
                               spec_.tensors[bad].pieces.front().module));
  }
  return weights;
}

LoadedWeights WeightAssembler::locate_experts(Checkpoint checkpoint) {
  LoadedWeights weights(std::move(checkpoint));
  weights.slots_ = std::move(slots_);
  return weights;
}

std::vector<std::span<const std::byte>> WeightAssembler::mapped_ranges() const {
  std::vector<bool> is_copied(table_.modules().size(), false);
  for (const Copy& copy : copies_) {
    for (const TensorPiece& piece : spec_.tensors[copy.tensor].pieces) {
      is_copied[static_cast<size_t>(&table_.module_of(piece, 0) - table_.modules().data())] = true;
    }
  }
  std::vector<std::span<const std::byte>> ranges;
  for (size_t i = 0; i < is_copied.size(); ++i) {
    if (is_copied[i]) continue;
    for (const CheckpointTensor* tensor : table_.modules()[i].tensors)
      ranges.push_back(tensor->bytes);
  }
  return ranges;
}

std::vector<std::span<const std::byte>> WeightAssembler::copied_ranges() const {
  std::vector<std::span<const std::byte>> ranges;
  for (const Copy& copy : copies_) {
    if (is_values(spec_.tensors[copy.tensor].role)) continue;
    add_ranges(copy, &ranges);
  }
  return ranges;
}

void WeightAssembler::add_ranges(const Copy& copy,
                                 std::vector<std::span<const std::byte>>* ranges) const {
  for (const TensorPiece& piece : spec_.tensors[copy.tensor].pieces) {
    for (const CheckpointTensor* tensor : table_.module_of(piece, 0).tensors) {
      ranges->push_back(tensor->bytes);
    }
  }
}

}  // namespace motley
