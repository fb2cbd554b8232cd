// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/detail/sorted_keys.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "lockstep/base/detail/radix_sort.h"
#include "lockstep/base/error.h"

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

template <class Key>
void finish_keys(std::vector<Key>& keys) {
  keys.push_back(~Key{0});
}

template <class Key>
struct Entry {
  Key key;
  int32_t row;
};

/// Takes sorted items apart: their rows, and each different key once.
template <class Key, class Item, class KeyOf, class RowOf>
void collect(const std::vector<Item>& items, const KeyOf& key_of, const RowOf& row_of, SortedRows& sorted) {
  std::vector<Key>& keys = sorted.keys.get<Key>();
  sorted.rows.resize(items.size());
  sorted.is_first.resize(items.size());
  keys.resize(items.size() + 1);
  size_t unique = 0;
  Key last = ~Key{0};
  for (size_t i = 0; i < items.size(); ++i) {
    const Key key = key_of(items[i]);
    sorted.rows[i] = row_of(items[i]);
    sorted.is_first[i] = key != last;
    keys[unique] = key;
    unique += key != last;
    last = key;
  }
  keys.resize(unique);
  finish_keys(keys);
}

/// Key and row in one word: the rows lie in the low `row_bits`, out of the way of the sort.
void sort_packed(int row_bits, const int32_t* coordinates, int64_t rows, SortedRows& sorted) {
  const KeyLayout& layout = sorted.keys.layout;
  std::vector<uint64_t> words(rows);
  for (int64_t row = 0; row < rows; ++row)
    words[row] = (layout.pack<uint64_t>(coordinates + row * layout.columns()) << row_bits) | static_cast<uint64_t>(row);
  radix_sort(words, row_bits, row_bits + layout.bits(),
             [](uint64_t word, int bit) { return static_cast<uint32_t>(word >> bit); });
  const uint64_t row_mask = (uint64_t{1} << row_bits) - 1;
  collect<uint64_t>(
      words, [=](uint64_t word) { return word >> row_bits; },
      [=](uint64_t word) { return static_cast<int32_t>(word & row_mask); }, sorted);
}

template <class Key>
void sort_entries(const int32_t* coordinates, int64_t rows, SortedRows& sorted) {
  const KeyLayout& layout = sorted.keys.layout;
  std::vector<Entry<Key>> items(rows);
  for (int64_t row = 0; row < rows; ++row)
    items[row] = {layout.pack<Key>(coordinates + row * layout.columns()), static_cast<int32_t>(row)};
  radix_sort(items, 0, layout.bits(),
             [](const Entry<Key>& item, int bit) { return static_cast<uint32_t>(item.key >> bit); });
  collect<Key>(
      items, [](const Entry<Key>& item) { return item.key; }, [](const Entry<Key>& item) { return item.row; }, sorted);
}

bool strictly_ascending(const int32_t* coordinates, int64_t rows, int64_t columns) {
  for (int64_t row = 1; row < rows; ++row) {
    const int32_t* now = coordinates + row * columns;
    if (!std::lexicographical_compare(now - columns, now, now, now + columns)) return false;
  }
  return true;
}

template <class Key>
void pack_into(SortedKeys& keys, const int32_t* coordinates, int64_t size) {
  const int64_t columns = keys.layout.columns();
  std::vector<Key>& out = keys.get<Key>();
  out.reserve(size + 1);
  for (int64_t i = 0; i < size; ++i) out.push_back(keys.layout.pack<Key>(coordinates + i * columns));
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

/// Where both layouts are one and its fields start at multiples of the strides, powers of two, rounding a coordinate is
/// clearing bits of its key: the mask of those that stay, or nothing.
template <class Key>
std::optional<Key> rounding_mask(const KeyLayout& layout, std::span<const int64_t> stride) {
  Key cleared = 0;
  for (size_t axis = 0; axis < stride.size(); ++axis) {
    const KeyLayout::Field& field = layout.fields()[axis + 1];
    if ((stride[axis] & (stride[axis] - 1)) != 0 || field.low % stride[axis] != 0) return std::nullopt;
    cleared |= static_cast<Key>((static_cast<uint64_t>(stride[axis]) - 1) & field.mask) << field.shift;
  }
  return ~cleared;
}

template <class From, class To>
void round_into(const SortedKeys& from, std::span<const int64_t> stride, SortedKeys& to) {
  const std::vector<From>& source = from.get<From>();
  std::vector<To>& target = to.get<To>();
  target.resize(source.size());
  // Neighbours in the order often fall onto one: dropped here, there is less to sort.
  size_t kept = 0;
  To last = ~To{0};
  const auto keep = [&](To key) {
    target[kept] = key;
    kept += key != last;
    last = key;
  };
  const std::optional<To> mask = from.layout == to.layout ? rounding_mask<To>(to.layout, stride) : std::nullopt;
  if (mask) {
    for (size_t i = 0; i + 1 < source.size(); ++i) keep(static_cast<To>(source[i]) & *mask);
  } else {
    std::vector<int32_t> coordinate(from.layout.columns());
    for (size_t i = 0; i + 1 < source.size(); ++i) {
      from.layout.unpack(source[i], coordinate.data());
      for (size_t axis = 0; axis < stride.size(); ++axis)
        coordinate[axis + 1] = static_cast<int32_t>(floor_to(coordinate[axis + 1], stride[axis]));
      keep(to.layout.pack<To>(coordinate.data()));
    }
  }
  target.resize(kept);
  if (!std::is_sorted(target.begin(), target.end()))
    radix_sort(target, 0, to.layout.bits(), [](To key, int bit) { return static_cast<uint32_t>(key >> bit); });
  target.erase(std::unique(target.begin(), target.end()), target.end());
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

SortedKeys pack_sorted(const KeyLayout& layout, const int32_t* coordinates, int64_t size) {
  SortedKeys keys;
  keys.layout = layout;
  layout.wide() ? pack_into<Key128>(keys, coordinates, size) : pack_into<uint64_t>(keys, coordinates, size);
  return keys;
}

SortedRows sort_rows(const KeyLayout& layout, const int32_t* coordinates, int64_t rows) {
  SortedRows sorted;
  if (strictly_ascending(coordinates, rows, layout.columns())) {
    sorted.keys = pack_sorted(layout, coordinates, rows);
    return sorted;
  }
  sorted.keys.layout = layout;
  const int row_bits = width_of(rows);
  if (layout.bits() + row_bits <= 64)
    sort_packed(row_bits, coordinates, rows, sorted);
  else if (layout.wide())
    sort_entries<Key128>(coordinates, rows, sorted);
  else
    sort_entries<uint64_t>(coordinates, rows, sorted);
  return sorted;
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

SortedKeys round_down(const SortedKeys& keys, std::span<const int64_t> stride, const KeyLayout& layout) {
  SortedKeys rounded;
  rounded.layout = layout;
  if (keys.layout.wide())
    layout.wide() ? round_into<Key128, Key128>(keys, stride, rounded)
                  : round_into<Key128, uint64_t>(keys, stride, rounded);
  else
    layout.wide() ? round_into<uint64_t, Key128>(keys, stride, rounded)
                  : round_into<uint64_t, uint64_t>(keys, stride, rounded);
  return rounded;
}

}  // namespace lockstep::sparse
