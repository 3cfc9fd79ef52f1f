// What `motley doctor` found about one part of the machine, and the report of all of it.
// Ownership: values. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace motley {

enum class Health {
  kGood,
  kSlow,    // motley works, with less speed than the machine could give
  kBroken,  // motley cannot work
};
std::string_view health_name(Health health);

struct Finding {
  std::string topic;  // "huge pages"
  Health health = Health::kGood;
  std::string fact;     // what was found
  std::string meaning;  // what it means for motley
  std::string remedy;   // what to do; empty when there is nothing to do
  std::string details;  // for programs: the members of a JSON object, or empty
};

// A few lines for each finding, then one that sums up.
std::string findings_table(const std::vector<Finding>& findings);
std::string findings_json(const std::vector<Finding>& findings);
// The worst of all.
Health overall(const std::vector<Finding>& findings);

}  // namespace motley
