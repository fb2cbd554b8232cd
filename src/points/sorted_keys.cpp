// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/detail/sorted_keys.h"

#include <algorithm>

#include "lockstep/base/detail/radix_sort.h"

namespace lockstep::points {
namespace {

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

/// Packs until a row does not come after the one before it: keys compare as rows do. Whether all do.
template <class Key>
bool pack_while_ascending(const int32_t* coordinates, int64_t rows, SortedKeys& keys) {
  const int64_t columns = keys.layout.columns();
  std::vector<Key>& out = keys.get<Key>();
  out.reserve(rows + 1);
  Key last = 0;  // less than any key
  for (int64_t row = 0; row < rows; ++row) {
    const Key key = keys.layout.pack<Key>(coordinates + row * columns);
    if (key <= last) return false;
    out.push_back(last = key);
  }
  finish_keys(out);
  return true;
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

std::optional<SortedKeys> pack_ascending(const KeyLayout& layout, const int32_t* coordinates, int64_t rows) {
  SortedKeys keys;
  keys.layout = layout;
  const bool ascend = layout.wide() ? pack_while_ascending<Key128>(coordinates, rows, keys)
                                    : pack_while_ascending<uint64_t>(coordinates, rows, keys);
  return ascend ? std::optional(std::move(keys)) : std::nullopt;
}

SortedRows sort_rows(const KeyLayout& layout, const int32_t* coordinates, int64_t rows) {
  if (std::optional<SortedKeys> keys = pack_ascending(layout, coordinates, rows)) return {std::move(*keys), {}, {}};
  SortedRows sorted;
  sorted.keys.layout = layout;
  const int row_bits = bits_for(rows);
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

}  // namespace lockstep::points
