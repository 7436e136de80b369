// SPDX-License-Identifier: Apache-2.0
// tests/vectors/decisions.json: records, patterns, the records that fail the run, the patterns of
// the remedy, patterns that allow all of these records, and patterns that allow none.
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

Verdict verdict_of(const rapidjson::Value& vector, const std::vector<std::string>& allow) {
  Records records;
  for (const auto& record : vector["records"].GetArray()) records.add(text_of(record));
  Verdict verdict;
  verdict.findings = records.findings();
  verdict.allow = allow;
  verdict.deny = denied_words(texts_of(vector["deny"]));
  decide(verdict);
  return verdict;
}

std::set<Key> failed(const Verdict& verdict) {
  std::set<Key> keys;
  for (const CallSite& site : verdict.findings.sites) {
    for (const size_t process : site.forbidden) {
      keys.emplace(verdict.findings.processes[process].pid, site.api, site.library, site.line);
    }
  }
  return keys;
}

TEST(Vectors, VerifyDecidesAsWritten) {
  std::ifstream file(CG_VECTORS);
  rapidjson::IStreamWrapper stream(file);
  rapidjson::Document vectors;
  vectors.ParseStream(stream);
  ASSERT_TRUE(vectors.IsArray());
  ASSERT_GT(vectors.Size(), 40u);
  for (const auto& vector : vectors.GetArray()) {
    SCOPED_TRACE(vector["name"].GetString());
    std::set<Key> expected;
    for (const auto& number : vector["fail"].GetArray()) {
      const auto& record = vector["records"][number.GetUint()];
      expected.emplace(record["pid"].GetUint(), record["api"].GetString(),
                       record["library"].GetString(), member(record, "code"));
    }
    const Verdict verdict = verdict_of(vector, texts_of(vector["allow"]));
    EXPECT_EQ(verdict.findings.records, vector["records"].Size());
    EXPECT_EQ(failed(verdict), expected);
    if (vector.HasMember("accept")) {
      EXPECT_EQ(patterns_for(verdict), texts_of(vector["accept"]));
    }
    for (const char* patterns : {"allowed_by", "not_by"}) {
      if (!vector.HasMember(patterns)) continue;
      const bool allows = patterns == std::string("allowed_by");
      for (const std::string& pattern : texts_of(vector[patterns])) {
        EXPECT_EQ(failed(verdict_of(vector, {pattern})), allows ? std::set<Key>{} : expected)
            << pattern;
      }
    }
  }
}

}  // namespace
}  // namespace cudaguard::launcher
