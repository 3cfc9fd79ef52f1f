// Writes a model directory: shards, index, config.json with its quantization, companion files.
//
// Rows are filled and written by all threads of the context, at disk speed. config.json comes last,
// so a directory whose writer was killed is not mistaken for a model. Existing files are refused,
// and a run that fails or is stopped removes what it wrote (output_directory.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/context.h"
#include "io/convert/module_plan.h"
#include "io/convert/packed_rows.h"
#include "io/mapped_file.h"
#include "spec/config_json.h"

namespace motley {

// Gives the contents of modules, row by row. Called from several threads at once.
class ModuleSource {
 public:
  virtual ~ModuleSource() = default;
  // Rows [first, first + count) of expert `expert` (0 without experts); whole blocks of scales.
  virtual void fill(const ModulePlan& plan, int64_t expert, int64_t first, int64_t count,
                    const PackedRows& out) const = 0;
  // The scale of a module that has one, as the file spells it.
  virtual float tensor_scale(const ModulePlan& plan) const = 0;
};

struct ExportOptions {
  std::string directory;  // created; must be empty if it exists
  int64_t shard_bytes = int64_t{4} << 30;
  ProgressCallback progress;
  // Asked before every block, from any thread; true ends the work with kCancelled. May be empty.
  std::function<bool()> stop;
};

// Files that go with the weights unchanged.
struct CompanionFile {
  std::string name;
  std::string text;
};

// Tokenizer, template and generation settings of the model at `path`, where they exist.
Result<std::vector<CompanionFile>> read_companions(Context& context, const std::string& path);

// `config` is the config.json to write; what it says of quantisation is put in its place.
Status export_checkpoint(Context& context, const FormatRequest& request, const JsonValue& config,
                         const std::vector<ModulePlan>& plans, const ModuleSource& source,
                         const std::vector<CompanionFile>& companions,
                         const ExportOptions& options);

}  // namespace motley
