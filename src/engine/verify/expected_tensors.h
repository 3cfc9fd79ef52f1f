// Reference outputs to verify against: one safetensors file of F32 and I32 tensors.
// Names: docs/verify.md. Read as hostile input; errors name the file and the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"

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
  // Labels L that have "L.ids", sorted.
  std::vector<std::string> labels() const;

 private:
  std::map<std::string, Floats> floats_;
  std::map<std::string, Ints> ints_;
};

}  // namespace motley
