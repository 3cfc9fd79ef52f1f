#include "experts/pack/pack_set.h"

#include <fmt/format.h>

namespace motley {
namespace {

// Parts of a split that no directory is.
std::string missing_parts(std::span<const PackDirectory> directories) {
  const int parts = directories.front().manifest().parts;
  std::string missing;
  for (int part = 0; part < parts; ++part) {
    bool found = false;
    for (const PackDirectory& pack : directories) found |= pack.manifest().part == part;
    if (!found) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", part + 1);
  }
  return missing;
}

}  // namespace

Result<PackSet> PackSet::open(Context& context, std::span<const std::string> directories,
                              const PackModel& model) {
  if (directories.size() > kMaxDirectories) {
    return invalid_argument(fmt::format("at most {} packs can be used at once", kMaxDirectories));
  }
  PackSet set;
  PackManifest expected;
  for (const std::string& path : directories) {
    MOTLEY_ASSIGN_OR_RETURN(PackDirectory pack, PackDirectory::open(context.faults, path,
                                                                    PackDirectory::Access::kRead));
    const PackManifest& manifest = pack.manifest();
    if (set.directories_.empty()) {
      MOTLEY_ASSIGN_OR_RETURN(expected, manifest_of(model, manifest.parts, 0));
    }
    if (manifest.source != expected.source || manifest.layers != expected.layers) {
      return invalid_argument(fmt::format("{}: is a pack of another checkpoint than {}", path,
                                          model.checkpoint->directory().path()));
    }
    if (manifest.parts != expected.parts) {
      return invalid_argument(fmt::format("{}: is split in {}, {} in {}; use packs of one split",
                                          path, manifest.parts, set.directories_.front().path(),
                                          expected.parts));
    }
    set.directories_.push_back(std::move(pack));
  }
  MOTLEY_RETURN_IF_ERROR(set.merge(model));
  return set;
}

Status PackSet::merge(const PackModel& model) {
  const PackManifest& manifest = directories_.front().manifest();
  const std::string missing = missing_parts(directories_);
  if (!missing.empty()) {
    return invalid_argument(fmt::format(
        "{}: the pack is split in {} and part {} is not given; name every directory with --packed",
        directories_.front().path(), manifest.parts, missing));
  }
  layer_index_.resize(model.layers.size());
  int64_t lost = 0;
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const PackLayer& layer = manifest.layers[i];
    layer_index_[static_cast<size_t>(layer.layer)] = i;
    sums_.emplace_back(static_cast<size_t>(layer.experts));
    copies_.emplace_back(static_cast<size_t>(layer.experts), 0U);
    for (int expert = 0; expert < layer.experts; ++expert) {
      const auto at = static_cast<size_t>(expert);
      for (size_t d = 0; d < directories_.size(); ++d) {
        const PackDirectory& pack = directories_[d];
        const PackManifest& its = pack.manifest();
        if (part_of_expert(its.parts, layer.layer, expert) != its.part) continue;
        const std::optional<RecordSums>& entry = pack.entry(pack.index_of(i, expert));
        if (!entry) continue;
        if (copies_[i][at] != 0 && *entry != sums_[i][at]) {
          return corrupt(
              fmt::format("{}: expert {} of layer {} is not the one of the other packs; "
                          "pack the model again",
                          pack.path(), expert, layer.layer));
        }
        sums_[i][at] = *entry;
        copies_[i][at] |= uint32_t{1} << d;
      }
      if (copies_[i][at] == 0) ++lost;
    }
  }
  if (lost == 0) return Status::ok();
  return corrupt(fmt::format(
      "{}: {} experts are not written or damaged; \"motley pack\" with the same arguments as "
      "before completes it",
      directories_.front().path(), lost));
}

ExpertLayout PackSet::layout(const std::vector<std::vector<ExpertWeights>>& layers) const {
  const PackManifest& manifest = directories_.front().manifest();
  return ExpertLayout::create_packed(
      layers,
      [&](int layer, int expert) {
        const size_t i = layer_index_[static_cast<size_t>(layer)];
        return RecordPlace{
            .file = static_cast<int>(i),
            .offset = position_in_part(manifest.parts, expert) * manifest.layers[i].record_bytes(),
            .copies = copies_[i][static_cast<size_t>(expert)]};
      },
      static_cast<int>(manifest.layers.size()));
}

Result<std::vector<DirectFile>> PackSet::open_files() const {
  std::vector<DirectFile> files;
  for (const PackDirectory& pack : directories_) {
    for (size_t layer = 0; layer < pack.manifest().layers.size(); ++layer) {
      MOTLEY_ASSIGN_OR_RETURN(DirectFile file, pack.open_layer(layer));
      files.push_back(std::move(file));
    }
  }
  return files;
}

std::vector<std::string> PackSet::file_paths() const {
  std::vector<std::string> paths;
  for (const PackDirectory& pack : directories_) {
    for (size_t layer = 0; layer < pack.manifest().layers.size(); ++layer) {
      paths.push_back(pack.file_path(layer));
    }
  }
  return paths;
}

const RecordSums& PackSet::sums(int layer, int expert) const {
  return sums_[layer_index_[static_cast<size_t>(layer)]][static_cast<size_t>(expert)];
}

}  // namespace motley
