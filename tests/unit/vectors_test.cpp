// SPDX-License-Identifier: Apache-2.0
// tests/vectors/decisions.json: records, patterns, the records that fail the run, and the patterns
// of the remedy.
// tests/python/test_vectors.py asks pytest's plug-in the same.
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <rapidjson/istreamwrapper.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/findings/verdict.h"

namespace cudaguard::launcher {
namespace {

using Key = std::tuple<unsigned, std::string, std::string, std::string>;

std::vector<std::string> texts_of(const rapidjson::Value& list) {
  std::vector<std::string> texts;
  for (const auto& one : list.GetArray()) texts.emplace_back(one.GetString());
  return texts;
}

std::string text_of(const rapidjson::Value& value) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  value.Accept(writer);
  return buffer.GetString();
}

std::string member(const rapidjson::Value& record, const char* name) {
  return record.HasMember(name) ? record[name].GetString() : "";
}

TEST(Vectors, VerifyDecidesAsWritten) {
  std::ifstream file(CG_VECTORS);
  rapidjson::IStreamWrapper stream(file);
  rapidjson::Document vectors;
  vectors.ParseStream(stream);
  ASSERT_TRUE(vectors.IsArray());
  ASSERT_GT(vectors.Size(), 50u);
  for (const auto& vector : vectors.GetArray()) {
    Records records;
    std::set<Key> expected;
    for (const auto& record : vector["records"].GetArray()) {
      records.add(text_of(record));
    }
    EXPECT_EQ(records.findings().records, vector["records"].Size()) << vector["name"].GetString();
    for (const auto& number : vector["fail"].GetArray()) {
      const auto& record = vector["records"][number.GetUint()];
      expected.emplace(record["pid"].GetUint(), record["api"].GetString(),
                       record["library"].GetString(), member(record, "code"));
    }
    Verdict verdict;
    verdict.findings = records.findings();
    verdict.allow = texts_of(vector["allow"]);
    verdict.deny = denied_words(texts_of(vector["deny"]));
    decide(verdict);
    std::set<Key> failed;
    for (const CallSite& site : verdict.findings.sites) {
      for (const size_t process : site.forbidden) {
        failed.emplace(verdict.findings.processes[process].pid, site.api, site.library, site.line);
      }
    }
    EXPECT_EQ(failed, expected) << vector["name"].GetString();
    if (vector.HasMember("accept")) {
      EXPECT_EQ(patterns_for(verdict), texts_of(vector["accept"])) << vector["name"].GetString();
    }
  }
}

}  // namespace
}  // namespace cudaguard::launcher
