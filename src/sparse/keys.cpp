// SPDX-License-Identifier: Apache-2.0
#include "sparse/keys.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "lockstep/core/error.h"

namespace lockstep::sparse {
namespace {

/// Bits that hold 0 .. extent - 1.
int width_of(int64_t extent) {
  return std::bit_width(static_cast<uint64_t>(extent - 1));
}

/// Strided maps round coordinates down. Starting fields at a multiple of this keeps the usual ones in their parent's
/// layout, and its keys need no repacking.
constexpr int64_t kAlignment = 64;

int64_t align_down(int64_t value) {
  return value & ~(kAlignment - 1);
}

/// The fields without guard bits: what has to be sorted by, in as few bits as there can be.
struct CompactLayout {
  std::vector<int64_t> low;
  std::vector<int> shift;
  int bits = 0;

  explicit CompactLayout(const Box& box) : low(box.low), shift(box.low.size()) {
    for (size_t column = shift.size(); column-- > 0;) {
      shift[column] = bits;
      bits += width_of(box.high[column] - box.low[column] + 1);
    }
  }
  template <class Key>
  Key pack(const int32_t* coordinate) const {
    Key key = 0;
    for (size_t column = 0; column < low.size(); ++column)
      // A field of no bits may stand beyond the key's width, where a shift is undefined; it is zero anyway.
      if (const Key value = static_cast<Key>(coordinate[column] - low[column])) key |= value << shift[column];
    return key;
  }
};

template <class Key>
struct Entry {
  Key key;
  int32_t row;
};

/// Key and row in one word: the rows lie in the low `row_bits`, out of the way of the sort.
struct PackedEntry {
  uint64_t word;
};

/// Least significant digit first, so that equal keys stay in order. Digits that are the same everywhere cost a count
/// and no pass.
template <class Item, class Digits>
void radix_sort(std::vector<Item>& items, int low_bit, int high_bit, const Digits& digits) {
  constexpr int kDigit = 11;
  std::vector<Item> other(items.size());
  for (int bit = low_bit; bit < high_bit; bit += kDigit) {
    const uint32_t mask = (1u << std::min(kDigit, high_bit - bit)) - 1;
    std::array<size_t, 1 << kDigit> start{};
    for (const Item& item : items) ++start[digits(item, bit) & mask];
    if (start[digits(items[0], bit) & mask] == items.size()) continue;
    size_t sum = 0;
    for (size_t& count : start) sum += std::exchange(count, sum);
    for (const Item& item : items) other[start[digits(item, bit) & mask]++] = item;
    items.swap(other);
  }
}

template <class Item, class KeyOf, class RowOf>
SortedRows collect(const std::vector<Item>& items, const KeyOf& key_of, const RowOf& row_of) {
  SortedRows sorted;
  sorted.rows.resize(items.size());
  sorted.is_first.resize(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    sorted.rows[i] = row_of(items[i]);
    sorted.is_first[i] = i == 0 || key_of(items[i]) != key_of(items[i - 1]);
  }
  return sorted;
}

SortedRows sort_packed(const CompactLayout& layout, int row_bits, const int32_t* coordinates, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(layout.low.size());
  std::vector<PackedEntry> items(rows);
  for (int64_t row = 0; row < rows; ++row)
    items[row].word = (layout.pack<uint64_t>(coordinates + row * columns) << row_bits) | static_cast<uint64_t>(row);
  radix_sort(items, row_bits, row_bits + layout.bits,
             [](const PackedEntry& item, int bit) { return static_cast<uint32_t>(item.word >> bit); });
  const uint64_t row_mask = (uint64_t{1} << row_bits) - 1;
  return collect(
      items, [=](const PackedEntry& item) { return item.word >> row_bits; },
      [=](const PackedEntry& item) { return static_cast<int32_t>(item.word & row_mask); });
}

template <class Key>
SortedRows sort_entries(const CompactLayout& layout, const int32_t* coordinates, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(layout.low.size());
  std::vector<Entry<Key>> items(rows);
  for (int64_t row = 0; row < rows; ++row)
    items[row] = {layout.pack<Key>(coordinates + row * columns), static_cast<int32_t>(row)};
  radix_sort(items, 0, layout.bits,
             [](const Entry<Key>& item, int bit) { return static_cast<uint32_t>(item.key >> bit); });
  return collect(
      items, [](const Entry<Key>& item) { return item.key; }, [](const Entry<Key>& item) { return item.row; });
}

bool strictly_ascending(const int32_t* coordinates, int64_t rows, int64_t columns) {
  for (int64_t row = 1; row < rows; ++row) {
    const int32_t* now = coordinates + row * columns;
    if (!std::lexicographical_compare(now - columns, now, now, now + columns)) return false;
  }
  return true;
}

template <class Key>
void finish_keys(std::vector<Key>& keys) {
  keys.push_back(~Key{0});
}

template <class Key>
void pack_into(SortedKeys& keys, const int32_t* coordinates, std::span<const int32_t> rows, int64_t size) {
  const int64_t columns = keys.layout.columns();
  std::vector<Key>& out = keys.get<Key>();
  out.reserve(size + 1);
  for (int64_t i = 0; i < size; ++i)
    out.push_back(keys.layout.pack<Key>(coordinates + (rows.empty() ? i : rows[i]) * columns));
  finish_keys(out);
}

template <class From, class To>
void repack_into(const SortedKeys& from, SortedKeys& to) {
  const std::vector<From>& source = from.get<From>();
  std::vector<To>& target = to.get<To>();
  std::vector<int32_t> coordinate(from.layout.columns());
  target.reserve(source.size());
  for (size_t i = 0; i + 1 < source.size(); ++i) {
    from.layout.unpack(source[i], coordinate.data());
    target.push_back(to.layout.pack<To>(coordinate.data()));
  }
  finish_keys(target);
}

}  // namespace

Box Box::around(const int32_t* coordinates, int64_t rows, int64_t columns) {
  std::vector<int32_t> low(columns, std::numeric_limits<int32_t>::max());
  std::vector<int32_t> high(columns, std::numeric_limits<int32_t>::min());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int32_t value = *coordinates++;
      low[column] = std::min(low[column], value);
      high[column] = std::max(high[column], value);
    }
  return {{low.begin(), low.end()}, {high.begin(), high.end()}};
}

void Box::include(const Box& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  for (size_t column = 0; column < low.size(); ++column) {
    low[column] = std::min(low[column], other.low[column]);
    high[column] = std::max(high[column], other.high[column]);
  }
}

KeyLayout::KeyLayout(const char* operation, const Box& box) : fields_(box.low.size()) {
  if (box.empty()) return;
  for (const bool align : {true, false}) {
    bits_ = 0;
    for (size_t column = fields_.size(); column-- > 0;) {
      Field& field = fields_[column];
      const int64_t low = box.low[column];
      const int guard = column == 0 ? 0 : 1;
      field.low = column == 0 ? low - 1 : align ? align_down(low) : low;
      field.extent = box.high[column] - field.low + 1;
      const int width = width_of(field.extent) + guard;
      field.mask = (uint64_t{1} << width) - 1;
      field.shift = bits_;
      bits_ += width;
    }
    if (bits_ <= 64) return;
  }
  require(bits_ <= 128, operation, "the coordinates' box needs a key of ", bits_,
          " bits, expected at most 128: some coordinates lie too far apart on ", fields_.size() - 1, " axes");
}

bool KeyLayout::covers(const Box& box) const {
  if (box.empty()) return true;
  if (bits_ == 0) return false;
  for (size_t column = 0; column < fields_.size(); ++column) {
    const Field& field = fields_[column];
    const int64_t first = field.low + (column == 0 ? 1 : 0);
    if (box.low[column] < first || box.high[column] >= field.low + field.extent) return false;
  }
  return true;
}

bool KeyLayout::reaches(std::span<const int64_t> offset) const {
  for (size_t axis = 0; axis < offset.size(); ++axis)
    if (std::abs(offset[axis]) >= fields_[axis + 1].extent) return false;
  return true;
}

SortedRows sort_rows(const char* operation, const int32_t* coordinates, int64_t rows, const Box& box) {
  SortedRows sorted;
  const int64_t columns = static_cast<int64_t>(box.low.size());
  if (strictly_ascending(coordinates, rows, columns)) {
    sorted.ascending = true;
    return sorted;
  }
  const CompactLayout layout(box);
  const int row_bits = width_of(rows);
  if (layout.bits + row_bits <= 64) return sort_packed(layout, row_bits, coordinates, rows);
  if (layout.bits <= 64) return sort_entries<uint64_t>(layout, coordinates, rows);
  require(layout.bits <= 128, operation, "the coordinates' box needs a key of ", layout.bits,
          " bits, expected at most 128: some coordinates lie too far apart on ", columns - 1, " axes");
  return sort_entries<Key128>(layout, coordinates, rows);
}

SortedKeys pack_sorted(const KeyLayout& layout, const int32_t* coordinates, std::span<const int32_t> rows,
                       int64_t size) {
  SortedKeys keys;
  keys.layout = layout;
  if (layout.wide())
    pack_into<Key128>(keys, coordinates, rows, size);
  else
    pack_into<uint64_t>(keys, coordinates, rows, size);
  return keys;
}

SortedKeys repack(const SortedKeys& keys, const KeyLayout& layout) {
  SortedKeys packed;
  packed.layout = layout;
  if (keys.layout.wide())
    layout.wide() ? repack_into<Key128, Key128>(keys, packed) : repack_into<Key128, uint64_t>(keys, packed);
  else
    layout.wide() ? repack_into<uint64_t, Key128>(keys, packed) : repack_into<uint64_t, uint64_t>(keys, packed);
  return packed;
}

}  // namespace lockstep::sparse
