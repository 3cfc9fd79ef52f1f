// The messages of a chat, and the tokens they render to.
// Ownership: an owning value. Thread rule: one owner.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/text_model.h"

namespace motley {

class Conversation {
 public:
  // `system`: empty for none.
  explicit Conversation(std::string system = "") : system_(std::move(system)) {}

  void add_user(std::string text);
  void add_assistant(std::string text);
  // Takes back the newest message, after a turn that failed.
  void drop_last();
  // Forgets the messages but keeps the system text.
  void clear() { turns_.clear(); }
  // Takes effect from the first message on.
  void set_system(std::string text) { system_ = std::move(text); }

  const std::string& system() const { return system_; }
  size_t size() const { return turns_.size(); }
  // [{"role": ..., "content": ...}], as `motley template` reads it.
  nlohmann::ordered_json messages() const;

  // The prompt for the next answer.
  Result<std::vector<TokenId>> encode(const TextModel& model, std::optional<bool> think) const;

 private:
  struct Turn {
    const char* role;
    std::string content;
  };
  std::string system_;
  std::vector<Turn> turns_;
};

}  // namespace motley
