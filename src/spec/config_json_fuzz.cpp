// config.json with a catalog that holds any tensor: every family must end in a spec or an error.
#include <cstdlib>
#include <string_view>

#include "spec/family_registry.h"
#include "spec/generation_config.h"
#include "spec/quantization_config.h"

namespace {

// Claims the convolutions of a small model, so that builders get past the layout.
class AnyCatalog final : public motley::TensorCatalog {
 public:
  explicit AnyCatalog(int64_t channels) : convolution_{motley::DType::kBf16, {channels, 1, 4}} {}
  const motley::CatalogEntry* find(std::string_view name) const override {
    if (name.find("switch_mlp") != name.npos) return nullptr;
    return name.ends_with("conv1d.weight") ? &convolution_ : &other_;
  }

 private:
  motley::CatalogEntry convolution_;
  motley::CatalogEntry other_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = motley::ConfigJson::parse(text, "config.json");
  if (!config.is_ok()) return 0;
  (void)motley::read_quantization_config(*config).is_ok();
  (void)motley::read_generation_config(*config).is_ok();
  for (const int64_t channels : {64, 256, 512}) {
    const auto spec = motley::build_model_spec(*config, AnyCatalog(channels));
    if (!spec.is_ok()) continue;
    for (const motley::TensorSpec& tensor : spec->tensors) {
      int64_t rows = 0;
      for (const motley::TensorPiece& piece : tensor.pieces) rows += piece.row_count;
      const int axis = tensor.role == motley::TensorRole::kExperts ? 1 : 0;
      if (rows != tensor.shape[axis] || rows < 1) std::abort();
    }
  }
  return 0;
}
