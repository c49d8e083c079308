// Commands that work row by row: items are some rows each.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "commands.h"

namespace pagoda {

inline constexpr size_t kNumbersPerItem = 4096;   // a microsecond or so of work

// row(step, r, scratch) for every row of the step.
template <class Row>
class RowCommand final : public Command {
 public:
  RowCommand(RowsOf of, size_t width, size_t scratch_bytes, Row row)
      : of_(of), at_once_(std::max<size_t>(1, kNumbersPerItem / width)), scratch_bytes_(scratch_bytes),
        row_(std::move(row)) {}

  size_t num_items(const Step& step) const override { return (step.rows(of_) + at_once_ - 1) / at_once_; }
  size_t scratch_bytes() const override { return scratch_bytes_; }
  void run(const Step& step, size_t item, uint8_t* scratch) const override {
    const size_t end = std::min((item + 1) * at_once_, step.rows(of_));
    for (size_t r = item * at_once_; r < end; ++r) row_(step, r, reinterpret_cast<float*>(scratch));
  }

 private:
  RowsOf of_;
  size_t at_once_;
  size_t scratch_bytes_;
  Row row_;
};

template <class Row>
CommandPtr by_rows(RowsOf of, size_t width, size_t scratch_bytes, Row row) {
  return std::make_unique<RowCommand<Row>>(of, width, scratch_bytes, std::move(row));
}

}  // namespace pagoda
