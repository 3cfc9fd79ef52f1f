#include "io/made_up_weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"
#include "io/column_order.h"
#include "io/module_table.h"
#include "io/weight_assembler.h"
#include "numeric/half.h"
#include "tensor/gguf_weights.h"

namespace motley {
namespace {

constexpr int64_t kAlignment = 64;
// Prime, so that no row of a matrix repeats an earlier one at the same place.
constexpr int64_t kTileElements = 65521;
constexpr float kLargestValue = 0.05f;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Bytes that are repeated over a plane, and how many of them.
using Tile = std::vector<std::byte>;

uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

Tile random_codes() {
  Tile tile(static_cast<size_t>(kTileElements));
  uint64_t state = 0x9E3779B97F4A7C15;
  for (std::byte& byte : tile) byte = static_cast<std::byte>(next_random(&state) >> 32);
  return tile;
}

Tile without_nan(Tile tile) {
  for (std::byte& code : tile) {
    if ((code & std::byte{0x7F}) == std::byte{0x7F}) code ^= std::byte{1};
  }
  return tile;
}

void put(DType dtype, float value, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kBf16 ? to_bf16(value).bits : to_f16(value).bits;
  std::memcpy(out, &bits, sizeof bits);
}

Tile random_values(DType dtype) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  Tile tile(static_cast<size_t>(kTileElements) * size);
  uint64_t state = 0xD1B54A32D192ED03;
  for (size_t at = 0; at < tile.size(); at += size) {
    const double share = static_cast<double>(next_random(&state) >> 11) * 0x1p-53;
    put(dtype, kLargestValue * static_cast<float>(2 * share - 1), tile.data() + at);
  }
  return tile;
}

Tile one_value(DType dtype, float value) {
  Tile tile(static_cast<size_t>(dtype_bytes(dtype)));
  put(dtype, value, tile.data());
  return tile;
}

// Whole blocks of random codes with scales of their own.
Tile gguf_tile(GgufType type) {
  constexpr size_t kBlocks = 257;
  const GgufBlockFacts& facts = gguf_facts(type);
  std::vector<float> values(static_cast<size_t>(facts.values));
  Tile tile(kBlocks * static_cast<size_t>(facts.bytes));
  uint64_t state = 0xA0761D6478BD642F;
  for (size_t i = 0; i < kBlocks; ++i) {
    for (float& value : values) {
      const double share = static_cast<double>(next_random(&state) >> 11) * 0x1p-53;
      value = kLargestValue * static_cast<float>(2 * share - 1);
    }
    gguf_encode(type, values,
                reinterpret_cast<uint8_t*>(tile.data()) + i * static_cast<size_t>(facts.bytes));
  }
  return tile;
}

void fill(std::span<std::byte> plane, const Tile& tile) {
  size_t done = std::min(plane.size(), tile.size());
  std::memcpy(plane.data(), tile.data(), done);
  // What is there is copied behind itself: tiles of a few bytes grow quickly.
  while (done < plane.size()) {
    const size_t more = std::min(done, plane.size() - done);
    std::memcpy(plane.data() + done, plane.data(), more);
    done += more;
  }
}

DType element_type(const WeightMatrix& matrix) {
  if (matrix.format == WeightFormat::kBf16) return DType::kBf16;
  return matrix.format == WeightFormat::kF16 ? DType::kF16 : DType::kF32;
}

// Where one tensor lies in the buffer.
struct Place {
  size_t tensor = 0;
  WeightMatrix like;  // format and row strides
  int64_t rows = 0;
  int64_t copies = 1;
  int64_t offset = 0;

  int64_t matrix_bytes() const {
    return aligned(rows * like.codes.row_bytes) + aligned(rows * like.scales.row_bytes) +
           aligned(rows * like.biases.row_bytes);
  }
};

class Tiles {
 public:
  WeightMatrix lay_out(const Place& place, std::byte* out) const {
    WeightMatrix matrix = place.like;
    matrix.rows = place.rows;
    matrix.first_in_block = 0;
    const auto plane = [&](WeightPlane& to, const Tile& tile, int64_t lines) {
      if (to.row_bytes == 0) return;
      const int64_t bytes = lines * to.row_bytes;
      fill({out, static_cast<size_t>(bytes)}, tile);
      to.data = out;
      out += aligned(bytes);
    };
    if (const auto type = gguf_type(matrix.format)) {
      plane(matrix.codes, gguf_tile(*type), place.rows);
      return matrix;
    }
    if (matrix.format == WeightFormat::kBlockFloat) {
      lay_out_blocks(place, plane, &matrix);
      return matrix;
    }
    if (matrix.format != WeightFormat::kMlxAffine) {
      plane(matrix.codes, values(element_type(matrix)), place.rows);
      return matrix;
    }
    plane(matrix.codes, codes_, place.rows);
    const auto most = static_cast<float>((1 << matrix.affine.bits) - 1);
    const float scale = 2 * kLargestValue / most;
    plane(matrix.scales, one_value(matrix.scale_dtype, scale), place.rows);
    plane(matrix.biases, one_value(matrix.scale_dtype, -kLargestValue), place.rows);
    return matrix;
  }

  // Scales such that the largest value is kLargestValue.
  template <typename AddPlane>
  void lay_out_blocks(const Place& place, const AddPlane& plane, WeightMatrix* matrix) const {
    const BlockFloatFormat& block = matrix->block;
    const bool fp4 = block.element == BlockFloatFormat::Element::kE2M1;
    const float scale = kLargestValue / (fp4 ? 6.0f : 448.0f);
    plane(matrix->codes, fp4 ? codes_ : e4m3_, place.rows);
    Tile tile;
    switch (block.scale) {
      case BlockFloatFormat::Scale::kF32:
        tile = one_value(DType::kF32, scale);
        break;
      case BlockFloatFormat::Scale::kBf16:
        tile = one_value(DType::kBf16, scale);
        break;
      case BlockFloatFormat::Scale::kE4M3:
        tile = {static_cast<std::byte>(to_e4m3(scale).bits)};
        break;
      case BlockFloatFormat::Scale::kE8M0:
        tile = {static_cast<std::byte>(to_e8m0_up(scale).bits)};
        break;
    }
    matrix->tensor_scale = 1.0f;
    plane(matrix->scales, tile, matrix->scale_lines());
  }

  const Tile& values(DType dtype) const {
    if (dtype == DType::kBf16) return bf16_;
    return dtype == DType::kF16 ? f16_ : f32_;
  }

 private:
  Tile codes_ = random_codes();
  Tile e4m3_ = without_nan(random_codes());
  Tile f32_ = random_values(DType::kF32);
  Tile bf16_ = random_values(DType::kBf16);
  Tile f16_ = random_values(DType::kF16);
};

}  // namespace

// Of one matrix of the tensor; the planes' places are of the file and mean nothing here.
WeightMatrix WeightAssembler::format_of(size_t index) const {
  if (!slots_[index].matrices.empty()) return slots_[index].matrices.front();
  const auto copy = std::find_if(copies_.begin(), copies_.end(),
                                 [&](const Copy& other) { return other.tensor == index; });
  MOTLEY_CHECK(copy != copies_.end(), "a tensor that plan() did not see");
  if (copy->columns.is_needed()) return untiled_format(copy->sources.front(), copy->columns);
  return copy->sources.front();
}

Result<LoadedWeights> WeightAssembler::make_up(Context& context, Checkpoint checkpoint,
                                               std::span<const MadeUpTensor> tensors) {
  std::vector<Place> places;
  int64_t total = 0;
  for (const MadeUpTensor& wanted : tensors) {
    Place place{.tensor = static_cast<size_t>(wanted.tensor.index), .offset = total};
    const TensorSpec& tensor = spec_.tensors[place.tensor];
    const bool is_stack = tensor.role == TensorRole::kExperts;
    const bool is_matrix = is_stack || tensor.role == TensorRole::kMatrix;
    place.rows = is_matrix ? tensor.shape[is_stack ? 1 : 0] : 1;
    if (is_matrix) {
      place.like = format_of(place.tensor);
    } else {
      place.like.codes.row_bytes = tensor.shape.elements() * int64_t{sizeof(float)};
    }
    if (wanted.most_rows > 0) place.rows = std::min(place.rows, wanted.most_rows);
    if (is_stack) place.copies = tensor.shape[0];
    if (wanted.most_copies > 0) place.copies = std::min(place.copies, wanted.most_copies);
    total += place.copies * place.matrix_bytes();
    places.push_back(place);
  }
  LoadedWeights weights(std::move(checkpoint));
  MOTLEY_ASSIGN_OR_RETURN(weights.copies_, AlignedBuffer::allocate(static_cast<size_t>(total)));
  weights.slots_.resize(spec_.tensors.size());
  const Tiles tiles;
  for (const Place& place : places) {
    const TensorSpec& tensor = spec_.tensors[place.tensor];
    LoadedWeights::Slot& slot = weights.slots_[place.tensor];
    slot.role = tensor.role;
    std::byte* const begin = weights.copies_.data() + place.offset;
    if (tensor.role != TensorRole::kMatrix && tensor.role != TensorRole::kExperts) {
      const auto bytes = static_cast<size_t>(place.like.codes.row_bytes);
      fill({begin, bytes}, tiles.values(DType::kF32));
      slot.values = view_of(reinterpret_cast<const float*>(begin), tensor.shape);
      continue;
    }
    slot.matrices.resize(static_cast<size_t>(place.copies));
    context.threads.parallel_for(place.copies, 1, [&](int, int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        slot.matrices[static_cast<size_t>(i)] =
            tiles.lay_out(place, begin + i * place.matrix_bytes());
      }
    });
  }
  return weights;
}

Result<LoadedWeights> make_up_weights(Context& context, const ModelSpec& spec,
                                      const QuantizationConfig& quantization, Checkpoint checkpoint,
                                      std::span<const MadeUpTensor> tensors) {
  MOTLEY_ASSIGN_OR_RETURN(const ModuleTable table,
                          ModuleTable::create(checkpoint, spec, quantization));
  WeightAssembler assembler(spec, table);
  MOTLEY_RETURN_IF_ERROR(assembler.plan().status());
  return assembler.make_up(context, std::move(checkpoint), tensors);
}

}  // namespace motley
