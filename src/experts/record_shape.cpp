#include "experts/record_shape.h"

#include <cstring>

#include "base/check.h"

namespace motley {
namespace {

constexpr int64_t kPlaneAlignment = 64;

int64_t round_up(int64_t bytes, int64_t step) {
  return (bytes + step - 1) / step * step;
}

}  // namespace

int64_t expert_plane_bytes(const ExpertWeights& weights, int plane) {
  const WeightPlane& found = *expert_planes(weights)[static_cast<size_t>(plane)];
  const WeightMatrix& matrix = plane < 3 ? weights.gate : plane < 6 ? weights.up : weights.down;
  if (found.data == nullptr) return 0;
  return &found == &matrix.scales ? matrix.scale_plane_bytes() : matrix.rows * found.row_bytes;
}

RecordShape RecordShape::of(const ExpertWeights& expert) {
  RecordShape shape;
  shape.at.fill(-1);
  int64_t used = 0;
  for (int plane = 0; plane < kExpertPlanes; ++plane) {
    if (plane == kFirstDownPlane) used = shape.gate_up_bytes = round_up(used, kRecordBlock);
    const int64_t bytes = expert_plane_bytes(expert, plane);
    if (bytes == 0) continue;
    shape.at[static_cast<size_t>(plane)] = used;
    used = round_up(used + bytes, kPlaneAlignment);
  }
  shape.down_bytes = round_up(used, kRecordBlock) - shape.gate_up_bytes;
  return shape;
}

void write_record(const ExpertWeights& expert, const RecordShape& shape,
                  std::span<std::byte> record) {
  MOTLEY_CHECK(static_cast<int64_t>(record.size()) == shape.bytes(), "a record of another size");
  const auto planes = expert_planes(expert);
  size_t end = 0;
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    if (shape.at[plane] < 0) continue;
    const auto at = static_cast<size_t>(shape.at[plane]);
    const auto bytes = static_cast<size_t>(expert_plane_bytes(expert, static_cast<int>(plane)));
    std::memset(record.data() + end, 0, at - end);
    std::memcpy(record.data() + at, planes[plane]->data, bytes);
    end = at + bytes;
  }
  std::memset(record.data() + end, 0, record.size() - end);
}

}  // namespace motley
