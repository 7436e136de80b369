// SPDX-License-Identifier: Apache-2.0
// Reads the numbers of DWARF's tables, one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cudaguard::launcher {

/// A copied piece of another process's memory, read from front to back. Signed numbers are returned
/// in two's complement, because sums of hostile ones may overflow. After a read past the end `ok()`
/// is false and every number is 0.
class Cursor {
 public:
  /// `address` is the address of these bytes in the process.
  Cursor(std::string_view bytes, uint64_t address)
      : rest_(bytes), end_address_(address + bytes.size()) {}

  bool ok() const { return ok_; }
  bool more() const { return ok_ && !rest_.empty(); }
  uint64_t address() const { return end_address_ - rest_.size(); }
  std::string_view rest() const { return rest_; }

  std::string_view block(uint64_t size) {
    ok_ = ok_ && size <= rest_.size();
    if (!ok_) return {};
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(size));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  /// A number of T's size, sign-extended if T is signed.
  template <typename T>
  uint64_t number() {
    T value = 0;
    const std::string_view taken = block(sizeof value);
    if (!taken.empty()) memcpy(&value, taken.data(), sizeof value);
    return static_cast<uint64_t>(value);
  }
  uint64_t uleb() { return leb(false); }
  uint64_t sleb() { return leb(true); }
  /// DW_EH_PE_*, without DW_EH_PE_indirect.
  uint64_t pointer(uint8_t encoding) {
    const uint64_t here = (encoding & 0x70U) == 0x10 ? address() : 0;  // DW_EH_PE_pcrel
    ok_ = ok_ && ((encoding & 0xf0U) == 0x10 || (encoding & 0xf0U) == 0);
    return here + plain(encoding & 0xfU);
  }

 private:
  uint64_t plain(unsigned format) {
    if (format == 0x1) return uleb();                                // DW_EH_PE_uleb128
    if (format == 0x2) return number<uint16_t>();                    // DW_EH_PE_udata2
    if (format == 0x3) return number<uint32_t>();                    // DW_EH_PE_udata4
    if (format == 0x9) return sleb();                                // DW_EH_PE_sleb128
    if (format == 0xa) return number<int16_t>();                     // DW_EH_PE_sdata2
    if (format == 0xb) return number<int32_t>();                     // DW_EH_PE_sdata4
    ok_ = ok_ && (format == 0x0 || format == 0x4 || format == 0xc);  // DW_EH_PE_absptr, 8 bytes
    return number<uint64_t>();
  }
  uint64_t leb(bool is_signed) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = number<uint8_t>();
      value |= (byte & 0x7fU) << shift;
      if ((byte & 0x80U) != 0) continue;
      if (is_signed && (byte & 0x40U) != 0 && shift < 57) value |= ~uint64_t{0} << (shift + 7);
      return value;
    }
    ok_ = false;
    return 0;
  }

  std::string_view rest_;
  uint64_t end_address_;
  bool ok_ = true;
};

}  // namespace cudaguard::launcher
