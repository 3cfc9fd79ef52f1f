#include "engine/draft/draft_record.h"

#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/draft/draft_test_util.h"
#include "support/test_files.h"

namespace motley {
namespace {

// `accepted` of `tried` at each place.
DraftStats stats_of(std::initializer_list<std::pair<int64_t, int64_t>> places) {
  DraftStats stats;
  size_t place = 0;
  for (const auto& [accepted, tried] : places) {
    stats.accepted[place] = accepted;
    stats.tried[place++] = tried;
  }
  return stats;
}

TEST(DraftAlarm, AnyWorkingLayerIsAboveTheFloor) {
  EXPECT_EQ(draft_alarm(stats_of({{40, 100}}), nullptr), std::nullopt);
  EXPECT_EQ(draft_alarm(stats_of({{0, 49}}), nullptr), std::nullopt) << "too few to tell";
  const auto alarm = draft_alarm(stats_of({{12, 100}}), nullptr);
  ASSERT_TRUE(alarm);
  EXPECT_NE(alarm->find("place 1 only 12 of 100 were right (0.12)"), std::string::npos);
}

TEST(DraftAlarm, AFallBelowTheRecordIsOne) {
  const DraftStats record = stats_of({{880, 1000}, {800, 880}, {720, 800}});
  EXPECT_EQ(draft_alarm(stats_of({{80, 100}, {70, 80}}), &record), std::nullopt);
  EXPECT_TRUE(draft_alarm(stats_of({{55, 100}}), &record));
  const auto second = draft_alarm(stats_of({{90, 100}, {40, 90}}), &record);
  ASSERT_TRUE(second);
  EXPECT_NE(second->find("place 2"), std::string::npos);
  EXPECT_NE(second->find("earlier runs of this model 0.91"), std::string::npos);
  // A model whose drafts have never been good is no news.
  const DraftStats poor = stats_of({{200, 1000}});
  EXPECT_EQ(draft_alarm(stats_of({{20, 100}}), &poor), std::nullopt);
}

TEST(DraftRecord, IsKeptAndFades) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  const std::string path = directory / "drafts.json";
  EXPECT_TRUE(load_draft_records(faults, path)->empty());
  ASSERT_TRUE(store_draft_record(faults, path, {}, "a", stats_of({{8, 10}, {7, 8}})).is_ok());
  auto all = load_draft_records(faults, path).value();
  ASSERT_TRUE(store_draft_record(faults, path, all, "b", stats_of({{1, 2}})).is_ok());
  all = load_draft_records(faults, path).value();
  ASSERT_TRUE(store_draft_record(faults, path, all, "a", stats_of({{2, 10}})).is_ok());
  all = load_draft_records(faults, path).value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(find_draft_record(all, "a")->tried[0], 20);
  EXPECT_EQ(find_draft_record(all, "a")->accepted[0], 10);
  EXPECT_EQ(find_draft_record(all, "a")->accepted[1], 7);
  EXPECT_EQ(find_draft_record(all, "c"), nullptr);
  ASSERT_TRUE(store_draft_record(faults, path, all, "b", stats_of({{9998, 19998}})).is_ok());
  all = load_draft_records(faults, path).value();
  EXPECT_EQ(find_draft_record(all, "b")->tried[0], 10000);
}

TEST(DraftRecord, DamagedFilesAreNamed) {
  const auto message = [](std::string_view text) {
    return parse_draft_records(text, "drafts.json").status().message();
  };
  const auto of = [](std::string_view counts) {
    return R"({"format": "motley-drafts-1", "models": [{"key": "a", )" + std::string(counts) +
           "}]}";
  };
  EXPECT_NE(message("{").find("drafts.json"), std::string::npos);
  EXPECT_NE(message(R"({"format": "motley-rates-1"})").find("drafts.json"), std::string::npos);
  EXPECT_NE(message(of(R"("tried": [1], "accepted": [1])")).find("one count for each place"),
            std::string::npos);
  EXPECT_NE(message(of(R"("tried": [1,0,0,0,0,0,0,0], "accepted": [2,0,0,0,0,0,0,0])"))
                .find("more than tried"),
            std::string::npos);
  EXPECT_NE(
      message(of(R"("tried": [-1,0,0,0,0,0,0,0], "accepted": [0,0,0,0,0,0,0,0])")).find("tried"),
      std::string::npos);
}

TEST(DraftRecord, TheKeyIsOfTheDraftLayer) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load_tiny(context, {});
  const std::string key = draft_record_key(engine->model());
  EXPECT_EQ(key, draft_record_key(load_tiny(context, {})->model()));
  EXPECT_NE(key.find(engine->spec().family), std::string::npos);
}

}  // namespace
}  // namespace motley
