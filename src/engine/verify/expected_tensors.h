// Reference outputs to verify against: one safetensors file of F32 and I32 tensors.
// Names: docs/verify.md. Read as hostile input; errors name the file and the tensor. Every tensor
// is accounted for: an unknown name, a label without ids or with nothing but ids, an empty tensor
// and a number outside 32 bits are kInvalidArgument.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "engine/verify/expected_names.h"
#include "io/safetensors.h"

namespace motley {

class ExpectedTensors {
 public:
  struct Floats {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  struct Ints {
    std::vector<int64_t> shape;
    std::vector<int32_t> values;
  };

  static Result<ExpectedTensors> open(Context& context, const std::string& path);

  // nullptr when absent.
  const Floats* floats(const std::string& name) const;
  const Ints* ints(const std::string& name) const;
  // Every tensor name, sorted.
  std::vector<std::string> names() const;
  // Labels, sorted: each has ids and something to compare.
  std::vector<std::string> labels() const;
  // Whether the label has a tensor of this kind, with any index.
  bool has(const std::string& label, ExpectedKind kind) const;

 private:
  Status add(const SafetensorsEntry& entry, std::span<const std::byte> bytes);
  Status check_labels() const;

  std::map<std::string, Floats> floats_;
  std::map<std::string, Ints> ints_;
};

}  // namespace motley
