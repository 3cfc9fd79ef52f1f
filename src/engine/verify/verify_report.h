// What a verification found: one row per tensor, printed as a table or as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace motley {

struct VerifyRow {
  std::string profile;   // "exact", "fast", or the pass it belongs to
  std::string tensor;    // "short.layer.3.out"
  int64_t compared = 0;  // values or rows
  double error = 0;      // largest error relative to the tensor's largest value, or rows off
  double limit = 0;
  int64_t excused = 0;  // rows decided by a near tie
  bool passed = false;
  std::string first_off;  // where, when it failed
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  int64_t routed_rows = 0;  // choices of experts and of keys
  int64_t excused_rows = 0;
  // Set when the fast pass was off on its own and repeated with the reference's choices of experts
  // where less than kFastNearTie decides, and of keys (then kFastNearTieWithKeys decides experts).
  struct FastErrors {
    double loss = 0;  // of the mean, nats
    double rows = 0;  // share whose greatest logit differs
  };
  std::optional<FastErrors> fast_alone;
  int64_t fast_forced_rows = 0;
  int64_t fast_forced_keys = 0;

  // False when a row failed or more than 0.5 % of the routed rows were excused.
  bool passed() const;
  // One line per tensor; layers of a label are folded unless one of them failed.
  std::string table() const;
  std::string json() const;
};

}  // namespace motley
